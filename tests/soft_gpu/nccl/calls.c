/* The functions that communicate: their arguments are checked and become tasks. */
#include <stdio.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

static bool reduces(const struct soft__call *call)
{
	return call->kind == SOFT__ALL_REDUCE || call->kind == SOFT__REDUCE || call->kind == SOFT__REDUCE_SCATTER;
}

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
	if (reduces(call) && !soft__can_reduce((ncclDataType_t)call->type))
		soft_gpu_fail("%s: reductions of %s are not implemented", t->name, soft__type_name(call->type));
	return ncclSuccess;
}

static void check_buffer(const struct soft__task *t, const char *what, const void *p, size_t bytes)
{
	if (bytes && !soft_gpu_is_device(p, bytes))
		soft_gpu_fail("%s: the %s [%p, +%zu) is not in one allocation of device memory", t->name, what, p,
			      bytes);
}

/* Both buffers of a collective may be the same memory, as NCCL's manual describes it for each of them. */
static bool is_in_place(const struct soft__task *t, const ncclComm_t c)
{
	const char *send = t->send, *recv = t->recv;

	if (t->call.kind == SOFT__ALL_GATHER)
		return send == recv + (size_t)c->rank * t->send_bytes;
	if (t->call.kind == SOFT__REDUCE_SCATTER)
		return recv == send + (size_t)c->rank * t->recv_bytes;
	return send == recv;
}

static void check_memory(const struct soft__task *t, ncclComm_t c)
{
	const char *send = t->send, *recv = t->recv;
	int device = c->device;

	check_buffer(t, "send buffer", t->send, t->send_bytes);
	check_buffer(t, "receive buffer", t->recv, t->recv_bytes);
	if (send && recv && send < recv + t->recv_bytes && recv < send + t->send_bytes && !is_in_place(t, c))
		soft_gpu_fail("%s: the send buffer and the receive buffer overlap, but not as an in-place operation",
			      t->name);
	if (t->stream && cudaStreamGetDevice(t->stream, &device) == cudaSuccess && device != c->device)
		soft_gpu_fail("%s: the stream belongs to device %d, and the communicator to device %d", t->name, device,
			      c->device);
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

/* What all tasks of a call have in common. */
struct request {
	const char *name;
	ncclComm_t comm;
	ncclDataType_t type;
	cudaStream_t stream;
	cudaError_t fault;
	int n_tasks;
	struct soft__task tasks[2 * SOFT__MAX_RANKS];
};

static ncclResult_t begin(struct request *q, const char *name, ncclComm_t c, ncclDataType_t type, cudaStream_t stream)
{
	int failed = soft_gpu_call(name);
	cudaError_t fault = soft_gpu_take_fault();
	ncclResult_t e;

	q->name = name;
	q->comm = c;
	q->type = type;
	q->stream = stream;
	q->fault = fault;
	q->n_tasks = 0;
	if (failed)
		return soft__group_fail((ncclResult_t)failed);
	e = soft__ready(c, name);
	if (!e && c->phase > SOFT__READY)
		soft_gpu_fail("%s: the communicator was finalized", name);
	return e ? fail(c, e) : ncclSuccess;
}

/* Adds a task that sends and receives these numbers of elements. */
static struct soft__task *add(struct request *q, enum soft__kind kind, const void *send, size_t n_send, void *recv,
			      size_t n_recv, size_t count, int root)
{
	struct soft__task *t = &q->tasks[q->n_tasks++];
	size_t bytes = soft__type_bytes(q->type);

	*t = (struct soft__task){
		.call = {.kind = kind, .type = (uint32_t)q->type, .count = count, .root = root},
		.name = q->name,
		.send = n_send ? send : NULL,
		.recv = n_recv ? recv : NULL,
		.send_bytes = n_send * bytes,
		.recv_bytes = n_recv * bytes,
		.stream = q->stream,
		.fault = q->fault,
	};
	return t;
}

static ncclResult_t submit(struct request *q)
{
	ncclResult_t e = ncclSuccess;

	for (int i = 0; i < q->n_tasks && !e; i++)
		e = check_arguments(&q->tasks[i], q->comm);
	/* NCCL discards empty collectives, but not empty messages. */
	if (!e && q->tasks[0].call.count == 0 && (q->n_tasks > 1 || !soft__is_message(&q->tasks[0])))
		return ncclSuccess;
	for (int i = 0; i < q->n_tasks && !e; i++)
		check_memory(&q->tasks[i], q->comm);
	return fail(q->comm, e ? e : soft__submit(q->comm, q->tasks, q->n_tasks));
}

/* Submits the single task of the request as a reduction. */
static ncclResult_t submit_reduction(struct request *q, ncclRedOp_t op)
{
	struct soft__task *t = &q->tasks[0];
	ncclResult_t e = check_arguments(t, q->comm);

	if (!e)
		e = soft__set_op(t, op, q->comm);
	return e ? fail(q->comm, e) : submit(q);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
			   ncclComm_t c, cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__ALL_REDUCE, send, count, recv, count, count, 0);
	return submit_reduction(&q, op);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t c, cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__REDUCE, send, count, recv, c->rank == root ? count : 0, count, root);
	return submit_reduction(&q, op);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
			       ncclComm_t c, cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__REDUCE_SCATTER, send, count * (size_t)c->n_ranks, recv, count, count, 0);
	return submit_reduction(&q, op);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
			   cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__BROADCAST, send, c->rank == root ? count : 0, recv, count, count, root);
	return submit(&q);
}

ncclResult_t ncclBcast(void *memory, size_t count, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t stream)
{
	return ncclBroadcast(memory, memory, count, type, root, c, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
			   cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__ALL_GATHER, send, count, recv, count * (size_t)c->n_ranks, count, 0);
	return submit(&q);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__SEND, send, count, NULL, 0, count, peer);
	return submit(&q);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add(&q, SOFT__RECV, NULL, 0, recv, count, count, peer);
	return submit(&q);
}

/* As in NCCL, the following collectives are groups of messages. */

static const char *block(const void *p, int rank, size_t count, ncclDataType_t type)
{
	return (const char *)p + (size_t)rank * count * soft__type_bytes(type);
}

static void add_send(struct request *q, const char *p, size_t count, int peer)
{
	add(q, SOFT__SEND, p, count, NULL, 0, count, peer);
}

static void add_recv(struct request *q, const char *p, size_t count, int peer)
{
	add(q, SOFT__RECV, NULL, 0, (void *)(uintptr_t)p, count, count, peer);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
			  cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	for (int r = 0; r < c->n_ranks; r++) {
		add_send(&q, block(send, r, count, type), count, r);
		add_recv(&q, block(recv, r, count, type), count, r);
	}
	return submit(&q);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
			cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	add_send(&q, send, count, root);
	for (int r = 0; c->rank == root && r < c->n_ranks; r++)
		add_recv(&q, block(recv, r, count, type), count, r);
	return submit(&q);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
			 cudaStream_t stream)
{
	struct request q;
	ncclResult_t e = begin(&q, __func__, c, type, stream);

	if (e)
		return e;
	for (int r = 0; c->rank == root && r < c->n_ranks; r++)
		add_send(&q, block(send, r, count, type), count, r);
	add_recv(&q, recv, count, root);
	return submit(&q);
}
