/* Tensors and operations are made as descriptors at once, and the graph owns them, because operations refer to tensors.
 * With each operation, its description is appended to the string form. The string is the key under which plans are
 * shared and stored, so everything that a plan depends on must be in it: directions, sizes, types, windows and virtual
 * tensors. Strides are those of NHWC and follow from the sizes. All operations compute in fp32. */
#include "nn/cuda/cudnn/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "nn/cuda/cudnn/descriptor.h"

struct tensor {
	cudnnBackendDescriptor_t descriptor;
	char name[16];
	int64_t dims[4];
	enum ct_dtype dtype;
	bool is_virtual;
};

struct ct__cudnn_graph {
	struct tensor tensors[CT__CUDNN_MAX_TENSORS]; /* id - 1 is the index */
	int n_tensors;
	/* Operations, and the descriptors that they refer to. */
	cudnnBackendDescriptor_t ops[CT__CUDNN_MAX_OPS], parts[CT__CUDNN_MAX_OPS];
	int n_ops, n_parts;
	struct ct__cudnn_conv_info conv;
	cudnnBackendDescriptor_t graph;
	char text[CT__CUDNN_TEXT_MAX];
	enum ct_status status; /* of the first builder that failed */
	struct ct_error error;
};

enum ct_status ct__cudnn_graph_create(ct__cudnn_graph **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct__cudnn_graph));
	return CT_OK;
}

void ct__cudnn_graph_destroy(ct__cudnn_graph *g)
{
	if (!g)
		return;
	ct__cudnn_destroy(g->graph);
	for (int i = 0; i < g->n_ops; i++)
		ct__cudnn_destroy(g->ops[i]);
	for (int i = 0; i < g->n_parts; i++)
		ct__cudnn_destroy(g->parts[i]);
	for (int i = 0; i < g->n_tensors; i++)
		ct__cudnn_destroy(g->tensors[i].descriptor);
	ct_free(g);
}

static void fail(ct__cudnn_graph *g, enum ct_status st)
{
	g->status = st;
	ct_error_save(&g->error);
	ct_error_clear();
}

static CT_PRINTF(2, 3) void append(ct__cudnn_graph *g, const char *format, ...)
{
	size_t used = strlen(g->text);
	va_list args;

	va_start(args, format);
	int n = vsnprintf(g->text + used, sizeof(g->text) - used, format, args);
	va_end(args);
	CT_ASSERT(n >= 0 && (size_t)n < sizeof(g->text) - used);
}

static cudnnDataType_t data_type(enum ct_dtype t)
{
	CT_ASSERT(t == CT_F32 || t == CT_F16 || t == CT_BF16);
	if (t == CT_F32)
		return CUDNN_DATA_FLOAT;
	return t == CT_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

static enum ct_status make_tensor(const ct__cudnn_graph *g, struct tensor *t)
{
	const int64_t *d = t->dims, strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
	const int64_t id = g->n_tensors, alignment = 16;
	const cudnnDataType_t type = data_type(t->dtype);
	cudnnBackendDescriptor_t x;

	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t->descriptor));
	x = t->descriptor;
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d));
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
	CT_TRY(ct__cudnn_set(x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual));
	return ct__cudnn_finalize(x, "finalizing a tensor");
}

int ct__cudnn_tensor(ct__cudnn_graph *g, const char *name, const int64_t dims[4], enum ct_dtype t, bool is_virtual)
{
	if (g->status < 0)
		return 0;
	CT_ASSERT(g->n_tensors < CT__CUDNN_MAX_TENSORS);
	struct tensor *x = &g->tensors[g->n_tensors++];
	snprintf(x->name, sizeof(x->name), "%s", name);
	memcpy(x->dims, dims, sizeof(x->dims));
	x->dtype = t;
	x->is_virtual = is_virtual;
	enum ct_status st = make_tensor(g, x);
	if (st < 0)
		fail(g, st);
	return g->n_tensors;
}

int ct__cudnn_channels(ct__cudnn_graph *g, const char *name, int64_t c, enum ct_dtype t)
{
	return ct__cudnn_tensor(g, name, (int64_t[4]){1, c, 1, 1}, t, false);
}

