/* safetensors files: 8 bytes little-endian header length, JSON header, tensor data. Only F32 tensors are written. F32,
 * F64, BF16, F16 and I64 are read and converted to fp32; other element types are listed but cannot be read. Format: README of the
 * safetensors project. Every offset, length and name is checked against the file before use: the tensors must cover the data
 * completely and without overlap, in any order. Limits: 16 MiB of header, 65,536 tensors, 8 dimensions, names of 1,024 bytes. Objects belong to one thread. */
#ifndef CT_TRAINER_CHECKPOINT_SAFETENSORS_H
#define CT_TRAINER_CHECKPOINT_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"

#define CT_TENSOR_MAX_DIMS 8

struct ct_tensor_desc {
	const char *name;
	int ndim; /* 0: a scalar */
	int64_t dims[CT_TENSOR_MAX_DIMS];
	const float *data; /* fp32, row-major; NULL: written by the callback */
};
/* Product of the dimensions of a description that came from ct_safetensors_at, or that ct_safetensors_write took. */
size_t ct_tensor_n(const struct ct_tensor_desc *d);

/* Fills `out` [n elements, n > 0] with tensor i. */
typedef enum ct_status (*ct_tensor_fill_fn)(void *user, int i, float *out);

/* Writes to `path` (must be new; fsynced; removed again on failure); sha gets the hex SHA-256 of the whole file, bytes
 * its size. metadata: pairs key, value, ..., NULL; may be NULL. Holds one tensor in memory at a time; tensors with
 * data are written without a copy. CT_IO names the path. */
enum ct_status ct_safetensors_write(const char *path, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill,
				    void *user, const char *const *metadata, char sha[65],
				    uint64_t *bytes) CT_MUST_CHECK;

typedef struct ct_safetensors ct_safetensors;
/* Opens and checks the header; CT_DATA names the file and the error. Tensors are numbered in the order of their data. */
enum ct_status ct_safetensors_open(const char *path, ct_safetensors **out) CT_MUST_CHECK;
void ct_safetensors_close(ct_safetensors *s);
int ct_safetensors_count(const ct_safetensors *s);
/* Borrowed names and shapes; desc.data is NULL. dtype (may be NULL): "F32" ... */
void ct_safetensors_at(const ct_safetensors *s, int i, struct ct_tensor_desc *out, const char **dtype);
int ct_safetensors_find(const ct_safetensors *s, const char *name); /* -1 when absent */
/* A string of the header's __metadata__, borrowed, NULL if absent. */
const char *ct_safetensors_metadata(const ct_safetensors *s, const char *key);
/* Reads tensor i as fp32 into out [n], n its element count. CT_UNSUPPORTED for other element types, CT_DATA or CT_IO
 * if the file changed or cannot be read. */
enum ct_status ct_safetensors_read(const ct_safetensors *s, int i, float *out, size_t n) CT_MUST_CHECK;

#endif
