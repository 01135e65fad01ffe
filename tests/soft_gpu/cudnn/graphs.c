#include "tests/soft_gpu/cudnn/graphs.h"

#include <stddef.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

struct shape {
	int64_t n, c, h, k, r, stride, pad, groups, dilation;
};

static int64_t out_size(const struct shape *s)
{
	return (s->h + 2 * s->pad - (s->r - 1) * s->dilation - 1) / s->stride + 1;
}

static descriptor conv(struct builder *b, const struct shape *s, enum direction way, cudnnDataType_t t)
{
	const int64_t p = out_size(s);
	descriptor x = simple_tensor(b, s->n, s->c, s->h, s->h, t),
		   w = simple_tensor(b, s->k, s->c / s->groups, s->r, s->r, t),
		   y = simple_tensor(b, s->n, s->k, p, p, t);
	const struct conv_spec spec = {{s->stride, s->stride}, {s->pad, s->pad}, {s->dilation, s->dilation}};
	descriptor op = make_conv(b, way, x, w, y, &spec);

	return make_graph(b, 1, &op);
}

static const struct shape resnet = {16, 64, 28, 64, 3, 1, 1, 1, 1}, strided = {16, 64, 28, 128, 3, 2, 1, 1, 1},
			  stem = {16, 8, 224, 64, 7, 2, 3, 1, 1}, linear = {64, 784, 1, 128, 1, 1, 0, 1, 1},
			  grouped = {16, 64, 28, 64, 3, 1, 1, 4, 1}, dilated = {16, 64, 28, 64, 3, 1, 2, 1, 2},
			  odd = {3, 7, 9, 5, 3, 1, 1, 1, 1};

#define ONE_CONV(name, shape, way)                                   \
	static descriptor name(struct builder *b, cudnnDataType_t t) \
	{                                                            \
		return conv(b, &shape, way, t);                      \
	}
#define CONVS(shape)                              \
	ONE_CONV(shape##_forward, shape, FORWARD) \
	ONE_CONV(shape##_data, shape, DATA)       \
	ONE_CONV(shape##_filter, shape, FILTER)

CONVS(resnet)
ONE_CONV(strided_forward, strided, FORWARD)
CONVS(stem)
CONVS(linear)
CONVS(grouped)
ONE_CONV(dilated_forward, dilated, FORWARD)
ONE_CONV(odd_forward, odd, FORWARD)
ONE_CONV(odd_filter, odd, FILTER)

/* y = relu(conv(x, w) + bias); virtual: the type between, bias: its type */
static descriptor bias_relu(struct builder *b, cudnnDataType_t t, cudnnDataType_t between, cudnnDataType_t bias_type)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	descriptor x = simple_tensor(b, 16, 64, 28, 28, t), w = simple_tensor(b, 64, 64, 3, 3, t),
		   v1 = virtual_tensor(b, 16, 64, 28, 28, between), bias = simple_tensor(b, 1, 64, 1, 1, bias_type),
		   v2 = virtual_tensor(b, 16, 64, 28, 28, between), y = simple_tensor(b, 16, 64, 28, 28, t), ops[3];

	ops[0] = make_conv(b, FORWARD, x, w, v1, &same);
	ops[1] = make_pointwise(b, CUDNN_POINTWISE_ADD, v1, bias, NULL, v2);
	ops[2] = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, v2, NULL, NULL, y);
	return make_graph(b, 3, ops);
}

static descriptor forward_bias_relu(struct builder *b, cudnnDataType_t t)
{
	return bias_relu(b, t, CUDNN_DATA_FLOAT, t);
}

static descriptor forward_float_bias_relu(struct builder *b, cudnnDataType_t t)
{
	return bias_relu(b, t, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
}

/* y = conv(x, w) and then, in the given order, + residual (r), + bias (b), ReLU (m) */
static descriptor fused(struct builder *b, cudnnDataType_t t, const char *what)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	const int n = (int)strlen(what);
	descriptor x = simple_tensor(b, 16, 64, 28, 28, t), w = simple_tensor(b, 64, 64, 3, 3, t),
		   y = simple_tensor(b, 16, 64, 28, 28, t), ops[4],
		   from = virtual_tensor(b, 16, 64, 28, 28, CUDNN_DATA_FLOAT);

	ops[0] = make_conv(b, FORWARD, x, w, from, &same);
	for (int i = 0; i < n; i++) {
		descriptor to = i + 1 < n ? virtual_tensor(b, 16, 64, 28, 28, CUDNN_DATA_FLOAT) : y;

		if (what[i] == 'm')
			ops[i + 1] = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, from, NULL, NULL, to);
		else
			ops[i + 1] = make_pointwise(b, CUDNN_POINTWISE_ADD, from,
						    what[i] == 'b' ? simple_tensor(b, 1, 64, 1, 1, t)
								   : simple_tensor(b, 16, 64, 28, 28, t),
						    NULL, to);
		from = to;
	}
	return make_graph(b, n + 1, ops);
}

