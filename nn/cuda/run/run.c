/* Posts the tasks of a pass; the host does not wait. Arguments that change from step to step are in device memory.
 * Those that depend on the batch (valid rows, addresses) are set in a copy of the arguments when a task is posted, so a
 * recording keeps them: it may be posted again only for batches of the same form. Arrays in device memory are read
 * where they are, instead of through the buffers of the copies.
 *
 * Folded weights are computed again if parameters or statistics have changed, or if another program has used the
 * memory. Before each pass, pointers are set again if memory has moved, also before a backward pass: a program of
 * another context may have enlarged the workspace after the forward pass. */
#include "nn/cuda/run/run.h"

#include <stdio.h>
#include <string.h>

#include "base/device/cuda_check.h"
#include "nn/cuda/run/profile.h"
#include "nn/host/host.h"

/* What the tasks of one pass read besides their own arguments. */
struct pass {
	struct cuda_program *p;
	const struct ct_batch *batch; /* forward */
	struct ct_metrics *metrics;
	const struct ct_backward_opts *opts; /* backward */
	bool fold;                           /* the folded weights are not valid */
	ct_stream *on;
	cudaStream_t stream; /* on->handle */
};

/* Returns NULL if the batch is not mixed, or has the other kind of input, or is read by the kernels where it is. */
static const void *array_in(const struct pass *pass, enum cuda_array which)
{
	const struct ct_batch *b = pass->batch;

	if (which == CUDA_BACKWARD_DY)
		return pass->opts->dy;
	if (b->on_device)
		return NULL;
	switch (which) {
	case CUDA_BATCH_X:
		return b->x;
	case CUDA_BATCH_ROWS:
		return b->rows;
	case CUDA_BATCH_LABELS:
		return b->labels;
	case CUDA_BATCH_LABELS_B:
		return b->labels_b;
	case CUDA_BATCH_MIX:
		return b->mix;
	case CUDA_BATCH_TARGETS:
		return b->targets;
	case CUDA_BATCH_Y: /* these are written */
	case CUDA_BACKWARD_DX:
	case CUDA_BACKWARD_DY:
		break;
	}
	return NULL;
}

static int rows_of(const struct pass *pass)
{
	return pass->batch ? pass->batch->n : pass->p->base.n;
}

static enum ct_status run_copy_in(const struct pass *pass, const struct cuda_task *t)
{
	const void *from = array_in(pass, t->copy.array);
	const ct_engine *e = pass->p->base.net->engine;

	if (!from)
		return CT_OK;
	return ct_device_copy(e->device, t->copy.at, from, t->copy.row_bytes * (size_t)rows_of(pass), e->stream);
}

static enum ct_status run_copy_out(const struct pass *pass, const struct cuda_task *t)
{
	float *to = t->copy.array == CUDA_BATCH_Y ? pass->batch->y : pass->opts->dx;
	const ct_engine *e = pass->p->base.net->engine;

	return ct_device_copy(e->device, to, t->copy.at, t->copy.row_bytes * (size_t)rows_of(pass), e->stream);
}

static enum ct_status run_loss(const struct pass *pass, const struct cuda_task *t)
{
	struct ct__k_loss_args a = t->loss;

	a.n_valid = pass->batch->n;
	a.class_weights = ct__program_class_weights(&pass->p->base);
	a.metrics = (struct ct__k_metrics *)pass->metrics;
	if (pass->batch->on_device && !pass->batch->rows) {
		a.labels = pass->batch->labels;
		a.labels_b = pass->batch->labels_b;
		a.mix = pass->batch->mix;
		a.targets = pass->batch->targets;
	}
	if (!pass->batch->rows && !pass->batch->labels_b) {
		a.labels_b = NULL;
		a.mix = NULL;
	}
	return ct_cuda_launched(pass->on, ct__k_loss(&a, pass->stream), "loss");
}

static enum ct_status run_input(const struct pass *pass, const struct cuda_task *t)
{
	struct ct__k_input_args a = t->input;

