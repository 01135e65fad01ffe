/* Finalization of operations. */
#include "tests/soft_gpu/cudnn/cudnn_impl.h"

bool soft__is_conv(cudnnBackendDescriptorType_t kind)
{
	return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
	       kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
	       kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

/* Whether the attribute is there, a descriptor of the kind, and was finalized when it was set. */
static bool is_ready(const struct soft__descriptor *d, cudnnBackendAttributeName_t name,
		     cudnnBackendDescriptorType_t kind)
{
	const struct soft__value *v = soft__find(d, name);
	const struct soft__descriptor *to = soft__ref(d, name);

	if (to && to->kind != kind)
		soft_gpu_fail("cudnn: attribute %d is a descriptor of type %d instead of %d", (int)name, (int)to->kind,
			      (int)kind);
	return v && v->was_final;
}

static bool tensor_of(const struct soft__descriptor *d, cudnnBackendAttributeName_t name, struct soft__tensor *out)
{
	if (!is_ready(d, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR))
		return false;
	*out = soft__ref(d, name)->tensor;
	return true;
}

/* ---- Convolutions ----------------------------------------------------------------------------------- */

struct names {
	cudnnBackendDescriptorType_t kind;
	cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
#define NAMES(kind, prefix, x, w, y)                                                             \
	{CUDNN_BACKEND_OPERATION_##kind##_DESCRIPTOR, CUDNN_ATTR_OPERATION_##prefix##_CONV_DESC, \
	 CUDNN_ATTR_OPERATION_##prefix##_##x,         CUDNN_ATTR_OPERATION_##prefix##_##w,       \
	 CUDNN_ATTR_OPERATION_##prefix##_##y,         CUDNN_ATTR_OPERATION_##prefix##_ALPHA,     \
	 CUDNN_ATTR_OPERATION_##prefix##_BETA}
static const struct names conv_names[] = {
	NAMES(CONVOLUTION_FORWARD, CONVOLUTION_FORWARD, X, W, Y),
	NAMES(CONVOLUTION_BACKWARD_DATA, CONVOLUTION_BWD_DATA, DX, W, DY),
	NAMES(CONVOLUTION_BACKWARD_FILTER, CONVOLUTION_BWD_FILTER, X, DW, DY),
};

static cudnnStatus_t check_sizes(const struct soft__window *win, const struct soft__tensor *x,
				 const struct soft__tensor *w, const struct soft__tensor *y)
{
	if (x->n_dims != 4 || w->n_dims != 4 || y->n_dims != 4)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "tensors of %d, %d and %d dimensions", x->n_dims, w->n_dims,
				    y->n_dims);
	if (y->dims[0] != x->dims[0])
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "batch %lld of y, %lld of x", (long long)y->dims[0],
				    (long long)x->dims[0]);
	if (x->dims[1] % w->dims[1] != 0)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "%lld channels of x, %lld of w", (long long)x->dims[1],
				    (long long)w->dims[1]);
	if (y->dims[1] != w->dims[0] || w->dims[0] % (x->dims[1] / w->dims[1]) != 0)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "%lld channels of y, %lld filters, %lld groups",
				    (long long)y->dims[1], (long long)w->dims[0], (long long)(x->dims[1] / w->dims[1]));
	for (int i = 0; i < 2; i++) {
		int64_t padded = x->dims[2 + i] + win->pad[i] + win->pad_end[i],
			reach = (w->dims[2 + i] - 1) * win->dilation[i] + 1;

		if (padded < reach || y->dims[2 + i] != (padded - reach) / win->stride[i] + 1)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM,
					    "the size %lld of y does not follow from that of x and w",
					    (long long)y->dims[2 + i]);
	}
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t soft__finalize_conv_op(struct soft__descriptor *d)
{
	const struct names *n = conv_names;
	struct soft__op *op = &d->op;
	struct soft__tensor t[3];
	cudnnStatus_t st;

	while (n->kind != d->kind)
		n++;
	if (!is_ready(d, n->conv, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) || !tensor_of(d, n->x, &t[0]) ||
	    !tensor_of(d, n->w, &t[1]) || !tensor_of(d, n->y, &t[2]))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM,
				    "x, w, y or the convolution is not set or was not finalized");
	op->window = soft__ref(d, n->conv)->window;
	st = check_sizes(&op->window, &t[0], &t[1], &t[2]);
	if (st)
		return st;
	op->kind = d->kind;
	op->alpha = (float)soft__real(d, n->alpha, 1);
	op->beta = (float)soft__real(d, n->beta, 0);
	const int result = n == &conv_names[0] ? 2 : n == &conv_names[1] ? 0 : 1;
	op->n_in = 0;
	for (int i = 0; i < 3; i++) {
		if (i != result)
			op->in[op->n_in++] = t[i];
	}
	op->out[0] = t[result];
	op->n_out = 1;
	return soft__consult_finalize(d);
}

/* ---- Pointwise operations and statistics ------------------------------------------------------------ */

cudnnStatus_t soft__finalize_pointwise_op(struct soft__descriptor *d)
{
	struct soft__op *op = &d->op;

	if (!is_ready(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "the pointwise mode is not set or was not finalized");
	op->kind = d->kind;
	op->pointwise = soft__ref(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->pointwise;
	op->pointwise.alpha1 = (float)soft__real(d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
	op->pointwise.alpha2 = (float)soft__real(d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
	const bool backward = soft__is_backward(op->pointwise.mode);
	const cudnnBackendAttributeName_t in[3] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
						   backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
							    : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
						   CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
	op->n_in = soft__pointwise_inputs(op->pointwise.mode);
	op->n_out = 1;
	for (int i = 0; i < 3; i++) {
		if (i >= op->n_in && soft__find(d, in[i]))
			soft_gpu_fail("cudnn: pointwise mode %d has no attribute %d", (int)op->pointwise.mode,
				      (int)in[i]);
		if (i < op->n_in && !tensor_of(d, in[i], &op->in[i]))
			return soft__refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d is not set or was not finalized",
					    (int)in[i]);
	}
	if (!tensor_of(d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
		       &op->out[0]))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "the result is not set or was not finalized");
	return soft__consult_finalize(d);
}

cudnnStatus_t soft__finalize_statistics_op(struct soft__descriptor *d)
{
	struct soft__op *op = &d->op;

	if (!tensor_of(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, &op->in[0]) ||
	    !tensor_of(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, &op->out[0]) ||
	    !tensor_of(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, &op->out[1]))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "x, sum or square sum is not set or was not finalized");
	if (soft__integer(d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, -1) != CUDNN_DATA_FLOAT)
		soft_gpu_fail("cudnn: statistics that are not computed in fp32 are not implemented in the stand-in");
	op->kind = d->kind;
	op->n_in = 1;
	op->n_out = 2;
	return soft__consult_finalize(d);
}