#define FUSED(name, what)                                            \
	static descriptor name(struct builder *b, cudnnDataType_t t) \
	{                                                            \
		return fused(b, t, what);                            \
	}
FUSED(forward_bias, "b")
FUSED(forward_relu, "m")
FUSED(forward_residual, "r")
FUSED(forward_residual_relu, "rm")
FUSED(forward_residual_bias, "rb")
FUSED(forward_residual_bias_relu, "rbm")
FUSED(forward_bias_residual_relu, "brm")

static descriptor forward_statistics(struct builder *b, cudnnDataType_t t)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	descriptor x = simple_tensor(b, 16, 64, 28, 28, t), w = simple_tensor(b, 64, 64, 3, 3, t),
		   y = simple_tensor(b, 16, 64, 28, 28, t), sum = simple_tensor(b, 1, 64, 1, 1, CUDNN_DATA_FLOAT),
		   square = simple_tensor(b, 1, 64, 1, 1, CUDNN_DATA_FLOAT), ops[2];

	ops[0] = make_conv(b, FORWARD, x, w, y, &same);
	ops[1] = make_statistics(b, y, sum, square);
	return make_graph(b, 2, ops);
}

/* dx = data(dy, w) + z */
static descriptor data_add(struct builder *b, cudnnDataType_t t)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	descriptor v = virtual_tensor(b, 16, 64, 28, 28, CUDNN_DATA_FLOAT), w = simple_tensor(b, 64, 64, 3, 3, t),
		   dy = simple_tensor(b, 16, 64, 28, 28, t), z = simple_tensor(b, 16, 64, 28, 28, t),
		   dx = simple_tensor(b, 16, 64, 28, 28, t), ops[2];

	ops[0] = make_conv(b, DATA, v, w, dy, &same);
	ops[1] = make_pointwise(b, CUDNN_POINTWISE_ADD, v, z, NULL, dx);
	return make_graph(b, 2, ops);
}

static descriptor relu(struct builder *b, cudnnDataType_t t)
{
	descriptor x = simple_tensor(b, 16, 64, 28, 28, t), y = simple_tensor(b, 16, 64, 28, 28, t),
		   op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);

	return make_graph(b, 1, &op);
}

/* Filters in another type than the data. */
static descriptor mixed(struct builder *b, cudnnDataType_t t)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	descriptor x = simple_tensor(b, 16, 64, 28, 28, t),
		   w = simple_tensor(b, 64, 64, 3, 3, t == CUDNN_DATA_FLOAT ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT),
		   y = simple_tensor(b, 16, 64, 28, 28, t), op = make_conv(b, FORWARD, x, w, y, &same);

	return make_graph(b, 1, &op);
}

/* A tensor that promises only the alignment of an element. */
static descriptor unaligned(struct builder *b, cudnnDataType_t t)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	descriptor x = make_tensor(
			   b, &(struct tensor_spec){{16, 64, 28, 28}, t, .alignment = t == CUDNN_DATA_FLOAT ? 4 : 2}),
		   w = simple_tensor(b, 64, 64, 3, 3, t), y = simple_tensor(b, 16, 64, 28, 28, t),
		   op = make_conv(b, FORWARD, x, w, y, &same);

	return make_graph(b, 1, &op);
}

#define CASE(name, ...)             \
	{                           \
		#name, name,        \
		{                   \
			__VA_ARGS__ \
		}                   \
	}
const struct graph_case graph_cases[] = {
	CASE(resnet_forward, true, true, true),
	CASE(resnet_data, true, true, true),
	CASE(resnet_filter, true, true, true),
	CASE(strided_forward, true, true, true),
	CASE(stem_forward, true, true, true),
	CASE(stem_data, true, true, true),
	CASE(stem_filter, true, true, true),
	CASE(linear_forward, true, true, true),
	CASE(linear_data, true, true, true),
	CASE(linear_filter, true, true, true),
	CASE(grouped_forward, true, true, true),
	CASE(grouped_data, true, true, true),
	CASE(grouped_filter, true, true, true),
	CASE(dilated_forward, true, true, true),
	CASE(odd_forward, true, true, true),
	CASE(odd_filter, true, true, true),
	CASE(forward_bias_relu, true, true, true),
	CASE(forward_float_bias_relu, true, false, false),
	CASE(forward_bias, true, true, true),
	CASE(forward_relu, false, false, false),
	CASE(forward_residual, false, false, false),
	CASE(forward_residual_relu, false, false, false),
	CASE(forward_residual_bias, true, true, true),
	CASE(forward_residual_bias_relu, true, true, true),
	CASE(forward_bias_residual_relu, false, false, false),
	CASE(forward_statistics, false, true, false),
	CASE(data_add, false, false, false),
	CASE(relu, false, false, false),
	CASE(mixed, false, false, false),
	CASE(unaligned, true, true, true),
};
const int n_graph_cases = sizeof(graph_cases) / sizeof(*graph_cases);
