/* The functions of the engine, and the order in which a program is made: lower, plan memory, bind. The arenas of a net
 * need the padded sizes of all weights before there is a program. Therefore the forward pass of the full batch is
 * compiled once and discarded; what remains are the layouts that it has chosen, which all programs use from then on.
 *
 * A thread that saves checkpoints may call onednn_unpack while another one computes. For this, the caches of the
 * context are locked, and a reorder outside of programs runs in a separate stream. The batch is copied, because the
 * backward pass draws masks again when it recomputes values. A value can be read only as long as no later task has
 * overwritten it. */
#include "nn/engine_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/mem.h"
#include "base/parallel.h"
#include "nn/onednn/compile/compile.h"
#include "nn/onednn/compile/ops.h"
#include "nn/onednn/plan/onednn_plan.h"
#include "nn/onednn/program/bind.h"
#include "nn/onednn/run/run.h"

struct onednn_engine {
	ct_engine base;
	ct_dnnl *dnnl;
};

static bool onednn_available(char *why, size_t why_len)
{
#if defined(__aarch64__)
	/* oneDNN 3.7.2 chooses its kernels by the layout. Those for our blocks of 8 channels are for 256 bits, and
	 * compute wrong results with longer registers (found by tests/nn/test_onednn_values.c). */
	const int sve = prctl(PR_SVE_GET_VL); /* < 0: there is no SVE */

	if (sve >= 0 && (sve & PR_SVE_VL_LEN_MASK) > 32) {
		snprintf(why, why_len,
			 "SVE registers of more than 256 bits are not supported (write 32 to "
			 "/proc/sys/abi/sve_default_vector_length)");
		return false;
	}
#endif
	return ct__dnnl_available(why, why_len);
}

static bool onednn_precision(enum ct_precision precision, char *why, size_t why_len)
{
	if (precision != CT_PRECISION_FP32 && precision != CT_PRECISION_BF16) {
		snprintf(why, why_len, "computes in fp32%s; fp16 and tf32 are for GPUs",
			 ct__dnnl_has_bf16() ? " and bf16" : " on this processor");
		return false;
	}
	if (precision == CT_PRECISION_FP32 || ct__dnnl_has_bf16())
		return true;
	snprintf(why, why_len, "(%s) finds no bfloat16 instructions on this processor (avx512_bf16 or amx)",
		 ct__dnnl_version());
	return false;
}

static enum ct_status onednn_open(ct_device *device, int threads, ct_engine **out)
{
	struct onednn_engine *e;

	(void)threads; /* set before every pass, because OpenMP's number of threads belongs to the calling thread */
	(void)device;
	CT_TRY_ALLOC(e = CT_NEW(struct onednn_engine));
	enum ct_status st = ct__dnnl_open(&e->dnnl);
	if (st < 0) {
		ct_free(e);
		return st;
	}
	*out = &e->base;
	return CT_OK;
}

static void onednn_close(ct_engine *base)
{
	struct onednn_engine *e = (struct onednn_engine *)base;

	ct__dnnl_close(e->dnnl);
	ct_free(e);
}

static ct_dnnl *dnnl_of(const ct_net *net)
{
	return ((struct onednn_engine *)net->engine)->dnnl;
}

static enum ct_status onednn_best_layout(ct_engine *e, enum ct_precision precision, enum ct_plan_layout *out)
{
	return ct__onednn_best_layout(((struct onednn_engine *)e)->dnnl, precision, out);
}

static void onednn_program_destroy(ct_program *base)
{
	struct onednn_program *p = (struct onednn_program *)base;

	ct__onednn_unbind(p);
	for (int i = 0; i < p->n_tasks; i++)
		ct__dnnl_call_destroy(p->tasks[i].call);
	ct_free(p->tasks);
	ct_free(p->buffers);
	ct_free(p->values);
	ct_free(p);
}

static enum ct_status program_new(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
				  struct onednn_program **out)
{
	struct onednn_program *p;

	CT_TRY_ALLOC(p = CT_NEW(struct onednn_program));
	p->base.net = net;
	p->base.graph = g;
	p->base.n = n;
	p->base.mode = mode;
	p->base.context = context;
	p->dnnl = dnnl_of(net);
	p->values = CT_NEW_ARRAY(struct onednn_value, (size_t)ct_graph_n_nodes(g));
	if (!p->values) {
		ct_free(p);
		return CT_NOMEM;
	}
	ct_parallel_use_threads(net->engine->threads);
	enum ct_status st = ct__onednn_compile_forward(p);
	if (st < 0) {
		onednn_program_destroy(&p->base);
		return st;
	}
	*out = p;
	return CT_OK;
}

