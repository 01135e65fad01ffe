#include "nn/engine_impl.h"

#include <math.h>

#include "base/mem.h"

#define ALIGN_ELEMS 16 /* 64 bytes: slices start on cache lines */

static size_t align_up(size_t n)
{
	return (n + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
}

static void add_slice(ct_net *net, int param)
{
	if (param < 0)
		return;
	net->slice_of[param] = net->n_slices;
	net->slices[net->n_slices++] =
		(struct ct_slice){.offset = net->arena_elems, .n = net->elems[param], .param = param};
	net->arena_elems = align_up(net->arena_elems + net->elems[param]);
}

/* Backward visits the nodes from last to first and finishes a node's weight before its bias. */
static void plan_slices(ct_net *net)
{
	for (int id = ct_graph_n_nodes(net->graph) - 1; id >= 0; id--) {
		const struct ct_node *node = ct_graph_node(net->graph, id);
		add_slice(net, node->weight);
		add_slice(net, node->bias);
	}
	CT_ASSERT(net->n_slices == ct_graph_n_params(net->graph));
	for (int i = 0; i < ct_graph_n_buffers(net->graph); i++) {
		net->buffer_offset[i] = net->buffer_elems;
		net->buffer_elems += ct_graph_buffer(net->graph, i)->n;
	}
}

static enum ct_status alloc_arena(ct_net *net, size_t elems, float **out, size_t *counter)
{
	void *p;

	CT_TRY(ct_device_mem_alloc(net->engine->device, (elems ? elems : 1) * sizeof(float), true, &p));
	*out = p;
	*counter += elems * sizeof(float);
	return CT_OK;
}

static enum ct_status check_opts(const struct ct_net_opts *o, struct ct_shape in)
{
	if (o->batch < 1)
		return CT_FAIL(CT_CONFIG, "batch size %d (at least 1)", o->batch);
	if (o->input != CT_INPUT_U8_NHWC)
		return CT_OK;
	if (in.c > (int)CT_ARRAY_LEN(o->mean))
		return CT_FAIL(CT_CONFIG, "byte images have 1 to 4 channels, the model's input has %d", in.c);
	for (int i = 0; i < in.c; i++) {
		if (!isfinite(o->mean[i]) || !isfinite(o->std[i]) || !(o->std[i] > 0))
			return CT_FAIL(CT_CONFIG, "channel %d: mean %g and standard deviation %g can't normalise", i,
				       (double)o->mean[i], (double)o->std[i]);
	}
	return CT_OK;
}

static enum ct_status net_open(ct_net *net)
{
	size_t n_params = (size_t)ct_graph_n_params(net->graph), n_buffers = (size_t)ct_graph_n_buffers(net->graph);

	CT_TRY_ALLOC(net->elems = CT_NEW_ARRAY(size_t, n_params));
	CT_TRY_ALLOC(net->slices = CT_NEW_ARRAY(struct ct_slice, n_params));
	CT_TRY_ALLOC(net->slice_of = CT_NEW_ARRAY(int, n_params));
	CT_TRY_ALLOC(net->buffer_offset = CT_NEW_ARRAY(size_t, n_buffers));
	CT_TRY(net->engine->ops->net_open(net));
	net->opened = true;
	plan_slices(net);
	CT_TRY(alloc_arena(net, net->arena_elems, &net->params, &net->memory.params));
	CT_TRY(alloc_arena(net, net->buffer_elems, &net->buffers, &net->memory.buffers));
	if (net->opts.train) {
		net->owns_grads = true;
		CT_TRY(alloc_arena(net, net->arena_elems, &net->grads, &net->memory.grads));
	}
	return CT_OK;
}

enum ct_status ct_net_create(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts, ct_net **out)
{
	ct_net *net;

	CT_TRY(check_opts(opts, ct_graph_node(g, 0)->shape));
	CT_TRY(ct_engine_check_precision(e, opts->precision));
	CT_TRY_ALLOC(net = CT_NEW(ct_net));
	net->engine = e;
	net->graph = g;
	net->opts = *opts;
	enum ct_status st = net_open(net);
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
	if (net->scratch_grads)
		ct_device_mem_free(device, net->scratch_grads);
	if (net->owns_grads && net->grads)
		ct_device_mem_free(device, net->grads);
	if (net->buffers)
		ct_device_mem_free(device, net->buffers);
	if (net->params)
		ct_device_mem_free(device, net->params);
	ct_free(net->buffer_offset);
	ct_free(net->slice_of);
	ct_free(net->slices);
	ct_free(net->elems);
	ct_free(net);
}

enum ct_status ct_net_bind_grads(ct_net *net, float *grads)
{
	if (!net->opts.train || net->n_programs || ((uintptr_t)grads & 255))
		return CT_FAIL(
			CT_BUG,
			"a gradient arena is bound to a training net before its first program, aligned to 256 bytes");
	if (net->owns_grads)
		ct_device_mem_free(net->engine->device, net->grads);
	net->owns_grads = false;
	net->grads = grads;
	return CT_OK;
}

enum ct_status ct__net_need_scratch(ct_net *net)
{
	if (net->scratch_grads)
		return CT_OK;
	return alloc_arena(net, net->arena_elems, &net->scratch_grads, &net->memory.grads);
}

enum ct_status ct__net_slice_done(ct_net *net, const struct ct_backward_opts *opts, int slice)
{
	if (opts->accumulate) {
		const struct ct_slice *s = &net->slices[slice];
		float *sum = net->grads + s->offset;
		const float *part = net->scratch_grads + s->offset;
		for (size_t i = 0; i < s->n; i++)
			sum[i] += part[i];
	}
	return opts->grad_ready ? opts->grad_ready(opts->user, slice) : CT_OK;
}

const ct_graph *ct_net_graph(const ct_net *net)
{
	return net->graph;
}

size_t ct_net_arena_elems(const ct_net *net)
{
	return net->arena_elems;
}

float *ct_net_params(ct_net *net)
{
	return net->params;
}

float *ct_net_grads(ct_net *net)
{
	return net->grads;
}

int ct_net_n_slices(const ct_net *net)
{
	return net->n_slices;
}

const struct ct_slice *ct_net_slice(const ct_net *net, int i)
{
	CT_ASSERT(i >= 0 && i < net->n_slices);
	return &net->slices[i];
}

float *ct_net_buffers(ct_net *net)
{
	return net->buffers;
}

size_t ct_net_buffers_elems(const ct_net *net)
{
	return net->buffer_elems;
}

void ct_net_memory(const ct_net *net, struct ct_net_memory *out)
{
	*out = net->memory;
}

enum ct_status ct_net_export(const ct_net *net, const float *arena, int param, float *logical)
{
	CT_ASSERT(param >= 0 && param < net->n_slices);
	return net->engine->ops->unpack(net, param, arena + net->slices[net->slice_of[param]].offset, logical);
}

enum ct_status ct_net_import(const ct_net *net, float *arena, int param, const float *logical)
{
	CT_ASSERT(param >= 0 && param < net->n_slices);
	return net->engine->ops->pack(net, param, logical, arena + net->slices[net->slice_of[param]].offset);
}
