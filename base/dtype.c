#include "base/dtype.h"

#include "base/status.h"

static const struct {
	const char *name;
	size_t bytes;
} dtypes[CT_N_DTYPES] = {
	[CT_F32] = {"f32", 4}, [CT_F64] = {"f64", 8},   [CT_I32] = {"i32", 4}, [CT_I64] = {"i64", 8},
	[CT_U8] = {"u8", 1},   [CT_BF16] = {"bf16", 2}, [CT_F16] = {"f16", 2},
};

size_t ct_dtype_bytes(enum ct_dtype t)
{
	CT_ASSERT((unsigned)t < CT_N_DTYPES);
	return dtypes[t].bytes;
}

const char *ct_dtype_name(enum ct_dtype t)
{
	return (unsigned)t < CT_N_DTYPES ? dtypes[t].name : "unknown";
}
