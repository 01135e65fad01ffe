#include "tests/soft_gpu/cudnn/build.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const struct library linked_library = {
	.create = cudnnBackendCreateDescriptor,
	.destroy = cudnnBackendDestroyDescriptor,
	.set = cudnnBackendSetAttribute,
	.get = cudnnBackendGetAttribute,
	.finalize = cudnnBackendFinalize,
	.last_error = cudnnGetLastErrorString,
	.version = cudnnGetVersion,
};

const char *load_library(const char *path, struct library *out)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return dlerror();
	*(void **)&out->create = dlsym(handle, "cudnnBackendCreateDescriptor");
	*(void **)&out->destroy = dlsym(handle, "cudnnBackendDestroyDescriptor");
	*(void **)&out->set = dlsym(handle, "cudnnBackendSetAttribute");
	*(void **)&out->get = dlsym(handle, "cudnnBackendGetAttribute");
	*(void **)&out->finalize = dlsym(handle, "cudnnBackendFinalize");
	*(void **)&out->last_error = dlsym(handle, "cudnnGetLastErrorString");
	*(void **)&out->version = dlsym(handle, "cudnnGetVersion");
	return out->create && out->destroy && out->set && out->get && out->finalize && out->last_error && out->version
		       ? NULL
		       : "a function is missing";
}

void builder_begin(struct builder *b, const struct library *lib)
{
	memset(b, 0, sizeof(*b));
	b->lib = lib;
	b->next_uid = 1;
}

void builder_end(struct builder *b)
{
	for (int i = b->n - 1; i >= 0; i--)
		b->lib->destroy(b->all[i]);
	b->n = 0;
}

cudnnBackendDescriptor_t make(struct builder *b, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d = NULL;

	if (b->n == sizeof(b->all) / sizeof(*b->all))
		abort();
	if (!b->status)
		b->status = b->lib->create(type, &d);
	if (!b->status)
		b->all[b->n++] = d;
	return d;
}

void set(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	 cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	if (!b->status)
		b->status = b->lib->set(d, name, type, n, values);
}