static const struct tensor *tensor_at(const ct__cudnn_graph *g, int id)
{
	CT_ASSERT(id >= 1 && id <= g->n_tensors);
	return &g->tensors[id - 1];
}

static void append_tensor(ct__cudnn_graph *g, const char *role, int id)
{
	const struct tensor *t = tensor_at(g, id);

	append(g, " %s=%s%s:%s[%lld,%lld,%lld,%lld]", role, t->is_virtual ? "virtual-" : "", t->name,
	       ct_dtype_name(t->dtype), (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2],
	       (long long)t->dims[3]);
}

/* Creates an operation and, before it, the descriptor of its parameters. */
static enum ct_status begin_op(ct__cudnn_graph *g, cudnnBackendDescriptorType_t part, cudnnBackendDescriptorType_t op)
{
	CT_ASSERT(g->n_ops < CT__CUDNN_MAX_OPS);
	CT_TRY(ct__cudnn_create(part, &g->parts[g->n_parts]));
	g->n_parts++;
	CT_TRY(ct__cudnn_create(op, &g->ops[g->n_ops]));
	g->n_ops++;
	return CT_OK;
}

static cudnnBackendDescriptor_t last_op(const ct__cudnn_graph *g)
{
	return g->ops[g->n_ops - 1];
}

static cudnnBackendDescriptor_t last_part(const ct__cudnn_graph *g)
{
	return g->parts[g->n_parts - 1];
}

static enum ct_status set_descriptor(cudnnBackendDescriptor_t op, cudnnBackendAttributeName_t name,
				     const cudnnBackendDescriptor_t *d)
{
	return ct__cudnn_set(op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, d);
}

