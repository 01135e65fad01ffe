/* Finalization of tensors, windows and pointwise modes. */
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

static const struct {
	cudnnBackendDescriptorType_t kind;
	cudnnStatus_t (*finalize)(struct soft__descriptor *d);
} kinds[] = {
	{CUDNN_BACKEND_TENSOR_DESCRIPTOR, soft__finalize_tensor},
	{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, soft__finalize_window},
	{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, soft__finalize_pointwise},
	{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, soft__finalize_conv_op},
	{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, soft__finalize_conv_op},
	{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, soft__finalize_conv_op},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, soft__finalize_pointwise_op},
	{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, soft__finalize_statistics_op},
	{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, soft__finalize_graph},
	{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, soft__finalize_device},
	{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, soft__finalize_heuristic},
	{CUDNN_BACKEND_ENGINE_DESCRIPTOR, soft__finalize_engine},
	{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, soft__finalize_knob},
	{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, soft__finalize_config},
	{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, soft__finalize_plan},
	{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, soft__finalize_pack},
};

cudnnStatus_t soft__finalize(struct soft__descriptor *d)
{
	cudnnStatus_t st;

	if (d->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (kinds[i].kind != d->kind)
			continue;
		st = kinds[i].finalize(d);
		d->is_final = st == CUDNN_STATUS_SUCCESS;
		return st;
	}
	soft_gpu_fail("cudnn: descriptors of type %d are not implemented in the stand-in", (int)d->kind);
}

static int type_bytes(cudnnDataType_t t)
{
	switch (t) {
	case CUDNN_DATA_FLOAT:
		return 4;
	case CUDNN_DATA_HALF:
	case CUDNN_DATA_BFLOAT16:
		return 2;
	default:
		soft_gpu_fail("cudnn: values of type %d are not implemented in the stand-in", (int)t);
	}
}

