/* safetensors files: 8 bytes little-endian header length, JSON header, tensor data. Only F32 and I64 tensors are written; F32, F64,
 * BF16, F16 and I64 are read (as fp32). Format: the safetensors project's README. Every offset, length and name is checked against the
 * file before use; header limit 16 MiB, 65,536 tensors. */
#ifndef CT_TRAINER_SAFETENSORS_H
#define CT_TRAINER_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"

struct ct_tensor_desc {
	const char *name;
	int ndim;
	int64_t dims[4];
	const float *data; /* fp32, row-major; NULL: written by the callback */
};

/* Fills `out` [n elements] with tensor i. */
typedef enum ct_status (*ct_tensor_fill_fn)(void *user, int i, float *out);

/* Writes to `path` (new file, fsynced); sha gets the hex SHA-256 of the whole file, bytes its size. metadata: pairs key, value, ..., NULL. */
enum ct_status ct_safetensors_write(const char *path, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill, void *user,
				    const char *const *metadata, char sha[65], uint64_t *bytes) CT_MUST_CHECK;

typedef struct ct_safetensors ct_safetensors;
/* Opens and checks the header; CT_DATA names file and what is wrong. */
enum ct_status ct_safetensors_open(const char *path, ct_safetensors **out) CT_MUST_CHECK;
void ct_safetensors_close(ct_safetensors *s);
int ct_safetensors_count(const ct_safetensors *s);
/* Borrowed names and shapes; desc.data is NULL. */
void ct_safetensors_at(const ct_safetensors *s, int i, struct ct_tensor_desc *out, const char **dtype);
int ct_safetensors_find(const ct_safetensors *s, const char *name); /* -1 when absent */
/* Reads tensor i as fp32 into out [n]. */
enum ct_status ct_safetensors_read(const ct_safetensors *s, int i, float *out, size_t n) CT_MUST_CHECK;
/* Header parser alone, for the fuzzer. */
enum ct_status ct_safetensors_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