	if (!pass->batch->x)
		return CT_OK;
	a.n_valid = pass->batch->n;
	if (pass->batch->on_device)
		a.x = pass->batch->x;
	return ct_cuda_launched(pass->on, ct__k_input(&a, pass->stream), "input");
}

static enum ct_status run_gather(const struct pass *pass, const struct cuda_task *t)
{
	const struct ct_net_data *data = &pass->p->base.net->data[pass->p->base.mode];
	struct ct__k_gather_args a = t->gather;

	if (!pass->batch->rows)
		return CT_OK;
	a.n_valid = pass->batch->n;
	a.samples = data->samples;
	if (pass->batch->on_device)
		a.rows = pass->batch->rows;
	memcpy(a.fill, data->fill, sizeof(a.fill));
	return ct_cuda_launched(pass->on, ct__k_gather(&a, pass->stream), "input");
}

/* Forward and backward of a dropout need the position of the batch; backward has it from the forward pass. */
static enum ct_status run_dropout(const struct pass *pass, struct cuda_task *t)
{
	if (pass->batch)
		pass->p->first_row = pass->batch->first;
	t->dropout.first = pass->p->first_row;
	return ct_cuda_launched(pass->on, ct__k_dropout(&t->dropout, pass->stream), "dropout");
}

static enum ct_status run_plan(const struct pass *pass, const struct cuda_task *t)
{
	const struct cuda_engine *e = (const struct cuda_engine *)pass->p->base.net->engine;
	const struct ct__timing where = {
		.device = e->base.device, .stream = pass->on, .handle = e->cudnn, .target = e->target};

	CT_TRY(ct__cudnn_choices_execute(e->choices, t->plan.choice, &where, t->plan.pack));
	return ct_cuda_launched(pass->on, cudaSuccess, "cuDNN");
}

static enum ct_status run_loss_scale(const struct pass *pass, const struct cuda_task *t)
{
	struct ct__k_convert_args a = t->convert;

	a.scale = pass->opts->scale;
	return ct_cuda_launched(pass->on, ct__k_convert(&a, pass->stream), "loss gradient");
}

static enum ct_status run_task(const struct pass *pass, struct cuda_task *t)
{
	const ct_net *net = pass->p->base.net;
	cudaStream_t s = pass->stream;

