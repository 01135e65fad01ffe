/* Reads and writes safetensors files, which consist of the length of the header (8 bytes, little-endian), a JSON
 * header, and the data of the tensors. The format is described in the README of the safetensors project. Only F32
 * tensors are written. F32, F64, BF16, F16 and I64 are read and converted to fp32. Other element types are listed, but
 * cannot be read. Every offset, length and name is checked against the file before it is used. The tensors may be in
 * any order, but must cover the data completely and without overlap. Limits: a header of 16 MiB, 65,536 tensors, 8
 * dimensions, and names of 1,024 bytes. Several threads may read from the same ct_safetensors object. */
#ifndef CT_INFER_SAFETENSORS_H
#define CT_INFER_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"

#define CT_TENSOR_MAX_DIMS 8

struct ct_tensor_desc {
	const char *name;
	int ndim; /* 0 for a scalar */
	int64_t dims[CT_TENSOR_MAX_DIMS];
	const float *data; /* fp32, row-major; NULL if the callback supplies the values */
};
/* Returns the number of elements, which is the product of the dimensions. The description must come from
 * ct_safetensors_at, or ct_safetensors_write must have accepted it. */
size_t ct_tensor_n(const struct ct_tensor_desc *d);

/* A callback that writes the values of tensor i to `out`, which has room for all elements of the tensor (at least
 * one). */
typedef enum ct_status (*ct_tensor_fill_fn)(void *user, int i, float *out);

/* Writes and fsyncs a new file `path`. On failure, the file is removed. Stores the hexadecimal SHA-256 of the complete
 * file in sha, and its size in bytes. metadata is NULL, or a NULL-terminated list of alternating keys and values. At
 * most one tensor is held in memory at a time; tensors with data are written without a copy. Fails with CT_IO; the
 * message contains the path. */
enum ct_status ct_safetensors_write(const char *path, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill,
				    void *user, const char *const *metadata, char sha[65],
				    uint64_t *bytes) CT_MUST_CHECK;

typedef struct ct_safetensors ct_safetensors;
/* Opens a file and checks its header. Fails with CT_DATA; the message names the file and the error. Tensors are
 * numbered in the order in which their data is stored. */
enum ct_status ct_safetensors_open(const char *path, ct_safetensors **out) CT_MUST_CHECK;
/* Does the same for the contents of a file, bytes [n], which are borrowed until the close. */
enum ct_status ct_safetensors_open_memory(const void *bytes, size_t n, const char *where,
					  ct_safetensors **out) CT_MUST_CHECK;
void ct_safetensors_close(ct_safetensors *s);
int ct_safetensors_count(const ct_safetensors *s);
/* Returns the description of tensor i in *out. Its name is borrowed, and out->data is NULL. *dtype is the name of the
 * element type, for example "F32"; dtype may be NULL. */
void ct_safetensors_at(const ct_safetensors *s, int i, struct ct_tensor_desc *out, const char **dtype);
int ct_safetensors_find(const ct_safetensors *s, const char *name); /* Returns -1 if there is no such tensor. */
/* Returns the value of `key` in the header's __metadata__, or NULL if there is no such key. The result is borrowed. */
const char *ct_safetensors_metadata(const ct_safetensors *s, const char *key);
/* Reads tensor i into `out` and converts it to fp32. n is its number of elements. Fails with CT_UNSUPPORTED if its
 * element type cannot be read, and with CT_DATA or CT_IO if the file has changed or cannot be read. */
enum ct_status ct_safetensors_read(const ct_safetensors *s, int i, float *out, size_t n) CT_MUST_CHECK;

#endif
