/* The functions that communicate: their arguments are checked and become tasks. */
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

static ncclResult_t check_arguments(const struct soft__task *t, ncclComm_t c)
{
	const struct soft__call *call = &t->call;

	if (call->root < 0 || call->root >= c->n_ranks) {
		soft__warn("%s : invalid root %d (root should be in the 0..%d range)", t->name, call->root, c->n_ranks);
		return ncclInvalidArgument;
	}
	if (soft__type_bytes((ncclDataType_t)call->type) == 0) {
		soft__warn("%s : invalid type %d", t->name, (int)call->type);
		return ncclInvalidArgument;
	}
	if (call->op >= ncclNumOps) {
		soft__warn("%s : reduction operation %d unknown to this communicator", t->name, (int)call->op);
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}

static void check_memory(const struct soft__task *t, ncclComm_t c)
{
	const char *send = t->send, *recv = t->recv;
	const char *in_place = recv;
	int device = 0;

	if (t->call.kind == SOFT__ALL_GATHER && recv)
		in_place = recv + (size_t)c->rank * t->send_bytes;
	if (t->call.kind == SOFT__REDUCE_SCATTER && recv)
		in_place = recv - (size_t)c->rank * t->recv_bytes;
	if (send && recv && send != in_place && send < recv + t->recv_bytes && recv < send + t->send_bytes)
		soft_gpu_fail("%s: sendbuff and recvbuff overlap, but not as an in-place operation", t->name);
	if (t->send_bytes && t->send && !soft_gpu_is_device(t->send, t->send_bytes))
		soft_gpu_fail("%s: sendbuff [%p, +%zu) is not in one allocation of device memory", t->name, t->send,
			      t->send_bytes);
	if (t->recv_bytes && t->recv && !soft_gpu_is_device(t->recv, t->recv_bytes))
		soft_gpu_fail("%s: recvbuff [%p, +%zu) is not in one allocation of device memory", t->name, t->recv,
			      t->recv_bytes);
	if (t->stream && cudaStreamGetDevice(t->stream, &device) == cudaSuccess && device != c->device)
		soft_gpu_fail("%s: the stream belongs to device %d, and the communicator to device %d", t->name, device,
			      c->device);
}

static ncclResult_t submit(ncclComm_t c, struct soft__task *tasks, int n)
{
	ncclResult_t e = ncclSuccess;

	for (int i = 0; i < n && !e; i++)
		e = check_arguments(&tasks[i], c);
	if (!e && tasks[0].call.count == 0 && tasks[0].call.kind != SOFT__SEND && tasks[0].call.kind != SOFT__RECV)
		return ncclSuccess; /* as in NCCL, which discards empty collectives */
	for (int i = 0; i < n && !e; i++)
		check_memory(&tasks[i], c);
	return e ? e : soft__submit(c, tasks, n);
}

/* A call that fails leaves an asynchronous error in a communicator that does not block. */
static ncclResult_t fail(ncclComm_t c, ncclResult_t e)
{
	if (e && e != ncclInProgress && c && !c->blocking) {
		soft__lock();
		c->error = e;
		soft__unlock();
	}
	return soft__group_fail(e);
}

static ncclResult_t begin(const char *function, ncclComm_t c, cudaError_t *fault)
{
	int failed = soft_gpu_call(function);
	ncclResult_t e;

	*fault = soft_gpu_take_fault();
	if (failed)
		return soft__group_fail((ncclResult_t)failed);
	e = soft__ready(c, function);
	if (!e && c->phase > SOFT__READY)
		soft_gpu_fail("%s: the communicator was finalized", function);
	return e ? fail(c, e) : ncclSuccess;
}

static ncclResult_t end(ncclComm_t c, struct soft__task *t, cudaError_t fault)
{
	t->fault = fault;
	return fail(c, submit(c, t, 1));
}

static struct soft__task task_of(enum soft__kind kind, const char *name, const void *send, void *recv, size_t count,
				 ncclDataType_t type, cudaStream_t stream)
{
	size_t bytes = count * soft__type_bytes(type);

	return (struct soft__task){.call = {.kind = kind, .type = (uint32_t)type, .count = count},
				   .name = name,
				   .send = send,
				   .recv = recv,
				   .send_bytes = send ? bytes : 0,
				   .recv_bytes = recv ? bytes : 0,
				   .stream = stream};
}

static void set_op(struct soft__task *t, ncclRedOp_t op, const ncclComm_t c)
{
	t->call.op = (uint32_t)op;
	if (op == ncclAvg)
		t->scaled = soft__average((ncclDataType_t)t->call.type, c->n_ranks, t->scalar);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
			   ncclComm_t c, cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__ALL_REDUCE, __func__, send, recv, count, type, stream);
	set_op(&t, op, c);
	return end(c, &t, fault);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t c, cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__REDUCE, __func__, send, c->rank == root ? recv : NULL, count, type, stream);
	set_op(&t, op, c);
	t.call.root = root;
	return end(c, &t, fault);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
			   cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__BROADCAST, __func__, c->rank == root ? send : NULL, recv, count, type, stream);
	t.call.root = root;
	return end(c, &t, fault);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
			   cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__ALL_GATHER, __func__, send, recv, count, type, stream);
	t.recv_bytes *= (size_t)c->n_ranks;
	return end(c, &t, fault);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
			       ncclComm_t c, cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__REDUCE_SCATTER, __func__, send, recv, count, type, stream);
	set_op(&t, op, c);
	t.send_bytes *= (size_t)c->n_ranks;
	return end(c, &t, fault);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__SEND, __func__, send, NULL, count, type, stream);
	t.call.root = peer;
	return end(c, &t, fault);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	struct soft__task t;
	cudaError_t fault;
	ncclResult_t e = begin(__func__, c, &fault);

	if (e)
		return e;
	t = task_of(SOFT__RECV, __func__, NULL, recv, count, type, stream);
	t.call.root = peer;
	return end(c, &t, fault);
}