static enum ct_status plain_of(const ct_net *net, int param, const ct_dnnl_desc **out)
{
	const struct ct_param *par = ct_graph_param(net->graph, param);
	const struct onednn_net *impl = net->impl;

	/* The weights of grouped convolutions, and of linear layers on images, have more dimensions in their layout
	 * than in the graph. */
	if (impl->layout[param])
		return ct__dnnl_plain(dnnl_of(net), ct__dnnl_desc_ndims(impl->layout[param]),
				      ct__dnnl_desc_dims(impl->layout[param]), out);
	return ct__dnnl_plain(dnnl_of(net), par->ndim, par->dims, out);
}

static void onednn_net_close(ct_net *net)
{
	struct onednn_net *impl = net->impl;

	ct_free(impl->memory);
	ct_free(impl->layout);
	ct_free(impl);
	net->impl = NULL;
}

/* Compiles the forward pass of the full batch once, to find the layouts of the weights. */
static enum ct_status choose_layouts(ct_net *net)
{
	struct onednn_net *impl = net->impl;
	struct onednn_program *p;

	CT_TRY(program_new(net, net->graph, net->opts.batch, net->opts.train ? CT_TRAIN : CT_EVAL, 0, &p));
	onednn_program_destroy(&p->base);
	for (int i = 0; i < ct_graph_n_params(net->graph); i++) {
		if (!impl->layout[i])
			CT_TRY(plain_of(net, i, &impl->layout[i]));
		net->elems[i] = ct__dnnl_desc_bytes(impl->layout[i]) / sizeof(float);
	}
	return CT_OK;
}

static enum ct_status onednn_net_open(ct_net *net)
{
	struct onednn_net *impl;

	CT_TRY_ALLOC(impl = CT_NEW(struct onednn_net));
	net->impl = impl;
	impl->layout = CT_NEW_ARRAY(const ct_dnnl_desc *, (size_t)ct_graph_n_params(net->graph));
	impl->memory = CT_NEW_ARRAY(struct onednn_memory, (size_t)net->opts.contexts);
	enum ct_status st = impl->layout && impl->memory ? choose_layouts(net) : CT_NOMEM;
	if (st < 0)
		onednn_net_close(net);
	return st;
}

/* Runs one reorder outside of any program, to import, export or read a value. `from` is not written. */
static enum ct_status reorder(ct_dnnl *dnnl, const ct_dnnl_desc *from_desc, const void *from,
			      const ct_dnnl_desc *to_desc, void *to)
{
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_REORDER, .src = from_desc, .dst = to_desc};
	const ct_dnnl_prim *prim;
	ct_dnnl_call *call;
	void *scratch = NULL;

	if (from_desc == to_desc) {
		memcpy(to, from, ct__dnnl_desc_bytes(to_desc));
		return CT_OK;
	}
	CT_TRY(ct__dnnl_prim_get(dnnl, &spec, &prim));
	if (!prim)
		return CT_FAIL(CT_UNSUPPORTED, "%s cannot reorder a tensor", ct__dnnl_version());
	struct ct_dnnl_bind binds[3] = {{CT_DNNL_SRC, (void *)(uintptr_t)from}, {CT_DNNL_DST, to}};
	size_t bytes = ct__dnnl_prim_bytes(prim, CT_DNNL_SCRATCHPAD);
	if (bytes) {
		CT_TRY_ALLOC(scratch = ct_calloc_aligned(64, bytes));
		binds[2] = (struct ct_dnnl_bind){CT_DNNL_SCRATCHPAD, scratch};
	}
	enum ct_status st = ct__dnnl_call_create(dnnl, prim, binds, bytes ? 3 : 2, &call);
	if (st == CT_OK) {
		st = ct__dnnl_call_run_alone(dnnl, call);
		ct__dnnl_call_destroy(call);
	}
	ct_free_aligned(scratch);
	return st;
}

static enum ct_status onednn_pack(const ct_net *net, int param, const float *logical, float *slice)
{
	const struct onednn_net *impl = net->impl;
	const ct_dnnl_desc *plain;

	ct_parallel_use_threads(net->engine->threads);
	CT_TRY(plain_of(net, param, &plain));
	return reorder(dnnl_of(net), plain, logical, impl->layout[param], slice);
}

/* The caller sets the number of threads. A thread that saves checkpoints uses one. */
static enum ct_status onednn_unpack(const ct_net *net, int param, const float *slice, float *logical)
{
	const struct onednn_net *impl = net->impl;
	const ct_dnnl_desc *plain;

	CT_TRY(plain_of(net, param, &plain));
	return reorder(dnnl_of(net), impl->layout[param], slice, plain, logical);
}

