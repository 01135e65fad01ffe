/* The ends of communicators. */
#include "tests/soft_gpu/nccl/nccl_impl.h"

/* NCCL waits until no graph has a collective of the communicator. A communicator that does not block waits in a
 * thread, until the end of the process if need be. */
static void check_graphs(const ncclComm_t c, const char *function)
{
	if (c->blocking && c->n_captured)
		soft_gpu_fail("%s waits forever: %d collectives of the communicator are in graphs that exist", function,
			      c->n_captured);
}

static void run_posted(ncclComm_t c)
{
	bool empty;

	for (;;) {
		soft__lock();
		empty = !c->first || c->error || c->aborted;
		soft__unlock();
		if (empty || soft_gpu_progress() != cudaSuccess)
			return;
		soft__nap();
	}
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	int failed = soft_gpu_call(__func__);
	ncclResult_t e;

	if (failed || !c)
		return (ncclResult_t)failed;
	e = soft__ready(c, __func__);
	if (e)
		return e;
	soft__lock();
	if (c->phase != SOFT__READY)
		e = ncclInvalidArgument; /* twice */
	else
		c->phase = SOFT__FINALIZING;
	check_graphs(c, __func__);
	soft__unlock();
	if (e || !c->blocking)
		return e ? e : ncclInProgress;
	run_posted(c);
	return soft__wait_ready(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	int failed = soft_gpu_call(__func__);
	ncclResult_t e;

	if (failed || !c)
		return (ncclResult_t)failed;
	soft__check_comm(c, __func__);
	e = soft__ready(c, __func__);
	if (e)
		return e;
	soft__lock();
	check_graphs(c, __func__);
	soft__unlock();
	if (c->blocking)
		run_posted(c);
	soft__lock();
	c->destroyed = true;
	soft__comm_forget(c);
	soft__unlock();
	return ncclSuccess;
}

/* Work that waits for other ranks ends the next time that it has a turn. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
	int failed = soft_gpu_call(__func__);
	struct soft__job *deferred;

	if (failed || !c)
		return (ncclResult_t)failed;
	soft__check_comm(c, __func__);
	soft__lock();
	check_graphs(c, __func__);
	c->aborted = true;
	c->segment->members[c->rank].aborted = 1;
	deferred = c->deferred;
	c->deferred = NULL;
	soft__unlock();
	if (deferred)
		soft__release_job(&deferred);
	soft__lock();
	soft__comm_forget(c);
	soft__unlock();
	return ncclSuccess;
}