void set_i64(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value)
{
	set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

void set_type(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnDataType_t value)
{
	set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void set_ref(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	     cudnnBackendDescriptor_t value)
{
	set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void finalize(struct builder *b, cudnnBackendDescriptor_t d)
{
	if (!b->status)
		b->status = b->lib->finalize(d);
}

cudnnBackendDescriptor_t make_tensor(struct builder *b, const struct tensor_spec *t)
{
	const int64_t *d = t->dims, nhwc[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
	cudnnBackendDescriptor_t x = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

	set_type(b, x, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
	set(b, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d);
	set(b, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->strides ? t->strides : nhwc);
	set_i64(b, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, t->uid ? t->uid : b->next_uid++);
	set_i64(b, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t->alignment ? t->alignment : 16);
	set(b, x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual);
	finalize(b, x);
	return x;
}

cudnnBackendDescriptor_t simple_tensor(struct builder *b, int64_t n, int64_t c, int64_t h, int64_t w,
				       cudnnDataType_t type)
{
	return make_tensor(b, &(struct tensor_spec){.dims = {n, c, h, w}, .type = type});
}

cudnnBackendDescriptor_t virtual_tensor(struct builder *b, int64_t n, int64_t c, int64_t h, int64_t w,
					cudnnDataType_t type)
{
	return make_tensor(b, &(struct tensor_spec){.dims = {n, c, h, w}, .type = type, .is_virtual = true});
}

cudnnBackendDescriptor_t make_window(struct builder *b, const struct conv_spec *s)
{
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnBackendDescriptor_t c = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

	set_type(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
	set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_i64(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, s->pad);
	set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, s->pad);
	set(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, s->stride);
	set(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, s->dilation);
	finalize(b, c);
	return c;
}

static const struct {
	cudnnBackendDescriptorType_t op;
	cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} directions[] = {
	[FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
		     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
		     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
	[DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
	[FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
		    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
		    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
		    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
		    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

cudnnBackendDescriptor_t make_scaled_conv(struct builder *b, enum direction way, cudnnBackendDescriptor_t x,
					  cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y,
					  const struct conv_spec *s, float alpha, float beta)
{
	cudnnBackendDescriptor_t window = make_window(b, s), op = make(b, directions[way].op);

	set_ref(b, op, directions[way].conv, window);
	set_ref(b, op, directions[way].x, x);
	set_ref(b, op, directions[way].w, w);
	set_ref(b, op, directions[way].y, y);
	set(b, op, directions[way].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
	set(b, op, directions[way].beta, CUDNN_TYPE_FLOAT, 1, &beta);
	finalize(b, op);
	return op;
}

cudnnBackendDescriptor_t make_conv(struct builder *b, enum direction way, cudnnBackendDescriptor_t x,
				   cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y, const struct conv_spec *s)
{
	return make_scaled_conv(b, way, x, w, y, s, 1, 0);
}

cudnnBackendDescriptor_t make_pointwise(struct builder *b, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
					cudnnBackendDescriptor_t second, cudnnBackendDescriptor_t third,
					cudnnBackendDescriptor_t y)
{
	bool backward = mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ;
	cudnnBackendDescriptor_t part = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

	set(b, part, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(b, part, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
	finalize(b, part);
	op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_ref(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
	if (x)
		set_ref(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (second)
		set_ref(b, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
			second);
	if (third)
		set_ref(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, third);
	if (y)
		set_ref(b, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
			y);
	finalize(b, op);
	return op;
}

cudnnBackendDescriptor_t make_statistics(struct builder *b, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t sum,
					 cudnnBackendDescriptor_t square_sum)
{
	const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
	cudnnBackendDescriptor_t op = make(b, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);

	set(b, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
	set_type(b, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
	set_ref(b, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
	set_ref(b, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
	set_ref(b, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_sum);
	finalize(b, op);
	return op;
}

cudnnBackendDescriptor_t make_graph(struct builder *b, int n, const cudnnBackendDescriptor_t *ops)
{
	cudnnBackendDescriptor_t g = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

	set(b, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
	finalize(b, g);
	return g;
}

cudnnBackendDescriptor_t make_device(struct builder *b, const char *json)
{
	cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	const int32_t id = 0;

	if (json)
		set(b, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
	else
		set(b, d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id);
	finalize(b, d);
	return d;
}

int64_t propose(struct builder *b, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
		cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs)
{
	cudnnBackendDescriptor_t h = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t n = 0;

	set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	set(b, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
	finalize(b, h);
	for (int i = 0; i < MAX_CONFIGS; i++)
		configs[i] = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	if (!b->status)
		b->status = b->lib->get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS,
					&n, configs);
	return b->status ? 0 : n;
}

static unsigned notes_of(const struct builder *b, cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
			 cudnnBackendAttributeType_t type)
{
	int notes[16];
	int64_t n = 0;
	unsigned bits = 0;

	if (b->lib->get(engine, name, type, 16, &n, notes))
		return 0;
	for (int64_t i = 0; i < n && i < 16; i++)
		bits |= 1u << notes[i];
	return bits;
}

cudnnStatus_t make_plan(struct builder *b, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t device,
			struct plan *out)
{
	cudnnBackendDescriptor_t engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR),
				 plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	cudnnStatus_t before = b->status, st;
	int64_t n;

	*out = (struct plan){.engine = -1, .workspace = -1};
	if (before)
		return before;
	b->status = b->lib->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
	if (!b->status)
		b->status = b->lib->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &out->engine);
	if (!b->status)
		out->numerical = notes_of(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
	if (!b->status)
		out->behavior = notes_of(b, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
	set_ref(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	set_ref(b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
	finalize(b, plan);
	if (!b->status)
		b->status = b->lib->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
					&out->workspace);
	if (!b->status)
		out->descriptor = plan;
	st = b->status;
	b->status = before;
	return st;
}

struct plan find_plan(struct builder *b, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
		      cudnnBackendHeurMode_t mode, unsigned with, unsigned without)
{
	cudnnBackendDescriptor_t configs[MAX_CONFIGS];
	int64_t n = propose(b, graph, device, mode, configs), n_final = 0;
	struct plan found = {0}, p;

	for (int64_t i = 0; i < n; i++) {
		if (make_plan(b, configs[i], device, &p))
			continue;
		n_final++;
		if (!found.descriptor && (p.numerical & with) == with && !(p.numerical & without))
			found = p;
	}
	found.n_proposed = n;
	found.n_final = n_final;
	return found;
}

cudnnBackendDescriptor_t make_pack(struct builder *b, int n, const int64_t *uids, void *const *pointers,
				   void *workspace)
{
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

	set(b, p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids);
	set(b, p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
	set(b, p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	finalize(b, p);
	return p;
}
