/* Incorrect and correct uses of convolutions, pointwise operations and statistics. */
#include "tests/soft_gpu/cudnn/misuse.h"

#define F CUDNN_DATA_FLOAT
static const struct conv_spec plain = {{1, 1}, {1, 1}, {1, 1}};

/* ---- Convolutions ----------------------------------------------------------------------------------- */

static void window_padding_negative(struct builder *b)
{
	make_window(b, &(struct conv_spec){{1, 1}, {-1, 1}, {1, 1}});
}

static void window_stride_zero(struct builder *b)
{
	make_window(b, &(struct conv_spec){{0, 1}, {1, 1}, {1, 1}});
}

static void window_dilation_zero(struct builder *b)
{
	make_window(b, &(struct conv_spec){{1, 1}, {1, 1}, {1, 0}});
}

static void window_without_strides(struct builder *b)
{
	const int64_t two[2] = {1, 1};
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnBackendDescriptor_t c = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

	set_type(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, F);
	set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_i64(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, two);
	set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, two);
	finalize(b, c);
}

static void window_counts_differ(struct builder *b)
{
	const int64_t two[3] = {1, 1, 1};
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnBackendDescriptor_t c = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

	set_type(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, F);
	set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_i64(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 3, two);
	set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 3, two);
	set(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 3, two);
	set(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 3, two);
	finalize(b, c);
}

/* x [2,8,5,5], w [k,c,3,3], y [n,k,p,5] */
static void conv(struct builder *b, enum direction way, int64_t wk, int64_t wc, int64_t n, int64_t k, int64_t p,
		 cudnnDataType_t tw)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), w = simple_tensor(b, wk, wc, 3, 3, tw),
				 y = simple_tensor(b, n, k, p, 5, F), op = make_conv(b, way, x, w, y, &plain);

	make_graph(b, 1, &op);
}

static void conv_good(struct builder *b)
{
	conv(b, FORWARD, 16, 8, 2, 16, 5, F);
}

static void conv_wrong_height(struct builder *b)
{
	conv(b, FORWARD, 16, 8, 2, 16, 6, F);
}

static void conv_data_wrong_height(struct builder *b)
{
	conv(b, DATA, 16, 8, 2, 16, 6, F);
}

static void conv_filter_wrong_height(struct builder *b)
{
	conv(b, FILTER, 16, 8, 2, 16, 6, F);
}

static void conv_wrong_batch(struct builder *b)
{
	conv(b, FORWARD, 16, 8, 3, 16, 5, F);
}

static void conv_wrong_channels(struct builder *b)
{
	conv(b, FORWARD, 16, 7, 2, 16, 5, F);
}

static void conv_wrong_filters(struct builder *b)
{
	conv(b, FORWARD, 16, 8, 2, 24, 5, F);
}

static void conv_bad_groups(struct builder *b)
{
	conv(b, FORWARD, 15, 4, 2, 15, 5, F);
}

static void conv_mixed_types(struct builder *b)
{
	conv(b, FORWARD, 16, 8, 2, 16, 5, CUDNN_DATA_HALF);
}

static void conv_tensor_not_final(struct builder *b)
{
	cudnnBackendDescriptor_t op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
}

/* The tensor is finalized after it was set. */
static void conv_tensor_final_late(struct builder *b)
{
	const int64_t dims[4] = {2, 8, 5, 5}, strides[4] = {200, 1, 40, 8};
	cudnnBackendDescriptor_t x = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), w = simple_tensor(b, 16, 8, 3, 3, F),
				 y = simple_tensor(b, 2, 16, 5, 5, F),
				 op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

	set_type(b, x, CUDNN_ATTR_TENSOR_DATA_TYPE, F);
	set(b, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	set(b, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	set_i64(b, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, 100);
	set_i64(b, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, make_window(b, &plain));
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
	finalize(b, x);
	finalize(b, op);
}

static void conv_x_is_a_window(struct builder *b)
{
	cudnnBackendDescriptor_t op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
				 window = make_window(b, &plain);

	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, window);
	finalize(b, op);
}

static void conv_x_is_null(struct builder *b)
{
	cudnnBackendDescriptor_t op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, NULL);
}

static void conv_without_w(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 16, 5, 5, F),
				 op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, make_window(b, &plain));
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
	finalize(b, op);
}

static void conv_without_alpha(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), w = simple_tensor(b, 16, 8, 3, 3, F),
				 y = simple_tensor(b, 2, 16, 5, 5, F),
				 op = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, make_window(b, &plain));
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
	set_ref(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
	finalize(b, op);
}

