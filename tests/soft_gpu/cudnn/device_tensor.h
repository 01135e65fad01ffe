/* Tensors in device memory for tests of plans. Their values are random and rounded to the type, and are stored in the
 * layout of the descriptor. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_DEVICE_TENSOR_H
#define CT_TESTS_SOFT_GPU_CUDNN_DEVICE_TENSOR_H

#include <math.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/cudnn/build.h"

struct device_tensor {
	int64_t dims[4], strides[4], uid, n; /* n: number of elements; the logical order is [N,C,H,W] */
	cudnnDataType_t type;
	bool is_virtual;
	double *values; /* in host memory, in logical order */
	size_t bytes;
	void *memory;
	cudnnBackendDescriptor_t descriptor;
};

#define cudnn_ok(call)                                                                                               \
	do {                                                                                                         \
		cudnnStatus_t st_ = (call);                                                                          \
		if (st_ != CUDNN_STATUS_SUCCESS) {                                                                   \
			char why_[256];                                                                              \
			cudnnGetLastErrorString(why_, sizeof(why_));                                                 \
			fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, cudnnGetErrorString(st_), \
				why_);                                                                               \
			if (in_child)                                                                                \
				_exit(3);                                                                            \
			fail();                                                                                      \
		}                                                                                                    \
	} while (0)

static inline double random_value(void)
{
	static uint32_t seed = 7;

	seed = seed * 1664525u + 1013904223u;
	return (double)(seed >> 8) / (1 << 23) - 1;
}

/* Rounds v to the type, using the distance between neighbouring values, and thus independently of the stand-in's
 * conversions. */
static inline double round_to(cudnnDataType_t type, double v)
{
	const int mantissa = type == CUDNN_DATA_HALF       ? 10
			     : type == CUDNN_DATA_BFLOAT16 ? 7
							   : 23,
		  least = type == CUDNN_DATA_HALF ? -14 : -126;
	int e;

	if (v == 0 || !isfinite(v))
		return v;
	frexp(v, &e);
	e = e - 1 < least ? least : e - 1;
	double step = ldexp(1, e - mantissa), r = nearbyint(v / step) * step;
	return type == CUDNN_DATA_HALF && fabs(r) > 65504 ? copysign(INFINITY, v) : r;
}

static inline uint32_t encode(cudnnDataType_t type, double v)
{
	float f = (float)v;
	uint32_t u;
	int e;

	memcpy(&u, &f, 4);
	if (type == CUDNN_DATA_FLOAT)
		return u;
	if (type == CUDNN_DATA_BFLOAT16)
		return u >> 16;
	if (v == 0)
		return u >> 16;
	frexp(fabs(v), &e);
	uint32_t sign = u >> 16 & 0x8000;
	if (isinf(v))
		return sign | 0x7c00;
	if (e - 1 < -14)
		return sign | (uint32_t)ldexp(fabs(v), 24);
	return sign | (uint32_t)((e - 1 + 15) << 10) | ((uint32_t)ldexp(fabs(v), 10 - (e - 1)) & 1023);
}

static inline double decode(cudnnDataType_t type, uint32_t u)
{
	float f;

	if (type == CUDNN_DATA_HALF) {
		int e = u >> 10 & 31;
		double m = u & 1023, v = e == 31 ? (m != 0 ? NAN : INFINITY)
					 : e     ? ldexp(m + 1024, e - 25)
						 : ldexp(m, -24);

		return u & 0x8000 ? -v : v;
	}
	if (type == CUDNN_DATA_BFLOAT16)
		u <<= 16;
	memcpy(&f, &u, 4);
	return (double)f;
}

static inline size_t bytes_of(cudnnDataType_t type)
{
	return type == CUDNN_DATA_FLOAT ? 4 : 2;
}

static inline int64_t place_of(const struct device_tensor *t, int64_t i)
{
	int64_t at = 0;

	for (int d = 3; d >= 0; d--) {
		at += i % t->dims[d] * t->strides[d];
		i /= t->dims[d];
	}
	return at;
}

/* `extra` is the number of unused channels in memory after the channels of each pixel, so that the strides are not
 * those of a packed tensor. */
static inline struct device_tensor new_tensor(struct builder *b, cudnnDataType_t type, int64_t n, int64_t c, int64_t h,
					      int64_t w, int64_t extra, bool is_virtual)
{
	const int64_t row = c + extra;
	struct device_tensor t = {.dims = {n, c, h, w}, .strides = {h * w * row, 1, w * row, row}, .type = type};

	t.n = n * c * h * w;
	t.uid = b->next_uid++;
	t.is_virtual = is_virtual;
	t.bytes = (size_t)(n * h * w * row) * bytes_of(type);
	t.values = calloc((size_t)t.n, sizeof(double));
	t.descriptor = make_tensor(b, &(struct tensor_spec){.dims = {n, c, h, w},
							    .type = type,
							    .is_virtual = is_virtual,
							    .uid = t.uid,
							    .strides = t.strides});
	if (!is_virtual)
		ok(cudaMalloc(&t.memory, t.bytes));
	return t;
}

/* Writes the same random values to host memory and to device memory. */
static inline void fill(struct device_tensor *t)
{
	unsigned char *host = calloc(1, t->bytes);

	for (int64_t i = 0; i < t->n; i++) {
		t->values[i] = round_to(t->type, random_value());
		uint32_t u = encode(t->type, t->values[i]);
		memcpy(host + (size_t)place_of(t, i) * bytes_of(t->type), &u, bytes_of(t->type));
	}
	ok(cudaMemcpy(t->memory, host, t->bytes, cudaMemcpyHostToDevice));
	free(host);
}

/* Copies the values from device memory to t->values. */
static inline void download(struct device_tensor *t)
{
	unsigned char *host = malloc(t->bytes);

	ok(cudaMemcpy(host, t->memory, t->bytes, cudaMemcpyDeviceToHost));
	for (int64_t i = 0; i < t->n; i++) {
		uint32_t u = 0;

		memcpy(&u, host + (size_t)place_of(t, i) * bytes_of(t->type), bytes_of(t->type));
		t->values[i] = decode(t->type, u);
	}
	free(host);
}

static inline void free_tensor(struct device_tensor *t)
{
	free(t->values);
	if (t->memory)
		ok(cudaFree(t->memory));
}

/* Posts the plan with the memory of the tensors that are not virtual and with the workspace. */
static inline void execute(struct builder *b, cudnnHandle_t handle, const struct plan *p, int n,
			   struct device_tensor *const *tensors, void *workspace)
{
	int64_t uids[16];
	void *pointers[16];
	int n_stored = 0;

	for (int i = 0; i < n; i++) {
		if (tensors[i]->is_virtual)
			continue;
		uids[n_stored] = tensors[i]->uid;
		pointers[n_stored++] = tensors[i]->memory;
	}
	cudnnBackendDescriptor_t pack = make_pack(b, n_stored, uids, pointers, workspace);
	cudnn_ok(b->status);
	cudnn_ok(cudnnBackendExecute(handle, p->descriptor, pack));
}

#endif
