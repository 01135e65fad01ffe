/* The kinds of operations and the arithmetic of reductions, which communicator back ends in C and C++ share. For files
 * in dist/ and tests only. */
#ifndef CT_DIST_COMM_COMM_OP_IMPL_H
#define CT_DIST_COMM_COMM_OP_IMPL_H

#include "dist/comm/comm.h"

enum ct_comm_kind {
	CT_COMM_ALLREDUCE,
	CT_COMM_REDUCE,
	CT_COMM_BROADCAST,
	CT_COMM_ALLGATHER,
	CT_COMM_GATHER,
	CT_COMM_SCATTER,
	CT_COMM_REDUCE_SCATTER,
	CT_COMM_BARRIER,
	CT_COMM_SEND,
	CT_COMM_RECV
};
const char *ct__comm_kind_name(enum ct_comm_kind k);
static inline bool ct__comm_is_p2p(enum ct_comm_kind k)
{
	return k == CT_COMM_SEND || k == CT_COMM_RECV;
}

/* Computes dst[i] = dst[i] op src[i]; for CT_AVG, only the sum. Vectorized. Integers wrap around. bf16 is computed in
 * fp32, and each result is rounded to nearest even. Min and max propagate NaN. dst and src must be distinct. */
void ct__reduce_into(void *dst, const void *src, size_t n, enum ct_dtype t, enum ct_redop op);
/* Computes dst[i] /= k, for CT_AVG; integers are rounded toward zero. */
void ct__reduce_scale(void *dst, size_t n, enum ct_dtype t, int k);
/* Computes out[j][i] = in[0][i] op in[1][i] op ..., in this order, for every j; for CT_AVG, the result is divided by
 * n_in. Sums and averages of 16-bit numbers are computed in fp32, and rounded once. Inputs and outputs may be the same
 * vectors. */
void ct__reduce_ranks(void *const *in, int n_in, void *const *out, int n_out, size_t n, enum ct_dtype t,
		      enum ct_redop op);

#endif
