/* The table of the reference engine, its programs and the loop of the forward pass. Nothing is fused, shared or reused:
 * every value and gradient has its own memory, so all can be read after a pass, except that of the loss. Parameters are
 * stored in the logical layout. One thread computes; the number of threads of the engine is ignored. Work is posted to
 * the stream node by node, which needs a device that can run host code. */
#include "nn/ref/ref_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "nn/host/host.h"

static bool ref_available(char *why, size_t why_len)
{
	(void)why;
	(void)why_len;
	return true;
}

static const char *ref_version(void)
{
	return "reference loops";
}

static enum ct_status ref_open(ct_device *device, int threads, ct_engine **out)
{
	(void)device;
	(void)threads; /* ignored: this engine uses one thread */
	CT_TRY_ALLOC(*out = CT_NEW(ct_engine));
	return CT_OK;
}

/* Each operation is a host function posted to the stream, so the device must be able to run host code. */
static bool ref_supports(const ct_device *d)
{
	return ct_device_caps(d)->host_code;
}

static void ref_close(ct_engine *e)
{
	ct_free(e);
}

static enum ct_status ref_net_open(ct_net *net)
{
	for (int i = 0; i < ct_graph_n_params(net->graph); i++)
		net->elems[i] = ct_graph_param(net->graph, i)->n;
	return CT_OK;
}

static void ref_net_close(ct_net *net)
{
	(void)net;
}

static enum ct_status ref_pack(const ct_net *net, int param, const float *logical, float *slice)
{
	memcpy(slice, logical, ct_graph_param(net->graph, param)->n * sizeof(float));
	return CT_OK;
}

static enum ct_status ref_unpack(const ct_net *net, int param, const float *slice, float *logical)
{
	memcpy(logical, slice, ct_graph_param(net->graph, param)->n * sizeof(float));
	return CT_OK;
}

static void ref_program_destroy(ct_program *base)
{
	struct ref_program *p = (struct ref_program *)base;

	for (int i = 0; p->values && i < ct_graph_n_nodes(base->graph); i++) {
		ct_free(p->values[i].y);
		ct_free(p->values[i].dy);
		ct_free(p->values[i].mask);
		ct_free(p->values[i].stat);
		ct_free(p->values[i].argmax);
	}
	ct_free(p->values);
	ct_free(p->dlogits);
	ct_free(p->acc);
	ct_free(p);
}

static enum ct_status alloc_value(struct ref_program *p, int id, size_t n, size_t *bytes)
{
	const struct ct_node *node = ct_graph_node(p->base.graph, id);
	struct value *v = &p->values[id];
	bool train = p->base.mode == CT_TRAIN;

	v->elems = (size_t)node->shape.c * (size_t)node->shape.h * (size_t)node->shape.w;
	CT_TRY_ALLOC(v->y = CT_NEW_ARRAY(float, v->elems *n));
	*bytes += v->elems * n * sizeof(float);
	if (train) {
		CT_TRY_ALLOC(v->dy = CT_NEW_ARRAY(float, v->elems *n));
		*bytes += v->elems * n * sizeof(float);
	}
	if (node->op == CT_OP_DROPOUT && train) {
		CT_TRY_ALLOC(v->mask = CT_NEW_ARRAY(float, v->elems *n));
		*bytes += v->elems * n * sizeof(float);
	}
	if (node->op == CT_OP_DROP_PATH && train)
		CT_TRY_ALLOC(v->mask = CT_NEW_ARRAY(float, n));
	if (node->op == CT_OP_BATCH_NORM)
		CT_TRY_ALLOC(v->stat = CT_NEW_ARRAY(double, CT_BATCH_NORM_STATS(node->shape.c)));
	if (node->op == CT_OP_MAX_POOL) {
		CT_TRY_ALLOC(v->argmax = CT_NEW_ARRAY(int32_t, v->elems *n));
		*bytes += v->elems * n * sizeof(int32_t);
	}
	return CT_OK;
}

static enum ct_status alloc_program(struct ref_program *p)
{
	const ct_graph *g = p->base.graph;
	size_t n = (size_t)p->base.n, largest = 1;
	int n_nodes = ct_graph_n_nodes(g);

