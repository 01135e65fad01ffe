/* Device memory: one reserved address range per device, which the host cannot access except while device work runs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

#if SOFT__ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { ALIGNMENT = 256, PAGE = 4096, HUGE_PAGE = 2 << 20, FILL = 0xFF, GUARD_BYTE = 0xA5 };

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* The room that a block takes, with the guard after it. */
static char *end_of(const struct soft__block *b)
{
	return b->at + round_up(b->bytes, ALIGNMENT) + SOFT__GUARD;
}

static void protect(struct soft__device *d, int access)
{
	if (d->extent && mprotect(d->base, d->extent, access) != 0)
		soft_gpu_fail("mprotect failed");
}

void soft__open_device(struct soft__device *d)
{
	if (!d->open)
		protect(d, PROT_READ | PROT_WRITE);
	d->open = true;
}

void soft__close_devices(void)
{
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		if (soft__gpu.devices[i].open)
			protect(&soft__gpu.devices[i], PROT_NONE);
		soft__gpu.devices[i].open = false;
	}
}

/* The first block begins after a guard. */
static char *first_place(const struct soft__device *d)
{
	return d->base + SOFT__GUARD;
}

static void reserve(struct soft__device *d)
{
	void *p;

	if (d->base)
		return;
	p = mmap(NULL, round_up(d->total, PAGE) + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		soft_gpu_fail("cannot reserve %zu bytes of addresses", d->total);
	d->base = p;
	d->next_fit = first_place(d);
}

/* Where `room` bytes are free at or after `from`: the place in the list before which the new block goes, or NULL. */
static struct soft__block **find_room(struct soft__device *d, const char *from, size_t room, char **at)
{
	struct soft__block **link = &d->blocks;
	char *place = first_place(d);

	for (;; link = &(*link)->next) {
		char *limit = *link ? (*link)->at : d->base + d->total;
		char *begin = place < from ? (char *)(uintptr_t)from : place;

		if (begin <= limit && (size_t)(limit - begin) >= room) {
			*at = begin;
			return link;
		}
		if (!*link)
			return NULL;
		place = end_of(*link);
	}
}

static void fill_guard(char *p, size_t n)
{
	ASAN_UNPOISON_MEMORY_REGION(p, n);
	memset(p, GUARD_BYTE, n);
	ASAN_POISON_MEMORY_REGION(p, n);
}

/* Opening and closing takes time for each page: 100 ms for 1 GiB in small pages. */
static void use_huge_pages(char *at, size_t bytes)
{
	char *begin = (char *)round_up((uintptr_t)at, HUGE_PAGE);

	if (bytes >= (size_t)4 * HUGE_PAGE)
		madvise(begin, (size_t)(at + bytes - begin) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
}

/* Memory is taken in a circle, so that freed memory stays unused as long as possible. */
static cudaError_t mem_alloc(void **out, size_t bytes, size_t alignment)
{
	struct soft__device *d = soft__current();
	struct soft__block *b, **link;
	size_t room = round_up(bytes, ALIGNMENT) + alignment - ALIGNMENT + SOFT__GUARD;
	char *free_at, *at;

	*out = NULL;
	if (bytes == 0)
		return cudaSuccess;
	reserve(d);
	if (bytes > d->total - d->used || room > d->total)
		return cudaErrorMemoryAllocation;
	link = find_room(d, d->next_fit, room, &free_at);
	if (!link)
		link = find_room(d, d->base, room, &free_at);
	if (!link)
		return cudaErrorMemoryAllocation;
	at = (char *)round_up((uintptr_t)free_at, alignment);
	b = soft__alloc(sizeof(*b));
	*b = (struct soft__block){*link, at, bytes};
	*link = b;
	d->next_fit = end_of(b);
	d->used += bytes;
	if ((size_t)(end_of(b) - d->base) > d->extent) {
		soft__close_devices(); /* the new pages are opened, too */
		d->extent = round_up((size_t)(end_of(b) - d->base), PAGE);
	}
	use_huge_pages(at, bytes);
	soft__open_device(d);
	fill_guard(d->base, SOFT__GUARD);
	fill_guard(free_at, (size_t)(at - free_at));
	ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	memset(at, FILL, bytes);
	fill_guard(at + bytes, (size_t)(end_of(b) - (at + bytes)));
	soft__created(SOFT__MEMORY);
	*out = at;
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	SOFT__CALL(SOFT__UNSAFE, mem_alloc(out, bytes, ALIGNMENT));
}

cudaError_t soft_gpu_alloc(void **out, size_t bytes, size_t alignment)
{
	SOFT__CALL(SOFT__UNSAFE, mem_alloc(out, bytes, alignment));
}

struct soft__block *soft__find_block(const void *p, struct soft__device **device)
{
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		for (struct soft__block *b = soft__gpu.devices[i].blocks; b; b = b->next) {
			if ((const char *)p >= b->at && (const char *)p < b->at + b->bytes) {
				if (device)
					*device = &soft__gpu.devices[i];
				return b;
			}
		}
	}
	return NULL;
}

/* Also after the device's error, so that a program can give back what it has. */
static cudaError_t mem_free(char *p)
{
	struct soft__device *d;
	struct soft__block *b, **link;
	cudaError_t e;

	if (!p)
		return cudaSuccess;
	b = soft__find_block(p, &d);
	if (!b || b->at != p)
		return cudaErrorInvalidValue;
	e = soft__wait((int)(d - soft__gpu.devices), NULL, NULL);
	soft__open_device(d);
	memset(p, FILL, b->bytes);
	ASAN_POISON_MEMORY_REGION(p, b->bytes);
	/* Whole pages go back to the system. */
	if (b->bytes >= 2 * PAGE) {
		char *begin = (char *)round_up((uintptr_t)p, PAGE);

		madvise(begin, (size_t)(p + b->bytes - begin) / PAGE * PAGE, MADV_DONTNEED);
	}
	d->used -= b->bytes;
	for (link = &d->blocks; *link != b; link = &(*link)->next)
		;
	*link = b->next;
	free(b);
	soft__destroyed(SOFT__MEMORY);
	return e;
}

cudaError_t cudaFree(void *p)
{
	SOFT__CALL(SOFT__UNSAFE | SOFT__NO_DEVICE, mem_free(p));
}

void soft__check_guards(const char *after)
{
	char expected[ALIGNMENT + SOFT__GUARD];

	if (SOFT__ASAN)
		return;
	memset(expected, GUARD_BYTE, sizeof(expected));
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		struct soft__device *d = &soft__gpu.devices[i];

		if (!d->open || !d->blocks)
			continue;
		if (memcmp(d->base, expected, SOFT__GUARD) != 0)
			soft_gpu_fail("%s wrote before the first allocation", after);
		for (const struct soft__block *b = d->blocks; b; b = b->next) {
			if (memcmp(b->at + b->bytes, expected, (size_t)(end_of(b) - (b->at + b->bytes))) != 0)
				soft_gpu_fail("%s wrote after the end of an allocation of %zu bytes", after, b->bytes);
		}
	}
}

bool soft_gpu_is_device(const void *p, size_t bytes)
{
	const struct soft__block *b;
	bool inside;

	soft__lock();
	b = soft__find_block(p, NULL);
	inside = b && bytes <= (size_t)(b->at + b->bytes - (const char *)p);
	soft__unlock();
	return inside;
}

static cudaError_t get_info(size_t *free_bytes, size_t *total)
{
	*total = soft__current()->total;
	*free_bytes = *total - soft__current()->used;
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	SOFT__CALL(SOFT__PLAIN, get_info(free_bytes, total));
}
