/* Communicators: those that exist, and their state. */
#include <stdlib.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"
#include "tests/soft_gpu/nccl/soft_nccl.h"

static ncclComm_t comms; /* that the program can use */
static int n_live;
static unsigned n_created;

int soft_nccl_live(void)
{
	int n;

	soft__lock();
	n = n_live;
	soft__unlock();
	return n;
}

void soft__check_comm(ncclComm_t c, const char *function)
{
	ncclComm_t known;

	soft__lock();
	known = comms;
	while (known && known != c)
		known = known->next;
	soft__unlock();
	if (!known)
		soft_gpu_fail("%s: the communicator does not exist or was destroyed", function);
}

void soft__comm_drop(ncclComm_t c)
{
	if (--c->refs > 0)
		return;
	soft__registered_free(c);
	soft__split_free(c);
	soft__segment_leave(c->segment, c->fd, c->rank);
	free(c);
	n_live--;
}

void soft__comm_publish(ncclComm_t c)
{
	c->next = comms;
	comms = c;
	n_live++;
	c->serial = n_created++;
}

void soft__comm_forget(ncclComm_t c)
{
	ncclComm_t *link = &comms;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	soft__comm_drop(c);
}

static ncclResult_t find_duplicates(const ncclComm_t c)
{
	const struct soft__member *m = c->segment->members;

	for (int i = 0; i < c->n_ranks; i++) {
		if (i == c->rank || m[i].host != m[c->rank].host || m[i].device != m[c->rank].device)
			continue;
		soft__warn("Duplicate GPU detected : rank %d and rank %d both on CUDA device %llx", c->rank, i,
			   (unsigned long long)m[i].device);
		return ncclInvalidUsage;
	}
	return ncclSuccess;
}

static void find_lost(ncclComm_t c)
{
	if (!soft__lost_is_error() || c->error || c->phase > SOFT__READY)
		return;
	for (int r = 0; r < c->n_ranks; r++) {
		const struct soft__member *m = &c->segment->members[r];

		if (r == c->rank || !m->joined)
			continue;
		if (m->aborted || (!m->left && soft__is_lost(c->fd, r))) {
			soft__warn("rank %d (process %d) has %s", r, m->pid, m->aborted ? "aborted" : "ended");
			c->error = ncclRemoteError;
		}
	}
}

static ncclResult_t state_of(const ncclComm_t c)
{
	if (c->error)
		return c->error;
	if (c->phase == SOFT__JOINING || c->phase == SOFT__FINALIZING || c->deferred || c->split ||
	    soft__windows_pending(c))
		return ncclInProgress;
	return ncclSuccess;
}

static void proceed(ncclComm_t c)
{
	find_lost(c);
	if (c->phase == SOFT__JOINING && c->segment->n_joined == (unsigned)c->n_ranks) {
		c->error = find_duplicates(c);
		c->phase = SOFT__READY;
		soft__segment_complete(c->segment);
		if (c->error == ncclSuccess)
			soft__info("comm %p rank %d nranks %d cudaDev %d busId %llx - Init COMPLETE", (void *)c,
				   c->rank, c->n_ranks, c->device,
				   (unsigned long long)c->segment->members[c->rank].device);
	}
	soft__windows_proceed(c);
	soft__split_proceed(c);
	if (c->phase == SOFT__FINALIZING && !c->first && c->n_captured == 0)
		c->phase = SOFT__FINALIZED;
}

ncclResult_t soft__poll(ncclComm_t c)
{
	struct soft__job *job = NULL;
	bool flush;
	ncclResult_t e;

	soft__lock();
	flush = c->phase == SOFT__FINALIZING && c->first && !c->error;
	soft__unlock();
	/* On a GPU, posted operations end while the program does nothing else than wait for ncclCommFinalize. */
	if (flush)
		(void)soft_gpu_progress();
	soft__lock();
	proceed(c);
	if (c->deferred && c->polls-- == 0) {
		job = c->deferred;
		c->deferred = NULL;
	}
	e = state_of(c);
	soft__unlock();
	if (!job)
		return e;
	soft__post(job); /* stores its error */
	soft__lock();
	e = state_of(c);
	soft__unlock();
	return e;
}

ncclResult_t soft__wait_ready(ncclComm_t c)
{
	ncclResult_t e;

	while ((e = soft__poll(c)) == ncclInProgress)
		soft__nap();
	return e;
}

ncclResult_t soft__ready(ncclComm_t c, const char *function)
{
	ncclResult_t e;

	if (!c) {
		soft__warn("%s : comm argument is NULL", function);
		return ncclInvalidArgument;
	}
	soft__check_comm(c, function);
	soft__lock();
	e = state_of(c);
	soft__unlock();
	if (e == ncclInProgress) {
		soft__warn("Attempt to use communicator before the previous operation returned ncclSuccess");
		e = ncclInvalidArgument;
	}
	return e;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
	int e = soft_gpu_call(__func__);

	if (e)
		return (ncclResult_t)e;
	if (!c || !out)
		return ncclInvalidArgument;
	soft__check_comm(c, __func__);
	*out = soft__poll(c);
	return ncclSuccess;
}

static ncclResult_t get_int(const char *function, const ncclComm_t c, const int *from, int *out)
{
	int e = soft_gpu_call(function);
	ncclResult_t r = e ? (ncclResult_t)e : soft__ready(c, function);

	if (r)
		return r;
	if (!out)
		return ncclInvalidArgument;
	*out = *from;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *out)
{
	return get_int(__func__, c, &c->n_ranks, out);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *out)
{
	return get_int(__func__, c, &c->device, out);
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *out)
{
	return get_int(__func__, c, &c->rank, out);
}
