/* Host buffers of operations are copied through pinned memory, because the GPU reads and writes other host memory only
 * with calls that block. */
#include <string.h>

#include "base/device/cuda_check.h"
#include "base/mem.h"
#include "dist/comm/nccl/nccl_impl.h"

enum { ALIGN = 256, MIN_BYTES = 4096 };

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static enum ct_status is_on_host(const void *p, bool *out)
{
	struct cudaPointerAttributes a;

	CT_TRY(ct_cuda_check(cudaPointerGetAttributes(&a, p), "cudaPointerGetAttributes"));
	*out = a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged;
	return CT_OK;
}

/* The bytes that this rank passes to an operation, and those that it gets. In place, the first are also the second. */
static void sizes_of(const struct comm_nccl *n, const ct_work *w, size_t *src, size_t *dst)
{
	const size_t one = w->n * ct_dtype_bytes(w->dtype), all = one * (size_t)n->base.size;
	const bool is_root = w->root == n->base.rank;

	*src = *dst = one;
	switch (w->kind) {
	case CT_COMM_ALLGATHER:
		*dst = all;
		return;
	case CT_COMM_GATHER:
		*dst = is_root ? all : 0;
		return;
	case CT_COMM_SCATTER:
		*src = is_root ? all : 0;
		return;
	case CT_COMM_REDUCE_SCATTER:
		*src = all;
		return;
	case CT_COMM_SEND:
		*dst = 0;
		return;
	case CT_COMM_RECV:
		*src = 0;
		return;
	case CT_COMM_BARRIER:
		*src = *dst = 0;
		return;
	default:
		return;
	}
}

static bool gets_result(const struct comm_nccl *n, const ct_work *w)
{
	if (w->kind == CT_COMM_BROADCAST)
		return w->root != n->base.rank;
	return w->kind != CT_COMM_REDUCE || w->root == n->base.rank;
}

static enum ct_status flight_create(struct comm_nccl *n, size_t bytes, struct nccl_flight **out)
{
	struct nccl_flight *f;
	void *p;

	CT_TRY_ALLOC(f = CT_NEW(struct nccl_flight));
	f->next = n->flights; /* from now on, ct__nccl_flights_release frees it */
	n->flights = f;
	f->used = true;
	CT_TRY(ct_cuda_check(cudaEventCreateWithFlags(&f->event, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
	*out = f;
	if (bytes == 0)
		return CT_OK;
	for (f->bytes = MIN_BYTES; f->bytes < bytes;)
		f->bytes *= 2;
	ct_device_purpose(n->device, "host values of collectives");
	const enum ct_status st = ct_device_mem_alloc(n->device, f->bytes, false, &p);
	ct_device_purpose(n->device, NULL);
	CT_TRY(st);
	f->device = p;
	CT_TRY(ct_device_host_alloc(n->device, f->bytes, &p));
	f->pinned = p;
	return CT_OK;
}

/* The smallest free flight with enough memory. */
static enum ct_status take(struct comm_nccl *n, size_t bytes, struct nccl_flight **out)
{
	struct nccl_flight *best = NULL;

	for (struct nccl_flight *f = n->flights; f; f = f->next)
		if (!f->used && f->bytes >= bytes && (!best || f->bytes < best->bytes))
			best = f;
	if (!best)
		return flight_create(n, bytes, out);
	best->used = true;
	*out = best;
	return CT_OK;
}

enum ct_status ct__nccl_stage(struct comm_nccl *n, ct_work *w)
{
	const bool in_place = w->src == w->dst;
	bool host_src = false, host_dst = false;
	struct nccl_flight *f;
	size_t src, dst, at;

	sizes_of(n, w, &src, &dst);
	if (src > 0)
		CT_TRY(is_on_host(w->src, &host_src));
	if (dst > 0)
		CT_TRY(is_on_host(w->dst, &host_dst));
	at = host_src && !in_place ? aligned(src) : 0;
	CT_TRY(take(n, host_dst ? at + dst : host_src ? src : 0, &f));
	w->scratch[NCCL_FLIGHT] = (uint64_t)(uintptr_t)f;
	f->src = host_src ? f->device : w->src;
	f->dst = host_dst ? f->device + at : w->dst;
	f->back_at = at;
	f->n_back = host_dst && gets_result(n, w) ? dst : 0;
	if (!host_src || (w->kind == CT_COMM_BROADCAST && w->root != n->base.rank))
		return CT_OK;
	memcpy(f->pinned, w->src, src);
	return ct_device_copy(n->device, f->device, f->pinned, src, n->stream);
}

enum ct_status ct__nccl_stage_back(struct comm_nccl *n, ct_work *w)
{
	struct nccl_flight *f = ct__nccl_flight(w);

	CT_TRY(ct_device_copy(n->device, f->pinned + f->back_at, f->dst, f->n_back, n->stream));
	return ct_cuda_check(cudaEventRecord(f->event, ct__nccl_stream(n->stream)), "cudaEventRecord");
}

void ct__nccl_land(struct comm_nccl *n, ct_work *w)
{
	struct nccl_flight *f = ct__nccl_flight(w);

	if (f->n_back > 0)
		memcpy(w->dst, f->pinned + f->back_at, f->n_back);
	f->used = false;
	n->n_done++;
}

void ct__nccl_flights_release(struct comm_nccl *n)
{
	while (n->flights) {
		struct nccl_flight *f = n->flights;

		n->flights = f->next;
		ct_device_host_free(n->device, f->pinned);
		ct_device_mem_free(n->device, f->device);
		if (f->event)
			(void)cudaEventDestroy(f->event);
		ct_free(f);
	}
}
