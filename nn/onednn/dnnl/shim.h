/* A small interface to oneDNN. Only the files of this directory include dnnl.h and handle the differences between the C
 * APIs of 2.x (operation descriptors) and 3.x (primitive descriptors).
 *
 *   context  oneDNN's engine and stream; owns all descs and prims until it is closed
 *   desc     dimensions, element type and layout of a tensor. Interned: equal descs have the same address
 *   prim     an operation on descs with the implementation that oneDNN chose. Interned by its spec, compiled on first
 *            use
 *   call     a prim with the addresses of its arguments, ready to run; owned by the caller
 *
 * Prims and calls keep no data between runs, and the caller provides scratchpads. A context may be used by one thread
 * at a time. Its calls run on as many threads as ct_parallel_use_threads has set for that thread. Errors: CT_NOMEM, or
 * CT_DEVICE with the meaning of oneDNN's status in the message. */
#ifndef CT_NN_ONEDNN_DNNL_SHIM_H
#define CT_NN_ONEDNN_DNNL_SHIM_H

#include <stdint.h>

#include "base/status.h"

#define CT_DNNL_MAX_DIMS 5
#define CT_DNNL_MAX_ARGS 16

typedef struct ct_dnnl ct_dnnl;
typedef struct ct_dnnl_desc ct_dnnl_desc;
typedef struct ct_dnnl_prim ct_dnnl_prim;
typedef struct ct_dnnl_call ct_dnnl_call;

enum ct_dnnl_type { CT_DNNL_F32, CT_DNNL_BF16 };

enum ct_dnnl_op {
	CT_DNNL_CONV_FORWARD,
	CT_DNNL_CONV_BACKWARD_DATA,
	CT_DNNL_CONV_BACKWARD_WEIGHTS,
	CT_DNNL_LINEAR_FORWARD,
	CT_DNNL_LINEAR_BACKWARD_DATA,
	CT_DNNL_LINEAR_BACKWARD_WEIGHTS,
	CT_DNNL_NORM_FORWARD,
	CT_DNNL_NORM_BACKWARD,
	CT_DNNL_POOL_FORWARD,
	CT_DNNL_POOL_BACKWARD,
	CT_DNNL_RELU_FORWARD,
	CT_DNNL_RELU_BACKWARD, /* computed from the output of the forward pass */
	CT_DNNL_ADD,           /* dst = src + other; dst may be src */
	CT_DNNL_REORDER        /* dst = src in another layout */
};

enum ct_dnnl_arg {
	CT_DNNL_SRC,
	CT_DNNL_OTHER, /* the second addend */
	CT_DNNL_WEIGHTS,
	CT_DNNL_BIAS,
	CT_DNNL_DST,
	CT_DNNL_DIFF_SRC,
	CT_DNNL_DIFF_WEIGHTS,
	CT_DNNL_DIFF_BIAS,
	CT_DNNL_DIFF_DST,
	CT_DNNL_MEAN,
	CT_DNNL_VARIANCE,
	CT_DNNL_SCALE,
	CT_DNNL_SHIFT,
	CT_DNNL_DIFF_SCALE,
	CT_DNNL_DIFF_SHIFT,
	CT_DNNL_WORKSPACE,
	CT_DNNL_SCRATCHPAD,
	CT_DNNL_N_ARGS
};

/* Specs are compared byte by byte, so unused fields must be zero. In backward operations, src, weights, bias and dst
 * describe both the tensors of the forward operation and their gradients. `other` is the second addend, or the data
 * that a backward operation needs from the forward pass (norm: src, ReLU: dst). Except for norm and ReLU, the layout of
 * a desc may be `any`; oneDNN then chooses it. */
struct ct_dnnl_spec {
	const ct_dnnl_desc *src, *other, *weights, *bias, *dst;
	const ct_dnnl_prim *forward;                       /* the forward primitive of a backward operation */
	int32_t kernel[2], stride[2], pad[2], dilation[2]; /* height, width; dilation 1: dense */
	int32_t op;                                        /* enum ct_dnnl_op */
	int32_t inference, relu,
		average; /* relu: apply a ReLU to the result; average: average pooling that does not count padding */
	int32_t sum;     /* forward convolution: add the result to dst before the ReLU */
	float eps;
};

/* Returns whether the loaded library is compatible with the headers used at compile time. */
bool ct__dnnl_available(char *why, size_t why_len);
/* "oneDNN 2.6.3 avx512_core" */
const char *ct__dnnl_version(void);
/* Returns whether this processor has bfloat16 instructions. On other processors, oneDNN emulates them, which is slower
 * than fp32. */
bool ct__dnnl_has_bf16(void);
/* Returns whether oneDNN uses AVX-512. */
bool ct__dnnl_has_avx512(void);
/* Returns whether oneDNN uses the matrix units of this processor (AMX). */
bool ct__dnnl_has_matrix_units(void);

