/* The creation of communicators. */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	ncclResult_t e = (ncclResult_t)soft_gpu_call(__func__);

	if (e || !id)
		return e ? e : ncclInvalidArgument;
	soft__lock();
	e = soft__segment_create(id);
	soft__unlock();
	return e;
}

/* FNV-1a of the name of the host, or of the value of NCCL_HOSTID. */
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

ncclResult_t soft__comm_create(ncclComm_t *out, const ncclUniqueId *id, int n_ranks, int rank,
			       const struct soft__place *place)
{
	ncclComm_t c = soft__alloc(sizeof(*c));
	struct soft__member *me;
	int n, error;
	ncclResult_t e = soft__segment_join(id, n_ranks, rank, &c->segment, &c->fd);

	if (e) {
		free(c);
		return e;
	}
	c->refs = 1;
	c->rank = rank;
	c->n_ranks = n_ranks;
	c->device = place->device;
	c->blocking = true;
	c->end = &c->first;
	me = &c->segment->members[rank];
	me->pid = getpid();
	me->host = place->host;
	me->device = place->bus;
	if (soft__fault_of(SOFT__FAULT_INIT, rank, &n, &error)) {
		c->error = (ncclResult_t)error;
	} else {
		me->joined = 1;
		c->segment->n_joined++;
	}
	*out = c;
	return ncclSuccess;
}

/* As NCCL does for each variable that it reads. */
static void log_variables(void)
{
	static const char *const names[] = {"NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLS_ENABLE", "NCCL_GRAPH_REGISTER"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (getenv(names[i]))
			soft__info("%s set by environment to %s.", names[i], getenv(names[i]));
	}
}

ncclResult_t soft__check_config(const ncclConfig_t *config, bool *blocking)
{
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
	if ((config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->minCTAs <= 0) ||
	    (config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs <= 0) ||
	    (config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->minCTAs > config->maxCTAs)) {
		soft__warn("Invalid config min/max channels attribute value %d/%d", config->minCTAs, config->maxCTAs);
		return ncclInvalidArgument;
	}
	*blocking = config->blocking != 0;
	return ncclSuccess;
}

static ncclResult_t find_place(struct soft__place *place)
{
	char bus[32];

	if (cudaGetDevice(&place->device) != cudaSuccess ||
	    cudaDeviceGetPCIBusId(bus, sizeof(bus), place->device) != cudaSuccess) {
		soft__warn("Cuda failure '%s'", cudaGetErrorString(cudaGetLastError()));
		return ncclUnhandledCudaError;
	}
	place->bus = strtoull(bus + 5, NULL, 16) << 12; /* as NCCL prints it */
	place->host = host_id();
	soft__log_device(place->device);
	return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *out, int n_ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
	struct soft__place place;
	bool blocking = true;
	ncclComm_t c;
	ncclResult_t e;

	if (!out)
		return ncclInvalidArgument;
	*out = NULL;
	e = find_place(&place);
	if (e)
		return e;
	soft__log_version(rank);
	log_variables();
	if (n_ranks < 1 || rank < 0 || rank >= n_ranks) {
		soft__warn("Invalid rank requested : %d/%d", rank, n_ranks);
		return ncclInvalidArgument;
	}
	if (n_ranks > SOFT__MAX_RANKS)
		soft_gpu_fail("nccl: more than %d ranks", SOFT__MAX_RANKS);
	e = soft__check_config(config, &blocking);
	if (e)
		return e;
	soft__lock();
	e = soft__comm_create(&c, id, n_ranks, rank, &place);
	if (!e) {
		c->blocking = blocking;
		soft__comm_publish(c);
		*out = c;
	}
	soft__unlock();
	if (e)
		return e;
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

/* Several ids make NCCL faster. Here, the first one is enough. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int n_ranks, int rank, int n_ids, ncclUniqueId *ids,
				      ncclConfig_t *config)
{
	int e = soft_gpu_call(__func__);

	if (!e && (n_ids <= 0 || n_ids > n_ranks)) {
		soft__warn("improper usage of ncclCommInitRank: nId = %d, nranks=%d", n_ids, n_ranks);
		e = ncclInvalidArgument;
	}
	return soft__group_fail(e ? (ncclResult_t)e : init(out, n_ranks, ids, rank, config));
}
