/* Converts the element types of safetensors files to fp32. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "infer/safetensors_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are moved without swapping bytes");

static void decode_f32(const uint8_t *src, float *out, size_t n)
{
	memcpy(out, src, n * sizeof(float));
}

static void decode_f64(const uint8_t *src, float *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double v;

		memcpy(&v, src + 8 * i, sizeof(v));
		/* In C, converting a value outside the range of fp32 is undefined; IEEE 754 rounds it to infinity. */
		if (fabs(v) >= 0x1.ffffffp127 && !isnan(v))
			v = copysign(INFINITY, v);
		out[i] = (float)v;
	}
}

static void decode_bf16(const uint8_t *src, float *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = ct_bf16_to_f32((uint16_t)(src[2 * i] | src[2 * i + 1] << 8));
}

static void decode_f16(const uint8_t *src, float *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = ct_f16_to_f32((uint16_t)(src[2 * i] | src[2 * i + 1] << 8));
}

static void decode_i64(const uint8_t *src, float *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int64_t v;

		memcpy(&v, src + 8 * i, sizeof(v));
		out[i] = (float)v;
	}
}

static const struct ct_st_dtype dtypes[] = {
	{"F32", 4, decode_f32}, {"F64", 8, decode_f64}, {"BF16", 2, decode_bf16}, {"F16", 2, decode_f16},
	{"I64", 8, decode_i64}, {"BOOL", 1, NULL},      {"U8", 1, NULL},          {"I8", 1, NULL},
	{"I16", 2, NULL},       {"U16", 2, NULL},       {"I32", 4, NULL},         {"U32", 4, NULL},
	{"U64", 8, NULL},       {"F8_E5M2", 1, NULL},   {"F8_E4M3", 1, NULL},     {"C64", 8, NULL},
};

const struct ct_st_dtype *ct__st_dtype_find(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(dtypes); i++) {
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	}
	return NULL;
}
