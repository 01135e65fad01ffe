/* Pointwise operations and statistics, on fp32 values with channels last. */
#include <math.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

static float relu(const struct soft__pointwise *p, float x)
{
	if (x < (float)p->lower)
		return (float)p->lower + (float)p->slope * (x - (float)p->lower);
	return x > (float)p->upper ? (float)p->upper : x;
}

static float apply(const struct soft__pointwise *p, float x, float b, float t)
{
	switch (p->mode) {
	case CUDNN_POINTWISE_ADD:
		return x + b;
	case CUDNN_POINTWISE_ADD_SQUARE:
		return x + b * b;
	case CUDNN_POINTWISE_SUB:
		return x - b;
	case CUDNN_POINTWISE_MUL:
		return x * b;
	case CUDNN_POINTWISE_DIV:
		return x / b;
	case CUDNN_POINTWISE_MIN:
		return x < b ? x : b;
	case CUDNN_POINTWISE_MAX:
		return x > b ? x : b;
	case CUDNN_POINTWISE_SQRT:
		return sqrtf(x);
	case CUDNN_POINTWISE_RSQRT:
		return 1 / sqrtf(x);
	case CUDNN_POINTWISE_RECIPROCAL:
		return 1 / x;
	case CUDNN_POINTWISE_ABS:
		return fabsf(x);
	case CUDNN_POINTWISE_NEG:
		return -x;
	case CUDNN_POINTWISE_EXP:
		return expf(x);
	case CUDNN_POINTWISE_LOG:
		return logf(x);
	case CUDNN_POINTWISE_TANH_FWD:
		return tanhf(x);
	case CUDNN_POINTWISE_SIGMOID_FWD:
		return 1 / (1 + expf(-x));
	case CUDNN_POINTWISE_RELU_FWD:
		return relu(p, x);
	case CUDNN_POINTWISE_RELU_BWD: /* b is dy */
		if (x > (float)p->upper)
			return 0;
		return x > (float)p->lower ? b : (float)p->slope * b;
	case CUDNN_POINTWISE_CMP_EQ:
		return x == b;
	case CUDNN_POINTWISE_CMP_GT:
		return x > b;
	case CUDNN_POINTWISE_CMP_GE:
		return x >= b;
	case CUDNN_POINTWISE_CMP_LT:
		return x < b;
	case CUDNN_POINTWISE_CMP_LE:
		return x <= b;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return t != 0 ? x : b;
	default: /* IDENTITY; others are refused when they are finalized */
		return x;
	}
}

/* Distances in the values of t, for the dimensions N, H, W, C of a result; 0 where it is broadcast. */
static void steps_of(const struct soft__tensor *t, int64_t step[4])
{
	const int64_t n[4] = {t->dims[0], t->dims[2], t->dims[3], t->dims[1]};
	int64_t all = 1;

	for (int d = 3; d >= 0; d--) {
		step[d] = n[d] == 1 ? 0 : all;
		all *= n[d];
	}
}

void soft__pointwise_run(const struct soft__op *op, float *const in[3], float *out)
{
	const int64_t *dims = op->out[0].dims;
	const bool backward = soft__is_backward(op->pointwise.mode);
	const float zero = 0, *operand[3] = {&zero, &zero, &zero},
		    scale[2] = {op->pointwise.alpha1, backward ? 1 : op->pointwise.alpha2};
	int64_t step[3][4] = {{0}};

	for (int i = 0; i < op->n_in; i++) {
		operand[i] = in[i];
		steps_of(&op->in[i], step[i]);
	}
	for (int64_t n = 0; n < dims[0]; n++) {
		for (int64_t h = 0; h < dims[2]; h++) {
			for (int64_t w = 0; w < dims[3]; w++) {
				for (int64_t c = 0; c < dims[1]; c++) {
					float v[3];

					for (int i = 0; i < 3; i++)
						v[i] = operand[i][n * step[i][0] + h * step[i][1] + w * step[i][2] +
								  c * step[i][3]];
					*out++ = apply(&op->pointwise, scale[0] * v[0], scale[1] * v[1], v[2]);
				}
			}
		}
	}
}

void soft__statistics_run(const struct soft__op *op, const float *x, float *sum, float *square_sum)
{
	const int64_t channels = op->in[0].dims[1], n = soft__count(&op->in[0]);

	memset(sum, 0, sizeof(float) * (size_t)channels);
	memset(square_sum, 0, sizeof(float) * (size_t)channels);
	for (int64_t i = 0; i < n; i++) {
		sum[i % channels] += x[i];
		square_sum[i % channels] += x[i] * x[i];
	}
}
