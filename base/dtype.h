/* Element types that engines and communicators share. CT_F16 is IEEE 754 binary16; base/half.h converts it. */
#ifndef CT_BASE_DTYPE_H
#define CT_BASE_DTYPE_H

#include <stddef.h>

enum ct_dtype { CT_F32, CT_F64, CT_I32, CT_I64, CT_U8, CT_BF16, CT_F16, CT_N_DTYPES };
size_t ct_dtype_bytes(enum ct_dtype t);
const char *ct_dtype_name(enum ct_dtype t); /* "f32" ... */

#endif
