/* The elements of buffers of any type, as doubles. */
#ifndef CT_TESTS_DIST_ELEMENTS_H
#define CT_TESTS_DIST_ELEMENTS_H

#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/half.h"
#include "tests/dist/ranks.h"

static inline void put(void *buf, enum ct_dtype t, size_t i, double v)
{
	float f = (float)v;
	uint32_t u;

	switch (t) {
	case CT_F32:
		((float *)buf)[i] = f;
		return;
	case CT_F64:
		((double *)buf)[i] = v;
		return;
	case CT_I32:
		((int32_t *)buf)[i] = (int32_t)v;
		return;
	case CT_I64:
		((int64_t *)buf)[i] = (int64_t)v;
		return;
	case CT_U8:
		((uint8_t *)buf)[i] = (uint8_t)v;
		return;
	case CT_F16:
		((uint16_t *)buf)[i] = ct_f16_from_f32(f);
		return;
	case CT_BF16:
		memcpy(&u, &f, sizeof(u));
		((uint16_t *)buf)[i] = (uint16_t)(u >> 16);
		return;
	case CT_N_DTYPES:
		break;
	}
	CHECK(!"type");
}

static inline double get(const void *buf, enum ct_dtype t, size_t i)
{
	uint32_t u;
	float f;

	switch (t) {
	case CT_F32:
		return ((const float *)buf)[i];
	case CT_F64:
		return ((const double *)buf)[i];
	case CT_I32:
		return ((const int32_t *)buf)[i];
	case CT_I64:
		return (double)((const int64_t *)buf)[i];
	case CT_U8:
		return ((const uint8_t *)buf)[i];
	case CT_F16:
		return ct_f16_to_f32(((const uint16_t *)buf)[i]);
	case CT_BF16:
		u = (uint32_t)((const uint16_t *)buf)[i] << 16;
		memcpy(&f, &u, sizeof(f));
		return f;
	case CT_N_DTYPES:
		break;
	}
	CHECK(!"type");
	return 0;
}

#endif
