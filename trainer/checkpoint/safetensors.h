/* Reads and writes safetensors files, which consist of the length of the header (8 bytes, little-endian), a JSON
 * header, and the data of the tensors. The format is described in the README of the safetensors project. Only F32
 * tensors are written. F32, F64, BF16, F16 and I64 are read and converted to fp32. Other element types are listed,
 * but cannot be read. Every offset, length and name is checked against the file before it is used. The tensors may be
 * in any order, but must cover the data completely and without overlap. Limits: 16 MiB of header, 65,536 tensors, 8
 * dimensions, names of 1,024 bytes. An object may be used by one thread at a time. */
#ifndef CT_TRAINER_CHECKPOINT_SAFETENSORS_H
#define CT_TRAINER_CHECKPOINT_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"

#define CT_TENSOR_MAX_DIMS 8

struct ct_tensor_desc {
	const char *name;
	int ndim; /* 0 for a scalar */
	int64_t dims[CT_TENSOR_MAX_DIMS];
	const float *data; /* fp32, row-major; NULL if the callback supplies the values */
};
/* Returns the product of the dimensions of a description from ct_safetensors_at, or one that ct_safetensors_write has
 * accepted. */
size_t ct_tensor_n(const struct ct_tensor_desc *d);

/* Writes the values of tensor i to `out` [n elements, n > 0]. */
typedef enum ct_status (*ct_tensor_fill_fn)(void *user, int i, float *out);

/* Writes and fsyncs a new file `path`, which is removed again on failure. Stores the hexadecimal SHA-256 of the
 * complete file in sha, and its size in bytes. metadata is NULL or a list of pairs (key, value, ..., NULL). At most
 * one tensor is held in memory at a time; tensors with data are written without a copy. Fails with CT_IO and the path
 * in the message. */
enum ct_status ct_safetensors_write(const char *path, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill,
				    void *user, const char *const *metadata, char sha[65],
				    uint64_t *bytes) CT_MUST_CHECK;

typedef struct ct_safetensors ct_safetensors;
/* Opens a file and checks its header. Fails with CT_DATA; the message names the file and the error. Tensors are
 * numbered in the order of their data. */
enum ct_status ct_safetensors_open(const char *path, ct_safetensors **out) CT_MUST_CHECK;
void ct_safetensors_close(ct_safetensors *s);
int ct_safetensors_count(const ct_safetensors *s);
/* Returns the description of tensor i, with a borrowed name and shape; desc.data is NULL. *dtype is "F32", for example;
 * dtype may be NULL. */
void ct_safetensors_at(const ct_safetensors *s, int i, struct ct_tensor_desc *out, const char **dtype);
int ct_safetensors_find(const ct_safetensors *s, const char *name); /* Returns -1 if there is no such tensor. */
/* Returns a string of the header's __metadata__, borrowed, or NULL if it does not exist. */
const char *ct_safetensors_metadata(const ct_safetensors *s, const char *key);
/* Reads tensor i as fp32 into out. n is its number of elements. Fails with CT_UNSUPPORTED for other element types,
 * and with CT_DATA or CT_IO if the file has changed or cannot be read. */
enum ct_status ct_safetensors_read(const ct_safetensors *s, int i, float *out, size_t n) CT_MUST_CHECK;

#endif
