/* The loop over the tasks. Everything was decided when the program was compiled; nothing is allocated here. The number
 * of threads is set for each pass, because OpenMP stores it for the calling thread. A program always computes all of
 * its rows. If a batch has fewer, the input of the other rows is set to 0, and loss and output use only the valid ones.
 * A norm that has found a value that is not finite makes the loss NaN, since a ReLU of oneDNN may have removed it on
 * the way. */
#include "nn/onednn/run/run.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "nn/host/host.h"
#include "nn/onednn/kernels/elementwise.h"
#include "nn/onednn/program/shapes.h"
#include "nn/onednn/run/run_impl.h"

static void load_input(const struct onednn_program *p, float *x)
{
	const struct ct_net *net = p->base.net;
	const struct ct_shape s = ct_graph_node(p->base.graph, 0)->shape;
	const struct ct_batch *b = p->pass.batch;
	const size_t elems = (size_t)s.c * (size_t)s.h * (size_t)s.w, rows = (size_t)b->n;
	const int threads = net->engine->threads;
	const bool bytes = net->opts.input == CT_INPUT_U8_NHWC;

	if (ct__onednn_type(p) == CT_DNNL_BF16) {
		uint16_t *y = (uint16_t *)x;

		if (bytes)
			ct__onednn_normalise_bf16(threads, b->x, b->n, s, net->opts.mean, net->opts.std, y);
		else
			ct__onednn_to_bf16(threads, y, b->x, rows * elems);
		memset(y + rows * elems, 0, ((size_t)p->base.n - rows) * elems * sizeof(*y));
		return;
	}
	if (bytes)
		ct__onednn_normalise(threads, b->x, b->n, s, net->opts.mean, net->opts.std, x);
	else if (p->binding.input_at == x)
		memcpy(x, b->x, rows * elems * sizeof(float));
	else
		return;
	memset(x + rows * elems, 0, ((size_t)p->base.n - rows) * elems * sizeof(float));
}

struct mask {
	const struct onednn_program *p;
	const struct onednn_task *t;
};

static void draw_rows(void *arg, int64_t begin, int64_t end)
{
	const struct onednn_program *p = ((const struct mask *)arg)->p;
	const struct onednn_task *t = ((const struct mask *)arg)->t;
	const float rate = ct_graph_node(p->base.graph, t->node)->p;
	const int origin = ct_graph_node(p->base.graph, t->node)->origin;

	for (int i = (int)begin; i < (int)end; i++)
		ct_dropout_mask(p->base.net->opts.seed, p->base.net->state->step.step, origin,
				p->pass.batch->first + (uint64_t)i, rate, t->n, t->ptr[0] + (size_t)i * t->n);
}

static void draw_mask(const struct onednn_program *p, const struct onednn_task *t)
{
	struct mask mask = {p, t};

	ct_parallel_for(p->base.net->engine->threads, p->base.n, 1, draw_rows, &mask);
}

/* The loss must show a NaN even if oneDNN's norm with ReLU has turned it into 0. */
static void run_loss(const struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct_graph_node(p->base.graph, t->node);
	const int threads = p->base.net->engine->threads;
	float *dlogits = p->base.mode == CT_TRAIN ? t->ptr[1] : NULL;

	if (node->op == CT_OP_MSE)
		ct_loss_mse(threads, t->ptr[0], p->pass.batch, (int)t->n, dlogits, p->pass.metrics);
	else
		ct_loss_softmax_xent(threads, t->ptr[0], p->pass.batch, (int)t->n, node->label_smoothing,
				     ct__program_class_weights(&p->base), dlogits, p->pass.metrics);
	if (p->pass.not_finite)
		p->pass.metrics->loss = NAN;
}

static void run_multiply(const struct onednn_program *p, const struct onednn_task *t)
{
	const int threads = p->base.net->engine->threads;

	if (ct__dnnl_desc_type(p->values[t->node].layout.desc) == CT_DNNL_BF16)
		ct__onednn_multiply_bf16(threads, (uint16_t *)t->ptr[0], (uint16_t *)t->ptr[1], (uint16_t *)t->ptr[2],
					 t->n);
	else
		ct__onednn_multiply(threads, t->ptr[0], t->ptr[1], t->ptr[2], t->n);
}

static float *at(const struct onednn_task *t, enum ct_dnnl_arg arg)
{
	for (int i = 0; i < t->n_args; i++) {
		if (t->args[i].arg == arg)
			return t->ptr[i];
	}
	return NULL;
}