	switch (t->kind) {
	case CUDA_COPY_IN:
		return run_copy_in(pass, t);
	case CUDA_COPY_OUT:
		return run_copy_out(pass, t);
	case CUDA_INPUT:
		return run_input(pass, t);
	case CUDA_GATHER:
		return run_gather(pass, t);
	case CUDA_OUTPUT:
		return ct_cuda_launched(pass->on, ct__k_output(&t->output, s), "output");
	case CUDA_INPUT_BACKWARD:
		return ct_cuda_launched(pass->on, ct__k_output(&t->output, s), "gradient of the input");
	case CUDA_OUTPUT_BACKWARD:
		return ct_cuda_launched(pass->on, ct__k_input(&t->input, s), "gradient of the output");
	case CUDA_PLAN:
		return run_plan(pass, t);
	case CUDA_MAP:
		return ct_cuda_launched(pass->on, ct__k_map(&t->map, s), "element-wise operation");
	case CUDA_CONVERT:
		return ct_cuda_launched(pass->on, ct__k_convert(&t->convert, s), "conversion");
	case CUDA_LOSS_SCALE:
		return run_loss_scale(pass, t);
	case CUDA_BIAS:
		return ct_cuda_launched(pass->on, ct__k_bias(&t->bias, s), "bias");
	case CUDA_GROUPS:
		return ct_cuda_launched(pass->on, ct__k_groups(&t->groups, s), "gradient of groups");
	case CUDA_FOLD:
		return !pass->fold ? CT_OK
				   : ct_cuda_launched(pass->on, ct__k_fold(&t->fold, s), "folding of a batch norm");
	case CUDA_BIAS_BACKWARD:
		return ct_cuda_launched(pass->on, ct__k_bias_backward(&t->bias_backward, s), "bias gradient");
	case CUDA_NORM_SUMS:
		return ct_cuda_launched(pass->on, ct__k_norm_sums(&t->norm, s), "batch norm statistics");
	case CUDA_NORM_SYNC:
		return ct_norm_sync(net, cuda_node(pass->p, t->node), t->sync.sums, t->sync.n);
	case CUDA_NORM_FINALIZE:
		return ct_cuda_launched(pass->on, ct__k_norm_finalize(&t->norm, s), "batch norm statistics");
	case CUDA_NORM_RUNNING:
		return ct_cuda_launched(pass->on, ct__k_norm_running(&t->norm, s), "running statistics");
	case CUDA_NORM_APPLY:
		return ct_cuda_launched(pass->on, ct__k_norm_apply(&t->norm, s), "batch norm");
	case CUDA_NORM_BACKWARD_SUMS:
		return ct_cuda_launched(pass->on, ct__k_norm_backward_sums(&t->norm, s), "batch norm gradient");
	case CUDA_NORM_BACKWARD_DATA:
		return ct_cuda_launched(pass->on, ct__k_norm_backward_data(&t->norm, s), "batch norm gradient");
	case CUDA_POOL:
		return ct_cuda_launched(pass->on, ct__k_pool(&t->pool, s), "pooling");
	case CUDA_POOL_BACKWARD:
		return ct_cuda_launched(pass->on, ct__k_pool_backward(&t->pool, s), "pooling gradient");
	case CUDA_LOSS:
		return run_loss(pass, t);
	case CUDA_DROPOUT:
		return run_dropout(pass, t);
	case CUDA_SLICE_DONE:
		return ct__net_slice_done(pass->p->base.net, pass->opts, net->slice_of[t->param]);
	}
	return CT_OK;
}

static enum ct_status run_tasks(const struct pass *pass, size_t begin, size_t end)
{
	pass->p->n_run = end;
	CT_TRY(ct__cuda_profile_begin(pass->p, begin > 0));
	for (size_t i = begin; i < end; i++) {
		struct cuda_task *t = &pass->p->tasks[i];

		ct_stream_note(pass->on, cuda_node(pass->p, t->node)->name);
		if (run_task(pass, t) < 0)
			return ct_error_wrap("%s", cuda_node(pass->p, t->node)->name);
		CT_TRY(ct__cuda_profile_task(pass->p, i));
	}
	ct_stream_note(pass->on, NULL);
	return CT_OK;
}

/* Folded weights are in the memory that programs share, so other programs overwrite them. */
static bool must_fold(struct cuda_program *p)
{
	const ct_net *net = p->base.net;
	const uint64_t params = ct_arena_generation(net->params), buffers = ct_arena_generation(net->buffers);
	const bool valid =
		net->ran[p->base.context] == &p->base && p->folded_params == params && p->folded_buffers == buffers;

	p->folded_params = params;
	p->folded_buffers = buffers;
	return !valid;
}

enum ct_status ct__cuda_forward(ct_program *base, const struct ct_batch *b, struct ct_metrics *m)
{
	struct cuda_program *p = (struct cuda_program *)base;
	struct pass pass = {
		.p = p, .batch = b, .metrics = m, .on = base->net->engine->stream, .stream = cuda_stream(base->net)};

	CT_TRY(ct__cuda_refresh_weights(base->net));
	CT_TRY(ct__cuda_take_memory(p));
	pass.fold = must_fold(p);
	return run_tasks(&pass, 0, p->n_forward);
}

enum ct_status ct__cuda_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads)
{
	struct cuda_program *p = (struct cuda_program *)base;
	const struct pass pass = {
		.p = p, .opts = opts, .on = base->net->engine->stream, .stream = cuda_stream(base->net)};

	CT_TRY(ct__cuda_take_memory(p)); /* a program of another context may have moved the workspace */
	CT_TRY(ct__cuda_bind_grads(p, grads));
	return run_tasks(&pass, p->n_forward, p->n_tasks);
}
