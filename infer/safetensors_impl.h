/* The parsed header of a safetensors file, which safetensors_header.c fills and safetensors.c uses. */
#ifndef CT_INFER_SAFETENSORS_IMPL_H
#define CT_INFER_SAFETENSORS_IMPL_H

#include "base/json.h"
#include "infer/safetensors.h"

#define CT_ST_MAX_HEADER ((uint64_t)16 << 20)
#define CT_ST_MAX_TENSORS 65536
#define CT_ST_MAX_NAME 1024

struct ct_st_dtype {
	const char *name;
	size_t bytes;
	/* converts n elements at src (unaligned, little-endian) to fp32; NULL if the type cannot be read */
	void (*decode)(const uint8_t *src, float *out, size_t n);
};

struct ct_st_tensor {
	struct ct_tensor_desc desc;
	const struct ct_st_dtype *dtype;
	uint64_t begin, end; /* bytes from the start of the data */
};

struct ct_st_header {
	ct_json *json; /* the parsed JSON, which contains the names */
	int n;
	struct ct_st_tensor *tensors; /* [n] in the order of their data */
	int *by_name;                 /* [n] indexes of the tensors, sorted by name */
};

/* Parses a header of len bytes, which is followed by data_bytes bytes of tensor data. On failure, *out is empty. */
enum ct_status ct__st_header_parse(const char *text, size_t len, uint64_t data_bytes, const char *where,
				   struct ct_st_header *out) CT_MUST_CHECK;
void ct__st_header_release(struct ct_st_header *h);
/* Reads the length of the header from the first 8 bytes of a file whose size is file_bytes. */
enum ct_status ct__st_header_len(const uint8_t first[8], uint64_t file_bytes, const char *where,
				 size_t *len) CT_MUST_CHECK;
const struct ct_st_dtype *ct__st_dtype_find(const char *name); /* returns NULL if the type is unknown */
/* Fails with "<where>: tensor \"<name, escaped>\" <text>". */
enum ct_status ct__st_fail(enum ct_status status, const char *where, const char *name, const char *fmt, ...)
	CT_PRINTF(4, 5);

#endif
