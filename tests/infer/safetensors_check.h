#ifndef CT_TESTS_INFER_SAFETENSORS_CHECK_H
#define CT_TESTS_INFER_SAFETENSORS_CHECK_H

#include "infer/safetensors_impl.h"

/* Checks `data` as if it were the contents of a file, without reading tensors. */
static inline enum ct_status safetensors_check(const uint8_t *data, size_t len)
{
	static const char where[] = "memory";
	struct ct_st_header h;
	size_t header;

	if (len < 8)
		return CT_FAIL(CT_DATA, "%s is not a safetensors file: it has only %zu bytes", where, len);
	CT_TRY(ct__st_header_len(data, len, where, &header));
	CT_TRY(ct__st_header_parse((const char *)data + 8, header, len - 8 - header, where, &h));
	ct__st_header_release(&h);
	return CT_OK;
}

#endif