static void onednn_layout(const ct_net *net, int param, char *text, size_t len)
{
	const struct onednn_net *impl = net->impl;

	ct__dnnl_desc_text(impl->layout[param], text, len);
}

static enum ct_status onednn_program_create(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
					    ct_program **out)
{
	struct onednn_program *p;
	enum ct_status st;

	CT_TRY(program_new(net, g, n, mode, context, &p));
	if (mode == CT_TRAIN)
		CT_TRY_GOTO(ct__onednn_compile_backward(p), st, fail);
	CT_TRY_GOTO(ct_memory_plan(p->buffers, (size_t)p->n_buffers, ONEDNN_ALIGN, &p->memory), st, fail);
	CT_TRY_GOTO(ct__onednn_bind(p), st, fail);
	p->base.memory.activations_unplanned = p->memory.unplanned_bytes;
	*out = &p->base;
	return CT_OK;
fail:
	onednn_program_destroy(&p->base);
	return st;
}

static enum ct_status onednn_forward(ct_program *base, const struct ct_batch *b, struct ct_metrics *m)
{
	struct onednn_program *p = (struct onednn_program *)base;
	const struct onednn_ref own = {ONEDNN_BUFFER, p->input};
	bool direct =
		base->net->opts.input == CT_INPUT_F32_NCHW && b->n == base->n && ct__onednn_type(p) == CT_DNNL_F32;

	CT_TRY(ct__onednn_take_arena(p));
	p->pass.last = *b;
	p->pass.batch = &p->pass.last;
	p->pass.metrics = m;
	p->pass.not_finite = false;
	CT_TRY(ct__onednn_bind_input(p, direct ? b->x : ct__onednn_at(p, own)));
	return ct__onednn_run(p, 0, p->n_forward);
}

static enum ct_status onednn_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads)
{
	struct onednn_program *p = (struct onednn_program *)base;

	p->pass.opts = opts;
	CT_TRY(ct__onednn_bind_grads(p, grads));
	return ct__onednn_run(p, p->n_forward, p->n_tasks);
}

static enum ct_status onednn_read(ct_program *base, int node, bool gradient, float *out)
{
	struct onednn_program *p = (struct onednn_program *)base;
	const struct ct_node *n = ct_graph_node(base->graph, node);
	const int root = p->values[node].layout.root;
	const struct onednn_value *v = root >= 0 ? &p->values[root] : NULL;
	const int buffer = !v ? -1 : gradient ? v->gradient.buffer : v->layout.buffer;
	const size_t elems = (size_t)n->shape.c * (size_t)n->shape.h * (size_t)n->shape.w;
	const ct_dnnl_desc *plain;
	float *all;

	if (node == ct_graph_loss(base->graph) || buffer < 0 || v->layout.overwritten)
		return CT_FAIL(CT_UNSUPPORTED, "%s: its %s is not stored", n->name, gradient ? "gradient" : "value");
	const bool after_backward = p->pass.tasks_done > p->n_forward;
	if (p->buffers[buffer].lost < p->pass.tasks_done ||
	    (gradient ? v->gradient.gone || !after_backward : v->layout.gone && after_backward))
		return CT_FAIL(CT_UNSUPPORTED, "%s: the memory of its %s has been reused", n->name,
			       gradient ? "gradient" : "value");
	const void *at = root == 0 ? p->binding.input_at : ct__onednn_at(p, (struct onednn_ref){ONEDNN_BUFFER, buffer});
	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(v->layout.desc), ct__dnnl_desc_dims(v->layout.desc),
			      &plain));
	CT_TRY_ALLOC(all = ct_calloc((size_t)base->n * elems, sizeof(float)));
	enum ct_status st = reorder(p->dnnl, v->layout.desc, at, plain, all);
	if (st == CT_OK)
		memcpy(out, all, (size_t)base->rows * elems * sizeof(float));
	ct_free(all);
	return st;
}

static unsigned onednn_computes(enum ct_op op)
{
	return ct__onednn_op(op)->precisions;
}

const struct ct_engine_ops ct__engine_ops_onednn = {
	.name = "onednn",
	.available = onednn_available,
	.version = ct__dnnl_version,
	.open = onednn_open,
	.close = onednn_close,
	.net_open = onednn_net_open,
	.net_close = onednn_net_close,
	.pack = onednn_pack,
	.unpack = onednn_unpack,
	.program_create = onednn_program_create,
	.program_destroy = onednn_program_destroy,
	.forward = onednn_forward,
	.backward = onednn_backward,
	.read = onednn_read,
	.layout = onednn_layout,
	.precision = onednn_precision,
	.computes = onednn_computes,
	.stages = true,
	.best_layout = onednn_best_layout,
	.plan = ct__onednn_plan,
	.can_compute = ct__onednn_can_compute,
};