int64_t soft__count(const struct soft__tensor *t)
{
	return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

size_t soft__span_bytes(const struct soft__tensor *t)
{
	int64_t last = 0;

	for (int i = 0; i < SOFT__DIMS; i++)
		last += (t->dims[i] - 1) * t->strides[i];
	return (size_t)(last + 1) * (size_t)type_bytes(t->type);
}

/* Whether two elements share memory. */
static bool overlaps(const struct soft__tensor *t)
{
	int64_t reach = 0, least = 0;

	/* By growing stride: each must be beyond all elements of those before it. */
	for (int round = 0; round < t->n_dims; round++) {
		int64_t next = INT64_MAX, extent = 0;

		for (int i = 0; i < t->n_dims; i++) {
			if (t->dims[i] > 1 && t->strides[i] > least && t->strides[i] < next) {
				next = t->strides[i];
				extent = (t->dims[i] - 1) * t->strides[i];
			}
		}
		if (next == INT64_MAX)
			break;
		if (next <= reach)
			return true;
		reach += extent;
		least = next;
	}
	for (int i = 0; i < t->n_dims; i++) {
		for (int k = 0; k < i; k++) {
			if (t->dims[i] > 1 && t->dims[k] > 1 && t->strides[i] == t->strides[k])
				return true;
		}
		if (t->dims[i] > 1 && t->strides[i] == 0)
			return true;
	}
	return false;
}

cudnnStatus_t soft__finalize_tensor(struct soft__descriptor *d)
{
	const struct soft__value *dims = soft__find(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
				 *strides = soft__find(d, CUDNN_ATTR_TENSOR_STRIDES);
	const int64_t type = soft__integer(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
	struct soft__tensor *t = &d->tensor;

	if ((dims ? dims->n : 0) != (strides ? strides->n : 0))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "_nbDims != _nbStrides");
	if (!dims)
		soft_gpu_fail("cudnn: a tensor has no dimensions");
	if (dims->n > SOFT__DIMS)
		soft_gpu_fail("cudnn: tensors of %lld dimensions are not implemented in the stand-in",
			      (long long)dims->n);
	for (int64_t i = 0; i < dims->n; i++) {
		if (((int64_t *)strides->data)[i] < 0 || ((int64_t *)dims->data)[i] < 0)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM, "_strA[d] < 0");
	}
	if (type < 0)
		soft_gpu_fail("cudnn: a tensor has no type");
	if (!soft__find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID))
		soft_gpu_fail("cudnn: a tensor has no unique id");
	t->n_dims = (int)dims->n;
	for (int i = 0; i < SOFT__DIMS; i++) {
		t->dims[i] = i < t->n_dims ? ((int64_t *)dims->data)[i] : 1;
		t->strides[i] = i < t->n_dims ? ((int64_t *)strides->data)[i] : 0;
	}
	t->type = (cudnnDataType_t)type;
	t->uid = soft__integer(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
	t->alignment = soft__integer(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
	t->is_virtual = soft__integer(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
	if (t->alignment <= 0 || t->alignment % type_bytes(t->type) != 0)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "byte alignment %lld of tensor %lld",
				    (long long)t->alignment, (long long)t->uid);
	if (soft__count(t) == 0)
		soft_gpu_fail("cudnn: tensor %lld is empty", (long long)t->uid);
	if (!t->is_virtual && overlaps(t))
		soft_gpu_fail("cudnn: two elements of tensor %lld share memory", (long long)t->uid);
	return soft__consult_finalize(d);
}

static const int64_t *pair(const struct soft__descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct soft__value *v = soft__find(d, name);

	return v && v->n == 2 ? v->data : NULL;
}

cudnnStatus_t soft__finalize_window(struct soft__descriptor *d)
{
	const int64_t *pad = pair(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
		      *pad_end = pair(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
		      *stride = pair(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
		      *dilation = pair(d, CUDNN_ATTR_CONVOLUTION_DILATIONS);
	struct soft__window *w = &d->window;

	if (soft__integer(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2) != 2)
		soft_gpu_fail("cudnn: convolutions over %lld dimensions are not implemented in the stand-in",
			      (long long)soft__integer(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0));
	if (!pad || !pad_end || !stride || !dilation || !soft__find(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "a convolution lacks two values of an attribute");
	for (int i = 0; i < 2; i++) {
		if (pad[i] < 0 || pad_end[i] < 0 || stride[i] < 1 || dilation[i] < 1)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM, "padding %lld,%lld stride %lld dilation %lld",
					    (long long)pad[i], (long long)pad_end[i], (long long)stride[i],
					    (long long)dilation[i]);
	}
	if (soft__integer(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, -1) != CUDNN_DATA_FLOAT)
		soft_gpu_fail("cudnn: convolutions that do not compute in fp32 are not implemented in the stand-in");
	if (!soft__find(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE))
		soft_gpu_fail("cudnn: a convolution has no mode");
	w->flipped = soft__integer(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0) == CUDNN_CONVOLUTION;
	memcpy(w->pad, pad, sizeof(w->pad));
	memcpy(w->pad_end, pad_end, sizeof(w->pad_end));
	memcpy(w->stride, stride, sizeof(w->stride));
	memcpy(w->dilation, dilation, sizeof(w->dilation));
	return soft__consult_finalize(d);
}

bool soft__is_backward(cudnnPointwiseMode_t mode)
{
	return mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ;
}

/* Of x, b (or dy) and t. 0: not implemented. */
int soft__pointwise_inputs(cudnnPointwiseMode_t mode)
{
	switch (mode) {
	case CUDNN_POINTWISE_SQRT:
	case CUDNN_POINTWISE_ABS:
	case CUDNN_POINTWISE_EXP:
	case CUDNN_POINTWISE_LOG:
	case CUDNN_POINTWISE_NEG:
	case CUDNN_POINTWISE_RSQRT:
	case CUDNN_POINTWISE_IDENTITY:
	case CUDNN_POINTWISE_RECIPROCAL:
	case CUDNN_POINTWISE_RELU_FWD:
	case CUDNN_POINTWISE_TANH_FWD:
	case CUDNN_POINTWISE_SIGMOID_FWD:
		return 1;
	case CUDNN_POINTWISE_ADD:
	case CUDNN_POINTWISE_SUB:
	case CUDNN_POINTWISE_MUL:
	case CUDNN_POINTWISE_DIV:
	case CUDNN_POINTWISE_MIN:
	case CUDNN_POINTWISE_MAX:
	case CUDNN_POINTWISE_ADD_SQUARE:
	case CUDNN_POINTWISE_CMP_EQ:
	case CUDNN_POINTWISE_CMP_GT:
	case CUDNN_POINTWISE_CMP_GE:
	case CUDNN_POINTWISE_CMP_LT:
	case CUDNN_POINTWISE_CMP_LE:
	case CUDNN_POINTWISE_RELU_BWD:
		return 2;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return 3;
	default:
		return 0;
	}
}

cudnnStatus_t soft__finalize_pointwise(struct soft__descriptor *d)
{
	struct soft__pointwise *p = &d->pointwise;

	p->mode = (cudnnPointwiseMode_t)soft__integer(d, CUDNN_ATTR_POINTWISE_MODE, -1);
	p->lower = soft__real(d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
	p->upper = soft__real(d, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 3.4028234663852886e38);
	p->slope = soft__real(d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
	if (soft__pointwise_inputs(p->mode) == 0)
		soft_gpu_fail("cudnn: pointwise mode %d is not implemented in the stand-in", (int)p->mode);
	if (soft__integer(d, CUDNN_ATTR_POINTWISE_MATH_PREC, -1) != CUDNN_DATA_FLOAT)
		soft_gpu_fail(
			"cudnn: pointwise operations that do not compute in fp32 are not implemented in the stand-in");
	return soft__consult_finalize(d);
}
