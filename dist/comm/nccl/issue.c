/* Passes operations to NCCL. A call of the nonblocking communicator may return before NCCL has accepted it, and nothing
 * else may be called until then; ct__nccl_end polls for this, with a deadline, and releases the lock between two looks,
 * so that the communicator can be aborted meanwhile. Gather and scatter are groups of messages without the part of the
 * root, which is copied, and a barrier is an all-reduce of one byte. Sends and receives are collected, and posted as
 * one group. */
#include "base/device/cuda_check.h"
#include "base/mem.h"
#include "dist/comm/nccl/nccl_impl.h"

enum ct_status ct__nccl_begin(struct comm_nccl *n)
{
	pthread_mutex_lock(&n->lock);
	if (n->nccl)
		return CT_OK;
	pthread_mutex_unlock(&n->lock);
	return ct__nccl_healthy(n) < 0 ? ct_error_status() : CT_FAIL(CT_BUG, "the communicator is not connected");
}

/* ncclInProgress until NCCL has accepted the last call. */
static ncclResult_t progress_of(struct comm_nccl *n)
{
	ncclResult_t state = ncclSuccess, r = n->api.CommGetAsyncError(n->nccl, &state);

	return r == ncclSuccess ? state : r;
}

enum ct_status ct__nccl_end(struct comm_nccl *n, ncclResult_t r, const char *function)
{
	const int64_t start = ct_now_ns();
	enum ct_status st;

	/* ncclCommWindowRegister returns ncclSuccess although it is in progress. */
	if (r == ncclSuccess && n->nccl)
		r = progress_of(n);
	if (r == ncclInProgress)
		ct__nccl_look_soon(n);
	while (r == ncclInProgress && n->nccl) {
		pthread_mutex_unlock(&n->lock);
		CT_TRY(ct__nccl_healthy(n));
		if (ct_now_ns() - start > n->base.opts.timeout_ns)
			return ct__nccl_timed_out(n, ct_comm_seq(&n->base) - 1, function);
		ct__nccl_pause(start);
		pthread_mutex_lock(&n->lock);
		if (n->nccl)
			r = progress_of(n);
	}
	if (r == ncclInProgress) { /* another thread has aborted it */
		pthread_mutex_unlock(&n->lock);
		return ct__nccl_healthy(n);
	}
	st = ct__nccl_check(&n->api, n->nccl, r, function);
	pthread_mutex_unlock(&n->lock);
	return st;
}

static ncclDataType_t type_of(const ct_work *w)
{
	static const ncclDataType_t types[CT_N_DTYPES] = {
		[CT_F32] = ncclFloat32, [CT_F64] = ncclFloat64,   [CT_I32] = ncclInt32,   [CT_I64] = ncclInt64,
		[CT_U8] = ncclUint8,    [CT_BF16] = ncclBfloat16, [CT_F16] = ncclFloat16,
	};

	return types[w->dtype];
}

/* NCCL has fast kernels for the sum only. The training loop posts only sums, and divides by the number of ranks
 * elsewhere. */
static ncclRedOp_t op_of(const ct_work *w)
{
	static const ncclRedOp_t ops[] = {
		[CT_SUM] = ncclSum, [CT_PROD] = ncclProd, [CT_MIN] = ncclMin, [CT_MAX] = ncclMax, [CT_AVG] = ncclAvg};

	return ops[w->op];
}

static ncclResult_t first_error(ncclResult_t a, ncclResult_t b)
{
	return a == ncclSuccess || a == ncclInProgress ? b : a;
}

/* The part of the root itself is copied by the caller. */
static ncclResult_t gather(struct comm_nccl *n, const ct_work *w, const void *src, char *dst, cudaStream_t s)
{
	const size_t bytes = w->n * ct_dtype_bytes(w->dtype);
	ncclResult_t r = n->api.GroupStart();

	for (int q = 0; w->root == n->base.rank && q < n->base.size; q++)
		if (q != w->root)
			r = first_error(r, n->api.Recv(dst + (size_t)q * bytes, w->n, type_of(w), q, n->nccl, s));
	if (w->root != n->base.rank)
		r = first_error(r, n->api.Send(src, w->n, type_of(w), w->root, n->nccl, s));
	return first_error(r, n->api.GroupEnd());
}