static void run_winograd(const struct onednn_program *p, const struct onednn_task *t)
{
	struct ct_winograd op = {.threads = p->base.net->engine->threads,
				 .scratch = at(t, CT_DNNL_SCRATCHPAD),
				 .weights = at(t, CT_DNNL_WEIGHTS),
				 .x = at(t, CT_DNNL_SRC),
				 .bias = at(t, CT_DNNL_BIAS),
				 .y = at(t, CT_DNNL_DST),
				 .relu = p->values[t->node].fusion.relu >= 0,
				 .sum = p->values[t->node].fold.sum >= 0,
				 .dy = at(t, CT_DNNL_DIFF_DST),
				 .dx = at(t, CT_DNNL_DIFF_SRC),
				 .dw = at(t, CT_DNNL_DIFF_WEIGHTS),
				 .db = at(t, CT_DNNL_DIFF_BIAS)};

	CT_ASSERT(ct__onednn_winograd_shape(p, t->node, &op.shape));
	switch ((enum ct_conv_pass)t->n) {
	case CT_CONV_FORWARD:
		ct__winograd_forward(&op);
		break;
	case CT_CONV_BACKWARD_DATA:
		ct__winograd_backward_data(&op);
		break;
	case CT_CONV_BACKWARD_WEIGHTS:
		ct__winograd_backward_weights(&op);
		break;
	case CT_CONV_PASSES:
		break;
	}
}

static void run_weights_gemm(const struct onednn_program *p, const struct onednn_task *t)
{
	struct ct_weights_gemm op = {.threads = p->base.net->engine->threads,
				     .dw = t->ptr[0],
				     .x = t->ptr[1],
				     .dy = t->ptr[2],
				     .scratch = t->ptr[3]};

	CT_ASSERT(ct__onednn_weights_gemm_shape(p->base.graph, t->node, p->base.n, &op.shape));
	ct__weights_gemm(&op);
}

static enum ct_status run_task(struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct_graph_node(p->base.graph, t->node);

	switch (t->kind) {
	case ONEDNN_CALL:
		return ct__dnnl_call_run(p->dnnl, t->call);
	case ONEDNN_INPUT:
		load_input(p, t->ptr[0]);
		break;
	case ONEDNN_DROPOUT_MASK:
		draw_mask(p, t);
		break;
	case ONEDNN_MULTIPLY:
		run_multiply(p, t);
		break;
	case ONEDNN_ROW_FACTORS:
	case ONEDNN_SCALE_ROWS:
	case ONEDNN_NORM:
	case ONEDNN_NORM_BACKWARD:
	case ONEDNN_NORM_PLAIN:
	case ONEDNN_NORM_PLAIN_BACKWARD:
		return ct__onednn_run_norm(p, t);
	case ONEDNN_RUNNING_STATS:
		if (!ct__onednn_running(t->ptr[0], t->ptr[1], t->ptr[2], t->ptr[3], node->shape.c, node->momentum,
					(double)t->n))
			p->pass.not_finite = true;
		break;
	case ONEDNN_NORM_POOL:
	case ONEDNN_NORM_POOL_BACKWARD:
		ct__onednn_run_norm_pool(p, t);
		break;
	case ONEDNN_WINOGRAD:
		run_winograd(p, t);
		break;
	case ONEDNN_WEIGHTS_GEMM:
		run_weights_gemm(p, t);
		break;
	case ONEDNN_FOLD_CHECK:
	case ONEDNN_FOLD:
		ct__onednn_run_fold(p, t);
		break;
	case ONEDNN_LOSS:
		run_loss(p, t);
		break;
	case ONEDNN_LOSS_SCALE:
		ct__onednn_scale(t->ptr[0], t->ptr[1], p->pass.opts->scale, t->n);
		break;
	case ONEDNN_OUTPUT:
		memcpy(p->pass.batch->y, t->ptr[0], (size_t)p->pass.batch->n * t->n * sizeof(float));
		break;
	case ONEDNN_OUTPUT_GRADIENT:
		memcpy(t->ptr[0], p->pass.opts->dy, t->n * sizeof(float));
		break;
	case ONEDNN_INPUT_GRADIENT:
		memcpy(p->pass.opts->dx, t->ptr[0], t->n * sizeof(float));
		break;
	case ONEDNN_SLICE_DONE:
		return ct__net_slice_done(p->base.net, p->pass.opts, p->base.net->slice_of[t->n]);
	}
	return CT_OK;
}

enum ct_status ct__onednn_run(struct onednn_program *p, int begin, int end)
{
	const bool backward = begin > 0;

	ct_parallel_use_threads(p->base.net->engine->threads);
	for (int i = (int)begin; i < (int)end; i++) {
		const struct onednn_task *t = &p->tasks[i];

		if (t->when_stale && !p->values[t->node].fold.stale)
			continue;
		int64_t start = p->base.profile ? ct_now_ns() : 0;
		CT_TRY(run_task(p, t));
		if (p->base.profile && t->kind != ONEDNN_SLICE_DONE) /* its time is spent in communication */
			ct__program_add_time(&p->base, t->node, backward, start, ct_now_ns());
	}
	p->pass.tasks_done = end;
	return CT_OK;
}
