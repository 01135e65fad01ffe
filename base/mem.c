/* All heap memory of the program passes through this file, which makes three promises possible: sizes are checked for
 * overflow before they are used, every failure leaves a message, and each allocation is counted, so that tests can
 * check that a training step makes none, or let the n-th one fail. Large blocks request transparent huge pages, which
 * spare the processor most of its address translation, and are therefore aligned to one. They are mappings of their
 * own, since the pages of a new mapping are zero: clearing them here would make one thread write all of them. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_ELEMENTS 16 /* capacity of a growing array after its first allocation */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HUGE_BLOCK_BYTES ((size_t)4 << 20)

static _Atomic uint64_t n_allocations;
static _Thread_local uint64_t n_of_thread;
static _Atomic uint64_t fail_after; /* set only by tests */

/* Counts the allocation. Returns true if a test has requested that it fail. */
static bool refused(void)
{
	uint64_t left = atomic_load_explicit(&fail_after, memory_order_relaxed);

	atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
	n_of_thread++;
	while (left > 0) {
		if (atomic_compare_exchange_weak(&fail_after, &left, left - 1))
			return left == 1;
	}
	return false;
}

static bool product(size_t n, size_t size, size_t *bytes)
{
	return !__builtin_mul_overflow(n, size, bytes) && *bytes <= PTRDIFF_MAX;
}

static void *out_of_memory(size_t n, size_t size)
{
	char text[CT_BYTES_TEXT];
	size_t bytes;

	if (product(n, size, &bytes))
		CT_FAIL(CT_NOMEM, "out of memory: cannot allocate %s", ct_bytes_text(bytes, text));
	else
		CT_FAIL(CT_NOMEM, "out of memory: cannot allocate %zu x %zu bytes", n, size);
	ct_error_hint("use a smaller batch or model, or fewer ranks on this host");
	return NULL;
}

void *ct_calloc(size_t n, size_t size)
{
	size_t bytes;
	void *p = NULL;

	if (!refused() && product(n, size, &bytes))
		p = calloc(1, bytes ? bytes : 1);
	return p ? p : out_of_memory(n, size);
}

void *ct_realloc(void *p, size_t n, size_t size)
{
	size_t bytes;
	void *q = NULL;

	if (!refused() && product(n, size, &bytes))
		q = realloc(p, bytes ? bytes : 1);
	return q ? q : out_of_memory(n, size);
}

void *ct_array_grow(void *p, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap < FIRST_ELEMENTS ? FIRST_ELEMENTS : *cap;
	void *q;

	if (n < *cap)
		return p;
	while (more <= n)
		if (__builtin_mul_overflow(more, 2, &more))
			return out_of_memory(n, size);
	q = ct_realloc(p, more, size);
	if (q)
		*cap = more;
	return q;
}

void ct_free(void *p)
{
	free(p);
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* With the address sanitizer, which then finds the first byte beyond a block. */
static void *calloc_sanitized(size_t align, size_t bytes)
{
	void *p;

	if (align < sizeof(void *))
		align = sizeof(void *);
	if (refused() || bytes > PTRDIFF_MAX - align || posix_memalign(&p, align, bytes ? bytes : 1) != 0)
		return out_of_memory(1, bytes);
	memset(p, 0, bytes);
	return p;
}

/* Precedes every aligned block. */
struct block_head {
	void *base;
	size_t mapped; /* bytes that were mapped from base on, or 0 if base is a block of calloc */
};

/* Allocates zeroed memory in which an aligned block has room after its head. */
static bool reserve(size_t align, size_t bytes, struct block_head *h)
{
	const size_t room = sizeof(*h) + align + bytes;

	if (bytes < HUGE_BLOCK_BYTES) {
		*h = (struct block_head){.base = calloc(1, room)};
		return h->base != NULL;
	}
	*h = (struct block_head){mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), room};
	return h->base != MAP_FAILED;
}

void *ct_calloc_aligned(size_t align, size_t bytes)
{
	struct block_head head;
	uintptr_t at;
	char *p;

	CT_ASSERT(align > 0 && (align & (align - 1)) == 0);
	if (SANITIZED)
		return calloc_sanitized(align, bytes);
	if (align < _Alignof(struct block_head))
		align = _Alignof(struct block_head);
	if (bytes >= HUGE_BLOCK_BYTES && align < HUGE_PAGE_BYTES)
		align = HUGE_PAGE_BYTES;
	if (refused() || bytes > PTRDIFF_MAX - sizeof(head) - align || !reserve(align, bytes, &head))
		return out_of_memory(1, bytes);
	at = (uintptr_t)head.base + sizeof(head);
	p = (char *)head.base + sizeof(head) + (-at & (align - 1));
	memcpy(p - sizeof(head), &head, sizeof(head));
	/* Complete huge pages only, because the last one would need more memory than the block. */
	if (head.mapped)
		(void)madvise(p, bytes & ~(HUGE_PAGE_BYTES - 1), MADV_HUGEPAGE);
	return p;
}

void ct_free_aligned(void *p)
{
	struct block_head head;

	if (!p)
		return;
	if (SANITIZED) {
		free(p);
		return;
	}
	memcpy(&head, (char *)p - sizeof(head), sizeof(head));
	if (head.mapped)
		(void)munmap(head.base, head.mapped);
	else
		free(head.base);
}

uint64_t ct_mem_count_of_thread(void)
{
	return n_of_thread;
}

uint64_t ct_mem_count(void)
{
	return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}

void ct_mem_fail_after(uint64_t n)
{
	atomic_store(&fail_after, n);
}

char *ct_strndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *copy = ct_calloc(len + 1, 1);

	if (copy)
		memcpy(copy, s, len);
	return copy;
}

char *ct_strdup(const char *s)
{
	return ct_strndup(s, PTRDIFF_MAX);
}

char *ct_strfmt(const char *fmt, ...)
{
	struct ct_str b = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&b, fmt, ap);
	va_end(ap);
	if (!b.failed && !b.s)
		return ct_calloc(1, 1);
	if (b.failed)
		ct_str_release(&b);
	return b.s;
}