static ncclResult_t scatter(struct comm_nccl *n, const ct_work *w, const char *src, void *dst, cudaStream_t s)
{
	const size_t bytes = w->n * ct_dtype_bytes(w->dtype);
	ncclResult_t r = n->api.GroupStart();

	for (int q = 0; w->root == n->base.rank && q < n->base.size; q++)
		if (q != w->root)
			r = first_error(r, n->api.Send(src + (size_t)q * bytes, w->n, type_of(w), q, n->nccl, s));
	if (w->root != n->base.rank)
		r = first_error(r, n->api.Recv(dst, w->n, type_of(w), w->root, n->nccl, s));
	return first_error(r, n->api.GroupEnd());
}

static ncclResult_t call(struct comm_nccl *n, const ct_work *w, const void *src, void *dst, cudaStream_t s)
{
	const ncclDataType_t t = type_of(w);

	switch (w->kind) {
	case CT_COMM_ALLREDUCE:
		return n->api.AllReduce(src, dst, w->n, t, op_of(w), n->nccl, s);
	case CT_COMM_REDUCE:
		return n->api.Reduce(src, dst, w->n, t, op_of(w), w->root, n->nccl, s);
	case CT_COMM_BROADCAST:
		return n->api.Broadcast(src, dst, w->n, t, w->root, n->nccl, s);
	case CT_COMM_ALLGATHER:
		return n->api.AllGather(src, dst, w->n, t, n->nccl, s);
	case CT_COMM_GATHER:
		return gather(n, w, src, dst, s);
	case CT_COMM_SCATTER:
		return scatter(n, w, src, dst, s);
	case CT_COMM_REDUCE_SCATTER:
		return n->api.ReduceScatter(src, dst, w->n, t, op_of(w), n->nccl, s);
	case CT_COMM_SEND:
		return n->api.Send(src, w->n, t, w->root, n->nccl, s);
	case CT_COMM_RECV:
		return n->api.Recv(dst, w->n, t, w->root, n->nccl, s);
	case CT_COMM_BARRIER:
		break;
	}
	return n->api.AllReduce(n->word, n->word, 1, ncclUint8, ncclSum, n->nccl, s);
}

/* The root's own part of a gather or a scatter. */
static enum ct_status copy_own(struct comm_nccl *n, const ct_work *w, const char *src, char *dst, ct_stream *s)
{
	const size_t bytes = w->n * ct_dtype_bytes(w->dtype), own = (size_t)n->base.rank * bytes;

	if (w->root != n->base.rank)
		return CT_OK;
	if (w->kind == CT_COMM_GATHER)
		return ct_device_copy(n->device, dst + own, src, bytes, s);
	if (w->kind == CT_COMM_SCATTER)
		return ct_device_copy(n->device, dst, src + own, bytes, s);
	return CT_OK;
}

enum ct_status ct__nccl_issue(struct comm_nccl *n, const ct_work *w, const void *src, void *dst, ct_stream *s)
{
	CT_TRY(copy_own(n, w, src, dst, s));
	CT_TRY(ct__nccl_begin(n));
	if (ct__nccl_end(n, call(n, w, src, dst, ct__nccl_stream(s)), "posting") < 0)
		return ct_error_wrap("%s", ct__comm_kind_name(w->kind));
	return CT_OK;
}

static enum ct_status issue_group(struct comm_nccl *n, const ct_work *first)
{
	ncclResult_t r;

	CT_TRY(ct__nccl_begin(n));
	r = n->api.GroupStart();
	for (const ct_work *w = first; w; w = w->next) {
		const struct nccl_flight *f = ct__nccl_flight(w);

		r = first_error(r, call(n, w, f->src, f->dst, ct__nccl_stream(n->stream)));
	}
	return ct__nccl_end(n, first_error(r, n->api.GroupEnd()), "posting messages");
}

enum ct_status ct__nccl_issue_messages(struct comm_nccl *n)
{
	ct_work *first = n->messages;

	if (!first)
		return CT_OK;
	n->messages = NULL;
	CT_TRY(issue_group(n, first));
	for (ct_work *w = first; w; w = w->next)
		CT_TRY(ct__nccl_stage_back(n, w));
	return CT_OK;
}