/* ---- Pointwise operations and statistics ------------------------------------------------------------ */

static void pointwise_good(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F),
				 c = simple_tensor(b, 1, 8, 1, 1, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_ADD, x, c, NULL, y);

	make_graph(b, 1, &op);
}

static void pointwise_without_b(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F);

	make_pointwise(b, CUDNN_POINTWISE_ADD, x, NULL, NULL, y);
}

static void pointwise_without_y(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F);

	make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, NULL);
}

static void pointwise_with_extra_b(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F);

	make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, x, NULL, y);
}

static void pointwise_without_dy(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F);

	make_pointwise(b, CUDNN_POINTWISE_RELU_BWD, x, NULL, NULL, y);
}

static void pointwise_wrong_y(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 6, F);

	make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);
}

static void pointwise_wrong_b(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F),
				 c = simple_tensor(b, 1, 4, 1, 1, F);

	make_pointwise(b, CUDNN_POINTWISE_ADD, x, c, NULL, y);
}

static void pointwise_small_y(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 1, 8, 1, 1, F),
				 c = simple_tensor(b, 1, 8, 1, 1, F);

	make_pointwise(b, CUDNN_POINTWISE_ADD, c, x, NULL, y);
}

static void pointwise_bad_mode(struct builder *b)
{
	const cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)950;
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

	set(b, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(b, p, CUDNN_ATTR_POINTWISE_MATH_PREC, F);
	finalize(b, p);
}

static void pointwise_without_mode(struct builder *b)
{
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

	set_type(b, p, CUDNN_ATTR_POINTWISE_MATH_PREC, F);
	finalize(b, p);
}

static void statistics(struct builder *b, int64_t c, cudnnDataType_t t)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), s = simple_tensor(b, 1, c, 1, 1, t),
				 q = simple_tensor(b, 1, c, 1, 1, t), op = make_statistics(b, x, s, q);

	make_graph(b, 1, &op);
}

static void statistics_good(struct builder *b)
{
	statistics(b, 8, F);
}

static void statistics_wrong_channels(struct builder *b)
{
	statistics(b, 4, F);
}

static void statistics_half(struct builder *b)
{
	statistics(b, 8, CUDNN_DATA_HALF);
}

static const struct misuse all[] = {
	STATUS(window_padding_negative, BAD_PARAM),
	STATUS(window_stride_zero, BAD_PARAM),
	STATUS(window_dilation_zero, BAD_PARAM),
	STATUS(window_without_strides, BAD_PARAM),
	STATUS(window_counts_differ, BAD_PARAM),
	STATUS(conv_good, SUCCESS),
	STATUS(conv_wrong_height, BAD_PARAM),
	STATUS(conv_data_wrong_height, BAD_PARAM),
	STATUS(conv_filter_wrong_height, BAD_PARAM),
	STATUS(conv_wrong_batch, BAD_PARAM),
	STATUS(conv_wrong_channels, BAD_PARAM),
	STATUS(conv_wrong_filters, BAD_PARAM),
	STATUS(conv_bad_groups, BAD_PARAM),
	STATUS(conv_mixed_types, SUCCESS),
	STATUS(conv_tensor_not_final, SUCCESS),
	STATUS(conv_tensor_final_late, BAD_PARAM),
	FAIL(conv_x_is_a_window, "is a descriptor of type 1 instead of 17"),
	STATUS(conv_x_is_null, BAD_PARAM),
	STATUS(conv_without_w, BAD_PARAM),
	STATUS(conv_without_alpha, SUCCESS),
	STATUS(pointwise_good, SUCCESS),
	STATUS(pointwise_without_b, BAD_PARAM),
	STATUS(pointwise_without_y, BAD_PARAM),
	FAIL(pointwise_with_extra_b, "mode 100 has no attribute 752"),
	STATUS(pointwise_without_dy, BAD_PARAM),
	STATUS(pointwise_wrong_y, SUCCESS),
	STATUS(pointwise_wrong_b, SUCCESS),
	STATUS(pointwise_small_y, SUCCESS),
	FAIL(pointwise_bad_mode, "pointwise mode 950"),
	FAIL(pointwise_without_mode, "pointwise mode -1"),
	STATUS(statistics_good, SUCCESS),
	STATUS(statistics_wrong_channels, SUCCESS),
	STATUS(statistics_half, SUCCESS),
};
const struct misuses misused_operations = {all, sizeof(all) / sizeof(*all)};
