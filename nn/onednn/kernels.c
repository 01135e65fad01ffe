/* Compiled with -O3. Element-wise: results do not depend on the vector width. */
#include "nn/onednn/onednn_impl.h"

#include <string.h>

void ct__onednn_normalise(const uint8_t *x, int n, struct ct_shape s, const float *mean, const float *std, float *y)
{
	const size_t plane = (size_t)s.h * (size_t)s.w, c_count = (size_t)s.c;

	for (size_t i = 0; i < (size_t)n; i++) {
		for (size_t c = 0; c < c_count; c++) {
			const float scale = 1.0f / (255.0f * std[c]), shift = -mean[c] / std[c];
			const uint8_t *from = x + i * plane * c_count + c;
			float *restrict to = y + (i * c_count + c) * plane;
			if (c_count == 1) {
				for (size_t j = 0; j < plane; j++)
					to[j] = (float)from[j] * scale + shift;
			} else if (c_count == 3) {
				for (size_t j = 0; j < plane; j++)
					to[j] = (float)from[3 * j] * scale + shift;
			} else {
				for (size_t j = 0; j < plane; j++)
					to[j] = (float)from[c_count * j] * scale + shift;
			}
		}
	}
}

static inline uint16_t to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16, quiet = bits >> 16 | 0x40u;
	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float from_bf16(uint16_t x)
{
	const uint32_t bits = (uint32_t)x << 16;
	float y;

	memcpy(&y, &bits, sizeof(y));
	return y;
}

void ct__onednn_normalise_bf16(const uint8_t *x, int n, struct ct_shape s, const float *mean, const float *std,
			       uint16_t *y)
{
	const size_t plane = (size_t)s.h * (size_t)s.w, c_count = (size_t)s.c;

	for (size_t c = 0; c < c_count; c++) {
		const float scale = 1.0f / (255.0f * std[c]), shift = -mean[c] / std[c];
		uint16_t table[256];
		for (int v = 0; v < 256; v++)
			table[v] = to_bf16((float)v * scale + shift);
		for (size_t i = 0; i < (size_t)n; i++) {
			const uint8_t *from = x + i * plane * c_count + c;
			uint16_t *restrict to = y + (i * c_count + c) * plane;
			for (size_t j = 0; j < plane; j++)
				to[j] = table[from[c_count * j]];
		}
	}
}

void ct__onednn_multiply_bf16(uint16_t *out, const uint16_t *a, const uint16_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = to_bf16(from_bf16(a[i]) * from_bf16(b[i]));
}

void ct__onednn_to_bf16(uint16_t *out, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = to_bf16(x[i]);
}

void ct__onednn_multiply(float *out, const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = a[i] * b[i];
}

void ct__onednn_scale(float *out, const float *a, float scale, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = a[i] * scale;
}

bool ct__onednn_running(float *mean, float *variance, const float *batch_mean, const float *batch_variance, int c,
			float momentum, double count)
{
	const float keep = 1.0f - momentum, unbiased = (float)(count / (count - 1));
	float zero = 0.0f;

	for (int i = 0; i < c; i++) {
		mean[i] = keep * mean[i] + momentum * batch_mean[i];
		variance[i] = keep * variance[i] + momentum * (batch_variance[i] * unbiased);
		zero += 0.0f * batch_mean[i] + 0.0f * batch_variance[i];
	}
	return zero == 0.0f; /* else NaN */
}
