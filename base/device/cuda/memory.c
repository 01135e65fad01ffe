/* Device memory is recorded in a list with its size and purpose. The list serves the message of an allocation that
 * fails, which states what this process uses its memory for, and finds memory that is freed twice or on another device.
 * It has a lock, because any thread may allocate; streams have none, because only one thread posts work.
 *
 * Memory must be neither allocated nor freed while the device records: both would wait for, or change, what the
 * recorded work uses. Pinned memory is portable, so that it can be used with every device of the process. */
#include <stdio.h>
#include <string.h>

#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"

static cudaStream_t stream_of(ct_stream *s)
{
	return ((struct cuda_stream *)s)->stream;
}

static double mib(size_t bytes)
{
	return (double)bytes / (1 << 20);
}

/* Lists the memory that this process has allocated: ", this process uses 97.5 MiB for parameters, ...". */
static void add_uses(struct cuda_device *d, struct ct_str *text)
{
	pthread_mutex_lock(&d->mutex);
	for (const struct cuda_allocation *a = d->allocations; a; a = a->next) {
		const struct cuda_allocation *same = d->allocations;
		size_t bytes = 0;

		while (strcmp(same->purpose, a->purpose) != 0)
			same = same->next;
		if (same != a) /* counted before */
			continue;
		for (; same; same = same->next)
			bytes += strcmp(same->purpose, a->purpose) == 0 ? same->bytes : 0;
		ct_str_addf(text, "%s %.1f MiB for %s", a == d->allocations ? "; this process uses" : ",", mib(bytes),
			    a->purpose);
	}
	pthread_mutex_unlock(&d->mutex);
}

/* Adds what the device has, and what for, to the message of a failed allocation. */
static enum ct_status alloc_failed(struct cuda_device *d, enum ct_status st, const char *where, size_t bytes)
{
	size_t available = 0, total = 0;
	struct ct_str text = {0};

	if (st == CT_NOMEM && cudaMemGetInfo(&available, &total) == cudaSuccess) {
		ct_str_addf(&text, " (GPU %d has %.1f of %.1f MiB free", d->index, mib(available), mib(total));
		add_uses(d, &text);
		ct_str_add(&text, ")");
	}
	st = ct_error_wrap("allocating %.1f MiB %s%s", mib(bytes), where, ct_str_text(&text));
	ct_str_release(&text);
	return st;
}

static enum ct_status alloc_zeroed(void *p, size_t bytes)
{
	/* Other streams do not wait for the default stream, which the fill runs on. */
	CT_TRY(ct_cuda_check(cudaMemset(p, 0, bytes), "cudaMemset"));
	return ct_cuda_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
}

enum ct_status ct__cuda_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out)
{
	struct cuda_device *d = (struct cuda_device *)base;
	struct cuda_allocation *a;
	const char *purpose = base->purpose ? base->purpose : "other data";
	char where[64];
	enum ct_status st;

	CT_TRY(ct__cuda_not_recording(d, "memory is allocated"));
	CT_TRY(ct__cuda_use(d));
	CT_TRY_ALLOC(a = CT_NEW(struct cuda_allocation));
	*a = (struct cuda_allocation){.bytes = bytes, .purpose = purpose};
	snprintf(where, sizeof(where), "of GPU memory for %s", purpose);
	st = ct_cuda_check(cudaMalloc(&a->at, bytes > 0 ? bytes : 1), "cudaMalloc");
	if (st < 0)
		(void)alloc_failed(d, st, where, bytes);
	else if (zeroed)
		st = alloc_zeroed(a->at, bytes);
	if (st < 0) {
		(void)cudaFree(a->at);
		ct_free(a);
		return st;
	}
	pthread_mutex_lock(&d->mutex);
	a->next = d->allocations;
	d->allocations = a;
	pthread_mutex_unlock(&d->mutex);
	*out = a->at;
	return CT_OK;
}

static void forget(struct cuda_device *d, const void *p)
{
	struct cuda_allocation **place = &d->allocations, *a;

	pthread_mutex_lock(&d->mutex);
	while (*place && (*place)->at != p)
		place = &(*place)->next;
	a = *place;
	CT_ASSERT(a); /* memory of another device, or freed before */
	*place = a->next;
	pthread_mutex_unlock(&d->mutex);
	ct_free(a);
}

/* cudaFree waits for all posted work. An error of that work is returned by the next call. */
void ct__cuda_mem_free(ct_device *base, void *p)
{
	struct cuda_device *d = (struct cuda_device *)base;

	CT_ASSERT(!d->recording);
	forget(d, p);
	ct__cuda_released(cudaFree(p), "cudaFree");
}

enum ct_status ct__cuda_host_alloc(ct_device *base, size_t bytes, void **out)
{
	struct cuda_device *d = (struct cuda_device *)base;
	enum ct_status st;
	void *p = NULL;

	CT_TRY(ct__cuda_not_recording(d, "memory is allocated"));
	CT_TRY(ct__cuda_use(d));
	st = ct_cuda_check(cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocPortable), "cudaHostAlloc");
	if (st < 0)
		return alloc_failed(d, st, "of pinned host memory", bytes);
	memset(p, 0, bytes);
	*out = p;
	return CT_OK;
}

void ct__cuda_host_free(ct_device *base, void *p)
{
	CT_ASSERT(!((struct cuda_device *)base)->recording);
	ct__cuda_released(cudaFreeHost(p), "cudaFreeHost");
}

enum ct_status ct__cuda_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	(void)base;
	return ct__cuda_posted(s, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(s)), "cudaMemcpyAsync");
}

enum ct_status ct__cuda_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s)
{
	(void)base;
	return ct__cuda_posted(s, cudaMemsetAsync(dst, byte, bytes, stream_of(s)), "cudaMemsetAsync");
}