enum ct_status ct__dnnl_open(ct_dnnl **out) CT_MUST_CHECK;
void ct__dnnl_close(ct_dnnl *c);

/* Get a desc in row-major (plain) layout, or in the layout `any`, which oneDNN chooses. Elements are fp32; the
 * functions with the suffix _of take the element type. */
enum ct_status ct__dnnl_plain(ct_dnnl *c, int ndims, const int *dims, const ct_dnnl_desc **out) CT_MUST_CHECK;
enum ct_status ct__dnnl_any(ct_dnnl *c, int ndims, const int *dims, const ct_dnnl_desc **out) CT_MUST_CHECK;
enum ct_status ct__dnnl_plain_of(ct_dnnl *c, enum ct_dnnl_type type, int ndims, const int *dims,
				 const ct_dnnl_desc **out) CT_MUST_CHECK;
enum ct_status ct__dnnl_any_of(ct_dnnl *c, enum ct_dnnl_type type, int ndims, const int *dims,
			       const ct_dnnl_desc **out) CT_MUST_CHECK;
enum ct_dnnl_type ct__dnnl_desc_type(const ct_dnnl_desc *d);
size_t ct__dnnl_type_bytes(enum ct_dnnl_type type);
int ct__dnnl_desc_ndims(const ct_dnnl_desc *d);
const int *ct__dnnl_desc_dims(const ct_dnnl_desc *d);
bool ct__dnnl_desc_is_plain(const ct_dnnl_desc *d);
/* [N,C/block,H,W,block] with blocks of 8 or 16 channels */
enum ct_status ct__dnnl_blocked_of(ct_dnnl *c, enum ct_dnnl_type type, const int dims[4], int block,
				   const ct_dnnl_desc **out) CT_MUST_CHECK;
/* [N,H,W,C]; the plain desc if H and W are 1, because both layouts are the same then */
enum ct_status ct__dnnl_nhwc_of(ct_dnnl *c, enum ct_dnnl_type type, const int dims[4],
				const ct_dnnl_desc **out) CT_MUST_CHECK;
/* [K/block,C/block,R,S,block c,block k], also with blocks of 8 or 16 */
enum ct_status ct__dnnl_blocked_weights(ct_dnnl *c, const int dims[4], int block,
					const ct_dnnl_desc **out) CT_MUST_CHECK;
/* Weights [K,C,R,S], stored as [R,S,C,K]. */
enum ct_status ct__dnnl_rsck_weights(ct_dnnl *c, const int dims[4], const ct_dnnl_desc **out) CT_MUST_CHECK;
size_t ct__dnnl_desc_bytes(const ct_dnnl_desc *d); /* including padding */
/* Writes strides and blocks as a string. */
void ct__dnnl_desc_text(const ct_dnnl_desc *d, char *text, size_t len);

/* Gets the prim for the spec. *out is NULL if oneDNN has no implementation. */
enum ct_status ct__dnnl_prim_get(ct_dnnl *c, const struct ct_dnnl_spec *spec, const ct_dnnl_prim **out) CT_MUST_CHECK;
/* Gets the layout of an argument. *out is NULL if the prim has no such argument. */
enum ct_status ct__dnnl_prim_desc(ct_dnnl *c, const ct_dnnl_prim *p, enum ct_dnnl_arg arg,
				  const ct_dnnl_desc **out) CT_MUST_CHECK;
size_t ct__dnnl_prim_bytes(const ct_dnnl_prim *p, enum ct_dnnl_arg arg); /* 0 if there is no such argument */
const char *ct__dnnl_prim_impl(const ct_dnnl_prim *p);
/* Returns a speed class, which is inferred from the name of the implementation. 0: reference loops; 1: a convolution
 * that copies its input and computes a matrix product; 2: an implementation made for this processor. */
int ct__dnnl_prim_rank(const ct_dnnl_prim *p);

struct ct_dnnl_bind {
	enum ct_dnnl_arg arg;
	void *ptr;
};
/* Creates a call. Compiles the prim if this is its first call. Sets the padding of the tensors to zero. */
enum ct_status ct__dnnl_call_create(ct_dnnl *c, const ct_dnnl_prim *p, const struct ct_dnnl_bind *binds, int n,
				    ct_dnnl_call **out) CT_MUST_CHECK;
void ct__dnnl_call_destroy(ct_dnnl_call *call);
enum ct_status ct__dnnl_call_set(ct_dnnl_call *call, enum ct_dnnl_arg arg, void *ptr) CT_MUST_CHECK;
enum ct_status ct__dnnl_call_run(ct_dnnl *c, const ct_dnnl_call *call) CT_MUST_CHECK;
/* Runs the call in a separate stream, for use by threads other than the one that computes. */
enum ct_status ct__dnnl_call_run_alone(ct_dnnl *c, const ct_dnnl_call *call) CT_MUST_CHECK;

#endif
