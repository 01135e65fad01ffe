/* Conversions between the element types and fp32. */
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

static uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static float float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static float from_half(uint16_t h)
{
	/* As an fp32 number with the same exponent bits, which also holds the subnormal ones; then the bias is
	 * corrected. */
	uint32_t u = (h & 0x7fffu) << 13;
	float f = float_of(u) * 0x1p112f;

	if (u >= 0x0f800000) /* infinity, NaN */
		f = float_of(u | 0x7f800000);
	return float_of(bits_of(f) | (h & 0x8000u) << 16);
}

/* To the nearest, ties to even. */
static uint16_t to_half(float f)
{
	uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff, h;

	if (a > 0x7f800000)
		h = 0x7e00;
	else if (a >= 0x47800000)
		h = 0x7c00;
	else if (a < 0x38800000) /* subnormal: the addition rounds to multiples of 2^-24 */
		h = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
	else
		h = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);
	return (uint16_t)(h | sign);
}

static float from_bf16(uint16_t h)
{
	return float_of((uint32_t)h << 16);
}

static uint16_t to_bf16(float f)
{
	uint32_t u = bits_of(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A row of channels. */
static void load_row(cudnnDataType_t type, const void *memory, int64_t at, int64_t stride, float *values, int64_t n)
{
	const uint16_t *m = memory;

	if (type == CUDNN_DATA_FLOAT && stride == 1) {
		memcpy(values, (const float *)memory + at, sizeof(float) * (size_t)n);
	} else if (type == CUDNN_DATA_FLOAT) {
		for (int64_t i = 0; i < n; i++)
			values[i] = ((const float *)memory)[at + i * stride];
	} else if (type == CUDNN_DATA_HALF) {
		for (int64_t i = 0; i < n; i++)
			values[i] = from_half(m[at + i * stride]);
	} else {
		for (int64_t i = 0; i < n; i++)
			values[i] = from_bf16(m[at + i * stride]);
	}
}

static void store_row(cudnnDataType_t type, void *memory, int64_t at, int64_t stride, const float *values, int64_t n)
{
	uint16_t *m = memory;

	if (type == CUDNN_DATA_FLOAT && stride == 1) {
		memcpy((float *)memory + at, values, sizeof(float) * (size_t)n);
	} else if (type == CUDNN_DATA_FLOAT) {
		for (int64_t i = 0; i < n; i++)
			((float *)memory)[at + i * stride] = values[i];
	} else if (type == CUDNN_DATA_HALF) {
		for (int64_t i = 0; i < n; i++)
			m[at + i * stride] = to_half(values[i]);
	} else {
		for (int64_t i = 0; i < n; i++)
			m[at + i * stride] = to_bf16(values[i]);
	}
}

void soft__load(const struct soft__tensor *t, const void *memory, float *values)
{
	for (int64_t n = 0; n < t->dims[0]; n++) {
		for (int64_t h = 0; h < t->dims[2]; h++) {
			for (int64_t w = 0; w < t->dims[3]; w++) {
				load_row(t->type, memory, n * t->strides[0] + h * t->strides[2] + w * t->strides[3],
					 t->strides[1], values, t->dims[1]);
				values += t->dims[1];
			}
		}
	}
}

void soft__store(const struct soft__tensor *t, void *memory, const float *values)
{
	for (int64_t n = 0; n < t->dims[0]; n++) {
		for (int64_t h = 0; h < t->dims[2]; h++) {
			for (int64_t w = 0; w < t->dims[3]; w++) {
				store_row(t->type, memory, n * t->strides[0] + h * t->strides[2] + w * t->strides[3],
					  t->strides[1], values, t->dims[1]);
				values += t->dims[1];
			}
		}
	}
}

void soft__round(cudnnDataType_t type, float *values, int64_t n)
{
	if (type == CUDNN_DATA_HALF) {
		for (int64_t i = 0; i < n; i++)
			values[i] = from_half(to_half(values[i]));
	} else if (type == CUDNN_DATA_BFLOAT16) {
		for (int64_t i = 0; i < n; i++)
			values[i] = from_bf16(to_bf16(values[i]));
	}
}

/* 10 bits of mantissa, to the nearest, ties away from zero. */
void soft__round_tf32(float *values, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t u = bits_of(values[i]);

		if ((u & 0x7f800000) != 0x7f800000)
			values[i] = float_of((u + 0x1000) & ~0x1fffu);
	}
}
