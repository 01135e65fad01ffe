/* Memory of the lazy device: blocks in one reservation of address space, allocated by first fit. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/lazy/lazy_impl.h"

#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define FORBID(p, n) __asan_poison_memory_region((p), (n))
#define PERMIT(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define FORBID(p, n) ((void)(p), (void)(n))
#define PERMIT(p, n) ((void)(p), (void)(n))
#endif

const size_t ct__lazy_total_bytes = (size_t)8 << 30;

enum { ALIGN = 256, POISON = 0xFF, GUARD = 0xFB };

enum ct_status ct__lazy_memory_reserve(struct lazy_device *d)
{
	void *p = mmap(NULL, ct__lazy_total_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return CT_FAIL(CT_NOMEM, "reserving address space for a lazy device: %s", strerror(errno));
	d->reserve = p;
	return CT_OK;
}

void ct__lazy_memory_release(struct lazy_device *d)
{
	PERMIT(d->reserve, d->touched_bytes); /* the next user of these addresses */
	munmap(d->reserve, ct__lazy_total_bytes);
}

static enum ct_status protect(struct lazy_device *d, int access)
{
	if (d->touched_bytes > 0 && mprotect(d->reserve, d->touched_bytes, access) != 0)
		return CT_FAIL(CT_DEVICE, "changing the access to the memory of a lazy device: %s", strerror(errno));
	return CT_OK;
}

enum ct_status ct__lazy_memory_open(struct lazy_device *d)
{
	return protect(d, PROT_READ | PROT_WRITE);
}

void ct__lazy_memory_close(struct lazy_device *d)
{
	CT_ASSERT(protect(d, PROT_NONE) == CT_OK);
}

bool ct__lazy_is_device_memory(const struct lazy_device *d, const void *p)
{
	return (const char *)p >= d->reserve && (const char *)p < d->reserve + ct__lazy_total_bytes;
}

/* AddressSanitizer reports an access to a guard at its line. */
enum ct_status ct__lazy_guards_check(const struct lazy_device *d)
{
#ifndef WITH_ASAN
	for (const struct lazy_block *b = d->blocks; b; b = b->next) {
		for (size_t i = b->bytes; i < b->span; i++) {
			if ((unsigned char)d->reserve[b->at + i] != GUARD)
				return CT_FAIL(
					CT_BUG,
					"posted work wrote %zu bytes beyond a block of device memory of %zu bytes",
					i - b->bytes, b->bytes);
		}
	}
#else
	(void)d;
#endif
	return CT_OK;
}

static bool is_inside(const char *block, size_t block_bytes, const char *p, size_t bytes)
{
	return p >= block && p <= block + block_bytes && bytes <= (size_t)(block + block_bytes - p);
}

enum ct_status ct__lazy_range_check(const struct lazy_device *d, const char *what, const void *p, size_t bytes)
{
	if (ct__lazy_is_device_memory(d, p)) {
		for (const struct lazy_block *b = d->blocks; b; b = b->next) {
			if (is_inside(d->reserve + b->at, b->bytes, p, bytes))
				return CT_OK;
		}
		return CT_FAIL(CT_BUG, "%s [%zu bytes] is not inside one block of device memory", what, bytes);
	}
	for (const struct lazy_host *h = d->hosts; h; h = h->next) {
		if (is_inside(h->memory, h->bytes, p, bytes))
			return CT_OK;
	}
	return CT_FAIL(CT_BUG, "%s [%zu bytes] is neither device memory nor memory from ct_device_host_alloc", what,
		       bytes);
}

/* Sets b->at to the first gap of b->span bytes. Returns the link at which to insert b, or NULL if there is no gap. */
static struct lazy_block **find_gap(struct lazy_device *d, struct lazy_block *b)
{
	struct lazy_block **place = &d->blocks;

	b->at = 0;
	for (; *place && (*place)->at - b->at < b->span; place = &(*place)->next)
		b->at = (*place)->at + (*place)->span;
	return b->span <= ct__lazy_total_bytes - b->at ? place : NULL;
}

/* Makes the memory accessible, which extends to `end` from now on. */
static enum ct_status open_up_to(struct lazy_device *d, size_t end)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (end + page - 1) / page * page, before = d->touched_bytes;

	if (pages <= before)
		return ct__lazy_memory_open(d);
	d->touched_bytes = pages;
	enum ct_status st = ct__lazy_memory_open(d);
	if (st < 0) {
		d->touched_bytes = before;
		return st;
	}
	memset(d->reserve + before, POISON, pages - before);
	FORBID(d->reserve + before, pages - before);
	return CT_OK;
}

enum ct_status ct__lazy_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_block *b, **place = NULL;
	enum ct_status st;
	char *p;

	CT_TRY(ct__lazy_enter_unrecorded(d, "memory was allocated"));
	CT_TRY_ALLOC(b = CT_NEW(struct lazy_block));
	b->bytes = bytes ? bytes : 1;
	if (b->bytes < ct__lazy_total_bytes) {
		b->span = (b->bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
		place = find_gap(d, b);
	}
	if (!place) {
		st = CT_FAIL(CT_NOMEM, "out of memory on lazy device %d: no room for %zu bytes", d->index, bytes);
		goto fail;
	}
	CT_TRY_GOTO(open_up_to(d, b->at + b->span), st, fail);
	p = d->reserve + b->at;
	PERMIT(p, b->span);
	memset(p, zeroed ? 0 : POISON, b->bytes);
	memset(p + b->bytes, GUARD, b->span - b->bytes);
	FORBID(p + b->bytes, b->span - b->bytes);
	ct__lazy_memory_close(d);
	b->next = *place;
	*place = b;
	d->used_bytes += b->span;
	*out = p;
	return CT_OK;
fail:
	ct_free(b);
	return st;
}

void ct__lazy_mem_free(ct_device *base, void *p)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_block **place = &d->blocks, *b;

	ct__lazy_drain(d, NULL, NULL);
	while (*place && d->reserve + (*place)->at != p)
		place = &(*place)->next;
	b = *place;
	CT_ASSERT(b); /* not allocated, or freed twice */
	CT_ASSERT(ct__lazy_memory_open(d) == CT_OK);
	PERMIT(p, b->span);
	memset(p, POISON, b->span);
	FORBID(p, b->span);
	ct__lazy_memory_close(d);
	*place = b->next;
	d->used_bytes -= b->span;
	ct_free(b);
}

enum ct_status ct__lazy_host_alloc(ct_device *base, size_t bytes, void **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_host *h;

	CT_TRY(ct__lazy_enter_unrecorded(d, "memory was allocated"));
	CT_TRY_ALLOC(h = CT_NEW(struct lazy_host));
	h->memory = ct_calloc_aligned(ALIGN, bytes);
	if (!h->memory) {
		ct_free(h);
		return CT_NOMEM;
	}
	h->bytes = bytes;
	h->next = d->hosts;
	d->hosts = h;
	*out = h->memory;
	return CT_OK;
}

void ct__lazy_host_free(ct_device *base, void *p)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_host **place = &d->hosts, *h;

	ct__lazy_drain(d, NULL, NULL);
	while (*place && (*place)->memory != p)
		place = &(*place)->next;
	h = *place;
	CT_ASSERT(h); /* not allocated, or freed twice */
	*place = h->next;
	ct_free_aligned(h->memory);
	ct_free(h);
}
