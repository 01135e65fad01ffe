/* Communicators: their creation and their state. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	int e = soft_gpu_call(__func__);

	if (e)
		return (ncclResult_t)e;
	return id ? soft__segment_create(id) : ncclInvalidArgument;
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
	soft__segment_leave(c->segment, c->fd, c->rank);
	free(c);
	n_live--;
}

void soft__comm_forget(ncclComm_t c)
{
	ncclComm_t *link = &comms;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	soft__comm_drop(c);
}

/* FNV-1a of what identifies a host, or of the value of NCCL_HOSTID. */
static uint64_t host_id(void)
{
	const char *id = getenv("NCCL_HOSTID");
	char name[256] = "";
	uint64_t h = 0xcbf29ce484222325u;

	if (!id || !*id) {
		gethostname(name, sizeof(name) - 1);
		id = name;
	}
	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 0x100000001b3u;
	return h;
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

		if (r == c->rank || !m->joined || m->left || !soft__is_lost(c->fd, r))
			continue;
		soft__warn("rank %d (process %d) has ended", r, m->pid);
		c->error = ncclRemoteError;
	}
}

static ncclResult_t state_of(const ncclComm_t c)
{
	if (c->error)
		return c->error;
	if (c->phase == SOFT__JOINING || c->phase == SOFT__FINALIZING || c->deferred || soft__windows_pending(c))
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
	}
	soft__windows_proceed(c);
	if (c->phase == SOFT__FINALIZING && !c->first && c->n_captured == 0)
		c->phase = SOFT__FINALIZED;
}

ncclResult_t soft__poll(ncclComm_t c)
{
	struct soft__job *job = NULL;
	ncclResult_t e;

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

static ncclResult_t join(ncclComm_t c, const ncclUniqueId *id)
{
	struct soft__member *m;
	char bus[32];
	int n, error;
	ncclResult_t e = soft__segment_join(id, c->n_ranks, c->rank, &c->segment, &c->fd);

	if (e)
		return e;
	if (cudaGetDevice(&c->device) != cudaSuccess ||
	    cudaDeviceGetPCIBusId(bus, sizeof(bus), c->device) != cudaSuccess) {
		soft__segment_leave(c->segment, c->fd, c->rank);
		return ncclUnhandledCudaError;
	}
	m = &c->segment->members[c->rank];
	m->pid = getpid();
	m->host = host_id();
	m->device = strtoull(bus + 5, NULL, 16) << 12; /* as NCCL prints it */
	if (soft__fault_of(SOFT__FAULT_INIT, c->rank, &n, &error)) {
		c->error = (ncclResult_t)error;
		return ncclSuccess;
	}
	m->joined = 1;
	c->segment->n_joined++;
	return ncclSuccess;
}

static ncclResult_t check_config(const ncclConfig_t *config, bool *blocking)
{
	*blocking = true;
	if (!config)
		return ncclSuccess;
	if (config->magic != 0xcafebeef) {
		soft__warn("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
		return ncclInvalidArgument;
	}
	if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1) {
		soft__warn("Invalid config blocking attribute value %d", config->blocking);
		return ncclInvalidArgument;
	}
	*blocking = config->blocking != 0;
	return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *out, int n_ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
	ncclComm_t c;
	bool blocking;
	ncclResult_t e;

	if (!out)
		return ncclInvalidArgument;
	*out = NULL;
	if (n_ranks < 1 || rank < 0 || rank >= n_ranks) {
		soft__warn("Invalid rank requested : %d/%d", rank, n_ranks);
		return ncclInvalidArgument;
	}
	if (n_ranks > SOFT__MAX_RANKS)
		soft_gpu_fail("nccl: more than %d ranks", SOFT__MAX_RANKS);
	e = check_config(config, &blocking);
	if (e)
		return e;
	c = soft__alloc(sizeof(*c));
	c->refs = 1;
	c->rank = rank;
	c->n_ranks = n_ranks;
	c->blocking = blocking;
	c->end = &c->first;
	e = join(c, id);
	if (e) {
		free(c);
		return e;
	}
	soft__lock();
	c->next = comms;
	comms = c;
	n_live++;
	c->serial = n_created++;
	soft__unlock();
	*out = c;
	if (!blocking)
		return c->error ? c->error : ncclInProgress;
	if (soft__in_group()) {
		soft__group_add_wait(c);
		return ncclSuccess;
	}
	return soft__wait_ready(c);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	int e = soft_gpu_call(__func__);

	return soft__group_fail(e ? (ncclResult_t)e : init(out, n_ranks, &id, rank, config));
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank)
{
	int e = soft_gpu_call(__func__);

	return soft__group_fail(e ? (ncclResult_t)e : init(out, n_ranks, &id, rank, NULL));
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
