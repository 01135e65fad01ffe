/* The order of the slices is what engines, optimizers and the reducer agree on. It is the order in which backward
 * passes complete gradients: nodes from last to first, and in a node the weight before the bias. Engines must report
 * slices in this order (ct__net_slice_done). Slices of a 16-bit type come first and untrained ones last, so that each
 * type is one range of the gradient arena, and the arena ends before the slices without gradients. Padded sizes must be
 * known before slices can be placed, so the engine's net_open runs first.
 *
 * To accumulate, an engine writes the gradients of a micro-batch to the scratch arena. Each slice is added to the
 * gradient arena right before grad_ready is called for it, so the reducer always sees the complete sum. */
#include "nn/engine_impl.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define ALIGN_ELEMS 16 /* 64 bytes: slices start on cache lines */

static size_t align_up(size_t n)
{
	return (n + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
}

/* Adds the slice of a parameter if its gradient is summed in type t; there is none if the slice is not trained. */
static void add_slice(ct_net *net, int param, bool trained, enum ct_dtype t)
{
	const bool weight = param >= 0 && ct_graph_param(net->graph, param)->kind == CT_PARAM_WEIGHT;

	if (param < 0 || t != (weight && trained ? net->opts.reduce_type : CT_F32))
		return;
	net->slice_of[param] = net->n_slices;
	net->slices[net->n_slices++] =
		(struct ct_slice){.offset = net->arena_elems, .n = net->elems[param], .param = param, .dtype = t};
	net->arena_elems = align_up(net->arena_elems + net->elems[param]);
}

/* Backward visits the nodes from last to first. Within a node, it finishes the weight before the bias. */
static void add_slices(ct_net *net, bool trained, enum ct_dtype t)
{
	for (int id = ct_graph_n_nodes(net->graph) - 1; id >= 0; id--) {
		const struct ct_node *node = ct_graph_node(net->graph, id);

		if (ct_graph_trains(net->graph, id) != trained)
			continue;
		add_slice(net, node->weight, trained, t);
		add_slice(net, node->bias, trained, t);
	}
}

static void plan_slices(ct_net *net)
{
	if (net->opts.reduce_type != CT_F32)
		add_slices(net, true, net->opts.reduce_type);
	add_slices(net, true, CT_F32);
	net->n_trained = net->n_slices;
	net->grad_elems = net->arena_elems;
	add_slices(net, false, CT_F32);
	CT_ASSERT(net->n_slices == ct_graph_n_params(net->graph));
	for (int i = 0; i < ct_graph_n_buffers(net->graph); i++) {
		net->buffer_offset[i] = net->buffer_elems;
		net->buffer_elems += ct_graph_buffer(net->graph, i)->n;
	}
}

static enum ct_status alloc_arena(ct_net *net, const char *purpose, size_t elems, ct_arena **out, size_t *counter)
{
	ct_device_purpose(net->engine->device, purpose);
	CT_TRY(ct_arena_create(net->engine->device, CT_F32, elems, out));
	ct_device_purpose(net->engine->device, NULL);
	*counter += ct_arena_bytes(*out);
	return CT_OK;
}

static enum ct_status alloc_state(ct_net *net)
{
	void *p;

	CT_TRY(ct_device_mem_alloc(net->engine->device, sizeof(*net->state), true, &p));
	net->state = p;
	CT_TRY(ct_device_host_alloc(net->engine->device, sizeof(*net->taken), &p));
	net->taken = p;
	return CT_OK;
}

enum ct_status ct__net_set_loss_scale(ct_net *net, const struct ct_loss_scale *scale)
{
	ct_device *d = net->engine->device;
	enum ct_status st;
	void *from;

	CT_TRY(ct_device_host_alloc(d, sizeof(*scale), &from));
	memcpy(from, scale, sizeof(*scale));
	st = ct_device_copy(d, &net->state->loss_scale, from, sizeof(*scale), net->engine->stream);
	if (st == CT_OK)
		st = ct_stream_sync(net->engine->stream, CT_FOREVER);
	ct_device_host_free(d, from);
	return st;
}

static enum ct_status check_opts(const struct ct_net_opts *o, struct ct_shape in)
{
	if (o->batch < 1)
		return CT_FAIL(CT_CONFIG, "batch size %d is below 1", o->batch);
	if (o->input != CT_INPUT_U8_NHWC)
		return CT_OK;
	if (in.c > (int)CT_ARRAY_LEN(o->mean))
		return CT_FAIL(CT_CONFIG, "uint8 images have 1 to 4 channels, but the model's input has %d", in.c);
	for (int i = 0; i < in.c; i++) {
		if (!isfinite(o->mean[i]) || !isfinite(o->std[i]) || !(o->std[i] > 0))
			return CT_FAIL(CT_CONFIG, "channel %d: cannot normalize with mean %g and standard deviation %g",
				       i, (double)o->mean[i], (double)o->std[i]);
	}
	return CT_OK;
}

static enum ct_status copy_class_weights(ct_net *net)
{
	const struct ct_node *loss = ct_graph_node(net->graph, ct_graph_loss(net->graph));
	const size_t n = (size_t)net->opts.n_class_weights;

	if (!net->opts.class_weights || !net->opts.train || loss->op != CT_OP_SOFTMAX_XENT)
		return CT_OK;
	if (net->opts.n_class_weights != ct_graph_node(net->graph, loss->in[0])->shape.c)
		return CT_FAIL(CT_BUG, "%zu class weights for %d classes", n,
			       ct_graph_node(net->graph, loss->in[0])->shape.c);
	CT_TRY(ct_arena_create(net->engine->device, CT_F32, n, &net->class_weights));
	return ct_arena_write(net->class_weights, 0, n, net->opts.class_weights, net->engine->stream);
}

static enum ct_status take_plan(ct_net *net)
{
	if (!ct_engine_has_plans(net->engine))
		return CT_OK;
	if (net->opts.plan)
		return ct_net_plan_copy(net->opts.plan, &net->plan);
	return ct_engine_plan(net->engine, net->graph, &net->opts, &net->plan);
}

static enum ct_status net_open(ct_net *net)
{
	size_t n_params = (size_t)ct_graph_n_params(net->graph), n_buffers = (size_t)ct_graph_n_buffers(net->graph);

	CT_TRY_ALLOC(net->ran = CT_NEW_ARRAY(const ct_program *, (size_t)net->opts.contexts));
	CT_TRY_ALLOC(net->elems = CT_NEW_ARRAY(size_t, n_params));
	CT_TRY_ALLOC(net->slices = CT_NEW_ARRAY(struct ct_slice, n_params));
	CT_TRY_ALLOC(net->slice_of = CT_NEW_ARRAY(int, n_params));
	CT_TRY_ALLOC(net->buffer_offset = CT_NEW_ARRAY(size_t, n_buffers));
	CT_TRY(take_plan(net));
	CT_TRY(net->engine->ops->net_open(net));
	net->opened = true;
	plan_slices(net);
	CT_TRY(alloc_state(net));
	CT_TRY(alloc_arena(net, "parameters", net->arena_elems, &net->params, &net->memory.params));
	CT_TRY(alloc_arena(net, "running statistics", net->buffer_elems, &net->buffers, &net->memory.buffers));
	if (net->opts.train) {
		net->owns_grads = true;
		CT_TRY(alloc_arena(net, "gradients", net->grad_elems, &net->grads, &net->memory.grads));
	}
	CT_TRY(copy_class_weights(net));
	if (net->opts.precision == CT_PRECISION_FP16)
		return ct__net_set_loss_scale(net, &(struct ct_loss_scale){.scale = 1});
	return CT_OK;
}

/* The engine's own limits. */
static enum ct_status check_stage(const ct_engine *e, const ct_graph *g, const struct ct_net_opts *o)
{
	const bool stage =
		ct_graph_node(g, ct_graph_loss(g))->op == CT_OP_OUTPUT || o->contexts > 1 || o->input_gradient;

	if (stage && !e->ops->stages)
		return CT_FAIL(CT_UNSUPPORTED, "the engine \"%s\" cannot compute the stages of a pipeline",
			       e->ops->name);
	if (stage && o->precision == CT_PRECISION_FP16) {
		CT_FAIL(CT_UNSUPPORTED,
			"a pipeline cannot compute in precision fp16: its stages would have different loss scales");
		return ct_error_hint("use precision bf16");
	}
	return CT_OK;
}

enum ct_status ct_net_create(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts, ct_net **out)
{
	ct_net *net;

	CT_TRY(check_opts(opts, ct_graph_node(g, 0)->shape));
	CT_TRY(ct_engine_check_precision(e, opts->precision));
	CT_TRY(ct_engine_check_graph(e, g, opts->precision));
	CT_TRY(check_stage(e, g, opts));
	CT_TRY_ALLOC(net = CT_NEW(ct_net));
	net->engine = e;
	net->graph = g;
	net->opts = *opts;
	net->opts.contexts = opts->contexts > 1 ? opts->contexts : 1;
	enum ct_status st = net_open(net);
	net->opts.class_weights = NULL; /* the caller's memory */
	net->opts.plan = NULL;
	if (st < 0) {
		ct_net_destroy(net);
		return st;
	}
	*out = net;
	return CT_OK;
}

void ct_net_destroy(ct_net *net)
{
	if (!net)
		return;
	ct_device *device = net->engine->device;
	CT_ASSERT(net->n_programs == 0);
	if (net->opened)
		net->engine->ops->net_close(net);
	ct_arena_destroy(net->scratch_grads);
	if (net->owns_grads)
		ct_arena_destroy(net->grads);
	ct_arena_destroy(net->class_weights);
	ct_arena_destroy(net->buffers);
	ct_arena_destroy(net->params);
	ct_device_host_free(device, net->taken);
	ct_device_mem_free(device, net->state);
	ct_net_plan_release(&net->plan);
	ct_free(net->buffer_offset);
	ct_free(net->slice_of);
	ct_free(net->slices);
	ct_free(net->elems);
	ct_free(net->ran);
	ct_free(net);
}

enum ct_status ct_net_bind_grads(ct_net *net, ct_arena *grads)
{
	if (!net->opts.train || net->n_programs || ((uintptr_t)ct_arena_at(grads, 0) & 255) ||
	    ct_arena_dtype(grads) != CT_F32 || ct_arena_elems(grads) != net->grad_elems)
		return CT_FAIL(
			CT_BUG,
			"a gradient arena can only be bound to a training net before its first program; it must have "
			"the size of the trained parameters and be aligned to 256 bytes");
	if (net->owns_grads)
		ct_arena_destroy(net->grads);
	net->owns_grads = false;
	net->grads = grads;
	return CT_OK;
}

enum ct_status ct_net_bind_half(ct_net *net, ct_arena *half, bool *writes)
{
	if (!net->opts.train || net->n_programs || ct_arena_dtype(half) != net->opts.reduce_type)
		return CT_FAIL(CT_BUG, "16-bit gradients can only be bound to a training net before its first program");
	*writes = net->engine->ops->writes_half && net->engine->ops->writes_half(net);
	net->half = *writes ? half : NULL;
	return CT_OK;
}

enum ct_status ct_net_bind_data(ct_net *net, enum ct_mode mode, const struct ct_net_data *data)
{
	if (!ct_engine_gathers(net->engine) || net->opts.input != CT_INPUT_U8_NHWC)
		return CT_FAIL(CT_UNSUPPORTED, "the engine \"%s\" reads batches from host memory",
			       net->engine->ops->name);
	net->data[mode] = *data;
	return CT_OK;
}

enum ct_status ct__net_need_scratch(ct_net *net)
{
	if (net->scratch_grads)
		return CT_OK;
	return alloc_arena(net, "gradients", net->grad_elems, &net->scratch_grads, &net->memory.grads);
}

enum ct_status ct__net_slice_done(ct_net *net, const struct ct_backward_opts *opts, int slice)
{
	if (slice >= net->n_trained)
		return CT_OK;
	if (opts->accumulate) {
		const struct ct_slice *s = &net->slices[slice];
		const struct ct_span sum = {net->grads, s->offset, s->n}, part = {net->scratch_grads, s->offset, s->n};

		CT_TRY(net->engine->arenas->add(net, &sum, &part));
	}
	return opts->grad_ready ? opts->grad_ready(opts->user, slice) : CT_OK;
}

enum ct_status ct_net_post_loss(ct_net *net, ct_arena *scalars, size_t i)
{
	ct_arena_touch(scalars);
	return net->engine->arenas->loss(net, ct_arena_at(scalars, i));
}

enum ct_status ct_net_post_conversion(const ct_net *net, const struct ct_conversion *c, ct_stream *s)
{
	return c->n > 0 ? net->engine->arenas->convert(net, c, s) : CT_OK;
}

enum ct_status ct_net_post_step_args(ct_net *net, const struct ct_step_args *args)
{
	return ct_device_copy(net->engine->device, &net->state->step, args, sizeof(*args), net->engine->stream);
}

enum ct_status ct_net_take_metrics(ct_net *net, struct ct_metrics *out)
{
	ct_device *d = net->engine->device;
	ct_stream *s = net->engine->stream;

	CT_TRY(ct_device_copy(d, net->taken, &net->state->metrics, sizeof(*out), s));
	CT_TRY(ct_device_fill(d, &net->state->metrics, 0, sizeof(*out), s));
	CT_TRY(ct_stream_sync(s, CT_FOREVER));
	*out = *net->taken;
	return CT_OK;
}

const ct_graph *ct_net_graph(const ct_net *net)
{
	return net->graph;
}

ct_engine *ct_net_engine(const ct_net *net)
{
	return net->engine;
}

size_t ct_net_arena_elems(const ct_net *net)
{
	return net->arena_elems;
}

ct_arena *ct_net_params(ct_net *net)
{
	return net->params;
}

ct_arena *ct_net_grads(ct_net *net)
{
	return net->grads;
}

int ct_net_n_slices(const ct_net *net)
{
	return net->n_slices;
}

int ct_net_n_trained(const ct_net *net)
{
	return net->n_trained;
}

size_t ct_net_grad_elems(const ct_net *net)
{
	return net->grad_elems;
}

const struct ct_slice *ct_net_slice(const ct_net *net, int i)
{
	CT_ASSERT(i >= 0 && i < net->n_slices);
	return &net->slices[i];
}

ct_arena *ct_net_buffers(ct_net *net)
{
	return net->buffers;
}

void ct_net_memory(const ct_net *net, struct ct_net_memory *out)
{
	*out = net->memory;
}

static float *slice_of(const ct_net *net, const struct ct_mirror *m, int param)
{
	CT_ASSERT(param >= 0 && param < net->n_slices);
	const struct ct_slice *s = &net->slices[net->slice_of[param]];

	CT_ASSERT((m->n == net->arena_elems || m->n == net->grad_elems) && s->offset + s->n <= m->n);
	return (float *)m->data + s->offset;
}

enum ct_status ct_net_export(const ct_net *net, const struct ct_mirror *arena, int param, float *logical)
{
	return net->engine->ops->unpack(net, param, slice_of(net, arena, param), logical);
}

enum ct_status ct_net_import(const ct_net *net, struct ct_mirror *arena, int param, const float *logical)
{
	return net->engine->ops->pack(net, param, logical, slice_of(net, arena, param));
}