	CT_TRY_ALLOC(p->values = CT_NEW_ARRAY(struct value, (size_t)n_nodes));
	for (int i = 0; i < n_nodes; i++) {
		CT_TRY(alloc_value(p, i, n, &p->base.memory.activations));
		largest = p->values[i].elems > largest ? p->values[i].elems : largest;
	}
	const struct ct_node *loss = ct_graph_node(g, ct_graph_loss(g));
	CT_TRY_ALLOC(p->dlogits = CT_NEW_ARRAY(float, p->values[loss->in[0]].elems *n));
	CT_TRY_ALLOC(p->acc = CT_NEW_ARRAY(double, largest));
	p->base.memory.workspace = largest * sizeof(double);
	p->base.memory.activations_unplanned = p->base.memory.activations;
	return CT_OK;
}

/* Programs share no memory, so contexts make no difference. */
static enum ct_status ref_program_create(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
					 ct_program **out)
{
	struct ref_program *p;

	CT_TRY_ALLOC(p = CT_NEW(struct ref_program));
	p->base.net = net;
	p->base.graph = g;
	p->base.n = n;
	p->base.mode = mode;
	p->base.context = context;
	enum ct_status st = alloc_program(p);
	if (st < 0) {
		ref_program_destroy(&p->base);
		return st;
	}
	*out = &p->base;
	return CT_OK;
}

static void load_input(const struct ref_program *p, const struct ct_batch *b)
{
	const struct ct_net_opts *o = &p->base.net->opts;
	struct ct_shape s = ct_graph_node(p->base.graph, 0)->shape;
	float *x = p->values[0].y;

	if (o->input == CT_INPUT_F32_NCHW) {
		memcpy(x, b->x, (size_t)b->n * p->values[0].elems * sizeof(float));
		return;
	}
	const uint8_t *bytes = b->x;
	for (int i = 0; i < b->n; i++) {
		for (int pos = 0; pos < s.h * s.w; pos++) {
			for (int c = 0; c < s.c; c++) {
				float v = (float)*bytes++ / 255.0f;

				x[((size_t)i * (size_t)s.c + (size_t)c) * (size_t)(s.h * s.w) + (size_t)pos] =
					(v - o->mean[c]) / o->std[c];
			}
		}
	}
}

static enum ct_status run_input(const void *args)
{
	const struct op *op = args;

	load_input(op->p, &op->batch);
	return CT_OK;
}

static enum ct_status run_forward(const void *args)
{
	const struct op *op = args;

	ct__ref_op(ct_graph_node(op->p->base.graph, op->id)->op)->forward(op);
	return CT_OK;
}

static enum ct_status ref_forward(ct_program *base, const struct ct_batch *b, struct ct_metrics *m)
{
	struct op op = {.p = (struct ref_program *)base, .batch = *b, .metrics = m};

	CT_TRY(post(&op, run_input));
	for (op.id = 1; op.id < ct_graph_n_nodes(base->graph); op.id++) {
		int64_t start = base->profile ? ct_now_ns() : 0;
		const struct ref_op *row = ct__ref_op(ct_graph_node(base->graph, op.id)->op);

		CT_TRY(row->post_forward ? row->post_forward(&op) : post(&op, run_forward));
		if (base->profile)
			ct__program_add_time(base, op.id, false, start, ct_now_ns());
	}
	return CT_OK;
}

static enum ct_status ref_read(ct_program *base, int node, bool gradient, float *out)
{
	const struct ref_program *p = (struct ref_program *)base;
	const struct value *v = &p->values[node];

	if (node == ct_graph_loss(base->graph) || (gradient && base->mode != CT_TRAIN))
		return CT_FAIL(CT_UNSUPPORTED, "%s: its %s is not stored", ct_graph_node(base->graph, node)->name,
			       gradient ? "gradient" : "value");
	memcpy(out, gradient ? v->dy : v->y, v->elems * (size_t)base->rows * sizeof(float));
	return CT_OK;
}

static unsigned ref_computes(enum ct_op op)
{
	return ct__ref_op(op)->precisions;
}

const struct ct_engine_ops ct__engine_ops_ref = {
	.name = "ref",
	.available = ref_available,
	.version = ref_version,
	.open = ref_open,
	.close = ref_close,
	.net_open = ref_net_open,
	.net_close = ref_net_close,
	.pack = ref_pack,
	.unpack = ref_unpack,
	.program_create = ref_program_create,
	.program_destroy = ref_program_destroy,
	.forward = ref_forward,
	.backward = ct__ref_backward,
	.read = ref_read,
	.supports = ref_supports,
	.computes = ref_computes,
	.stages = true,
};
