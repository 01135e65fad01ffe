/* Conversions between fp32 and the bits of 16-bit floating-point numbers: bf16 (the upper 16 bits of an fp32 number)
 * and f16 (IEEE 754 binary16). Conversion to fp32 is exact. Conversion from fp32 rounds to nearest, ties to even;
 * values out of range become infinite. */
#ifndef CT_BASE_HALF_H
#define CT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ct_f32_from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t ct_f32_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float ct_bf16_to_f32(uint16_t v)
{
	return ct_f32_from_bits((uint32_t)v << 16);
}

static inline uint16_t ct_bf16_from_f32(float f)
{
	const uint32_t u = ct_f32_bits(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float ct_f16_to_f32(uint16_t v)
{
	const uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 0x3ff;

	if (exponent == 31)
		return ct_f32_from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent > 0)
		return ct_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
	/* Zero and subnormals: multiplying by 2^-24 is exact. */
	return ct_f32_from_bits(sign | ct_f32_bits((float)mantissa * 0x1p-24f));
}

static inline uint16_t ct_f16_from_f32(float f)
{
	const uint32_t u = ct_f32_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 0x477ff000) /* 65520: halfway between the largest number and the next power of two */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude >= 0x38800000) /* 2^-14: the exponent moves from a bias of 127 to one of 15 */
		return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
	/* Subnormals are multiples of 2^-24, which is the spacing of fp32 numbers in [0.5, 1), so the addition
	 * rounds. */
	return (uint16_t)(sign | (ct_f32_bits(ct_f32_from_bits(magnitude) + 0.5f) - 0x3f000000));
}

#endif