static enum ct_status make_window(cudnnBackendDescriptor_t c, const struct ct_window *win)
{
	const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t n = 2, pad[2] = {win->pad_h, win->pad_w}, stride[2] = {win->stride_h, win->stride_w},
		      dilation[2] = {win->dilation_h, win->dilation_w};

	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
	CT_TRY(ct__cudnn_set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
	return ct__cudnn_finalize(c, "finalizing a convolution");
}

/* The attributes of the three directions have the same meaning but different numbers. */
struct direction {
	const char *name;
	cudnnBackendDescriptorType_t op;
	cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

static const struct direction directions[] = {
	[CT__CUDNN_FORWARD] = {"forward", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
	[CT__CUDNN_DATA] = {"data", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
	[CT__CUDNN_FILTER] = {"filter", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
			      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static enum ct_status make_conv(ct__cudnn_graph *g, const struct direction *d, int x, int w, int y,
				const struct ct_window *win)
{
	const float one = 1, zero = 0;

	CT_TRY(begin_op(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, d->op));
	cudnnBackendDescriptor_t part = last_part(g), op = last_op(g);
	CT_TRY(make_window(part, win));
	CT_TRY(ct__cudnn_set(op, d->alpha, CUDNN_TYPE_FLOAT, 1, &one));
	CT_TRY(ct__cudnn_set(op, d->beta, CUDNN_TYPE_FLOAT, 1, &zero));
	CT_TRY(set_descriptor(op, d->conv, &part));
	CT_TRY(set_descriptor(op, d->x, &tensor_at(g, x)->descriptor));
	CT_TRY(set_descriptor(op, d->w, &tensor_at(g, w)->descriptor));
	CT_TRY(set_descriptor(op, d->y, &tensor_at(g, y)->descriptor));
	return ct__cudnn_finalize(op, "finalizing a convolution operation");
}

void ct__cudnn_add_conv(ct__cudnn_graph *g, enum ct__cudnn_conv direction, int x, int w, int y,
			const struct ct_window *win)
{
	const struct direction *d = &directions[direction];

	if (g->status < 0)
		return;
	append(g, "%s%s", g->text[0] ? "; " : "", d->name);
	append_tensor(g, "x", x);
	append_tensor(g, "w", w);
	append_tensor(g, "y", y);
	append(g, " stride=%d,%d pad=%d,%d dilation=%d,%d", win->stride_h, win->stride_w, win->pad_h, win->pad_w,
	       win->dilation_h, win->dilation_w);
	g->conv = (struct ct__cudnn_conv_info){.graph = g, .direction = direction, .x = x, .w = w, .y = y, .win = *win};
	enum ct_status st = make_conv(g, d, x, w, y, win);
	if (st < 0)
		fail(g, st);
}

static const struct {
	const char *name;
	cudnnPointwiseMode_t mode;
} pointwise[] = {
	[CT__CUDNN_ADD] = {"add", CUDNN_POINTWISE_ADD},
	[CT__CUDNN_RELU] = {"relu", CUDNN_POINTWISE_RELU_FWD},
};

static enum ct_status make_pointwise(ct__cudnn_graph *g, enum ct__cudnn_pointwise which, int x, int b, int y)
{
	const cudnnDataType_t compute = CUDNN_DATA_FLOAT;

	CT_TRY(begin_op(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
	cudnnBackendDescriptor_t part = last_part(g), op = last_op(g);
	CT_TRY(ct__cudnn_set(part, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &pointwise[which].mode));
	CT_TRY(ct__cudnn_set(part, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
	CT_TRY(ct__cudnn_finalize(part, "finalizing a pointwise mode"));
	CT_TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &part));
	CT_TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &tensor_at(g, x)->descriptor));
	if (b)
		CT_TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &tensor_at(g, b)->descriptor));
	CT_TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &tensor_at(g, y)->descriptor));
	return ct__cudnn_finalize(op, "finalizing a pointwise operation");
}

void ct__cudnn_add_pointwise(ct__cudnn_graph *g, enum ct__cudnn_pointwise op, int x, int b, int y)
{
	if (g->status < 0)
		return;
	append(g, "%s%s", g->text[0] ? "; " : "", pointwise[op].name);
	append_tensor(g, "x", x);
	if (b)
		append_tensor(g, "b", b);
	append_tensor(g, "y", y);
	g->conv.y = y;
	g->conv.relu |= op == CT__CUDNN_RELU;
	if (b) {
		CT_ASSERT(g->conv.n_addends < 2);
		g->conv.addends[g->conv.n_addends++] = b;
	}
	enum ct_status st = make_pointwise(g, op, x, b, y);
	if (st < 0)
		fail(g, st);
}

static enum ct_status make_graph(ct__cudnn_graph *g)
{
	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
	CT_TRY(ct__cudnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops));
	return ct__cudnn_finalize(g->graph, "finalizing the operation graph");
}

enum ct_status ct__cudnn_graph_finish(ct__cudnn_graph *g)
{
	if (g->status == CT_OK && make_graph(g) < 0)
		fail(g, ct_error_status());
	if (g->status == CT_OK)
		return CT_OK;
	(void)ct_error_restore(&g->error);
	return ct_error_wrap("operation graph \"%s\"", g->text);
}

const char *ct__cudnn_graph_text(const ct__cudnn_graph *g)
{
	return g->text;
}

int ct__cudnn_graph_n_tensors(const ct__cudnn_graph *g)
{
	return g->n_tensors;
}

bool ct__cudnn_graph_is_virtual(const ct__cudnn_graph *g, int tensor)
{
	return tensor_at(g, tensor)->is_virtual;
}

enum ct_dtype ct__cudnn_graph_dtype(const ct__cudnn_graph *g, int tensor)
{
	return tensor_at(g, tensor)->dtype;
}

void ct__cudnn_graph_conv(const ct__cudnn_graph *g, struct ct__cudnn_conv_info *out)
{
	const struct tensor *x = tensor_at(g, g->conv.x), *y = tensor_at(g, g->conv.y);

	*out = g->conv;
	memcpy(out->x_dims, x->dims, sizeof(x->dims));
	memcpy(out->w_dims, tensor_at(g, g->conv.w)->dims, sizeof(x->dims));
	memcpy(out->y_dims, y->dims, sizeof(y->dims));
	for (int i = 0; i < g->conv.n_addends; i++)
		out->per_channel[i] = memcmp(tensor_at(g, g->conv.addends[i])->dims, y->dims, sizeof(y->dims)) != 0;
	out->type = x->dtype;
}

size_t ct__cudnn_graph_bytes(const ct__cudnn_graph *g, int tensor)
{
	const struct tensor *t = tensor_at(g, tensor);

	return (size_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]) * ct_dtype_bytes(t->dtype);
}

cudnnBackendDescriptor_t ct__cudnn_graph_descriptor(const ct__cudnn_graph *g)
{
	return g->graph;
}
