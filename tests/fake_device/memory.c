/* Device memory. Blocks are taken from one reserved range of addresses. The part of the range that has been in use is
 * closed with mprotect whenever no device work runs, so that an access by the host raises SIGSEGV at its line. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake_device/fake_device.h"

#if FAKE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, GUARD_BYTE = 0xA5, CIRCLE = 4 << 20 };

const struct fake_block fake_memory_before;

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* The room that a block takes, with the guard after it. */
static char *end_of(const struct fake_block *b)
{
	return b->at + round_up(b->bytes, FAKE_ALIGNMENT) + FAKE_GUARD;
}

static void protect(struct fake_memory *m, int access)
{
	if (m->extent && mprotect(m->base, m->extent, access) != 0)
		fake_fail("mprotect failed");
}

void fake_memory_open(struct fake_memory *m)
{
	if (!m->open)
		protect(m, PROT_READ | PROT_WRITE);
	m->open = true;
}

void fake_memory_close(struct fake_memory *m)
{
	if (m->open)
		protect(m, PROT_NONE);
	m->open = false;
}

static size_t reserved_bytes(const struct fake_memory *m)
{
	return round_up(m->total, PAGE) + PAGE;
}

/* The first block begins after a guard. */
static char *first_place(const struct fake_memory *m)
{
	return m->base + FAKE_GUARD;
}

static void reserve(struct fake_memory *m)
{
	void *p;

	if (m->base)
		return;
	p = mmap(NULL, reserved_bytes(m), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		fake_fail("cannot reserve %zu bytes of addresses", m->total);
	m->base = p;
	m->next_fit = first_place(m);
}

void fake_memory_release(struct fake_memory *m)
{
	if (!m->base)
		return;
	ASAN_UNPOISON_MEMORY_REGION(m->base, m->extent); /* for the next user of these addresses */
	munmap(m->base, reserved_bytes(m));
	m->base = NULL;
}

/* Where `room` bytes are free at or after `from`: the place in the list before which the new block goes, or NULL. */
static struct fake_block **find_room(struct fake_memory *m, const char *from, size_t room, char **at)
{
	struct fake_block **link = &m->blocks;
	char *place = first_place(m);

	for (;; link = &(*link)->next) {
		char *limit = *link ? (*link)->at : m->base + m->total;
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

/* Opening and closing takes time for each page, also for pages without a block. The circle is therefore short: with it,
 * and with the whole range in use, the comparison of engines took 19 s and 40 s of CPU time. */
static const char *next_place(const struct fake_memory *m)
{
	return m->circular && (size_t)(m->next_fit - m->base) < CIRCLE + 2 * m->used ? m->next_fit : m->base;
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

static void extend(struct fake_memory *m, char *end)
{
	size_t before = m->extent;

	if ((size_t)(end - m->base) <= before)
		return;
	fake_memory_close(m); /* the new pages are opened, too */
	m->extent = round_up((size_t)(end - m->base), PAGE);
	fake_memory_open(m);
	memset(end, FAKE_POISON, (size_t)(m->base + m->extent - end));
	ASAN_POISON_MEMORY_REGION(m->base + before, m->extent - before);
}

void *fake_memory_alloc(struct fake_memory *m, size_t bytes, size_t alignment)
{
	size_t room = round_up(bytes, FAKE_ALIGNMENT) + alignment - FAKE_ALIGNMENT + FAKE_GUARD;
	struct fake_block *b, **link;
	char *free_at, *at;

	reserve(m);
	if (bytes > m->total - m->used || room > m->total)
		return NULL;
	link = find_room(m, next_place(m), room, &free_at);
	if (!link)
		link = find_room(m, m->base, room, &free_at);
	if (!link)
		return NULL;
	at = (char *)round_up((uintptr_t)free_at, alignment);
	b = fake_alloc(sizeof(*b));
	*b = (struct fake_block){*link, at, bytes};
	*link = b;
	m->next_fit = end_of(b);
	m->used += bytes;
	extend(m, end_of(b));
	use_huge_pages(at, bytes);
	fake_memory_open(m);
	fill_guard(m->base, FAKE_GUARD);
	fill_guard(free_at, (size_t)(at - free_at));
	ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	memset(at, FAKE_POISON, bytes);
	fill_guard(at + bytes, (size_t)(end_of(b) - (at + bytes)));
	return at;
}

bool fake_memory_free(struct fake_memory *m, void *p)
{
	struct fake_block **link = &m->blocks, *b;
	char *begin = (char *)round_up((uintptr_t)p, PAGE);

	while (*link && (*link)->at != p)
		link = &(*link)->next;
	b = *link;
	if (!b)
		return false;
	fake_memory_open(m);
	memset(p, FAKE_POISON, b->bytes);
	ASAN_POISON_MEMORY_REGION(p, b->bytes);
	/* Whole pages go back to the system, if they will not be used again soon. */
	if (m->circular && b->bytes >= 2 * PAGE)
		madvise(begin, (size_t)(b->at + b->bytes - begin) / PAGE * PAGE, MADV_DONTNEED);
	m->used -= b->bytes;
	*link = b->next;
	free(b);
	return true;
}

/* The distance of the first byte that was overwritten, or n. */
static size_t intact(const char *guard, size_t n)
{
	size_t i = 0;

	while (i < n && (unsigned char)guard[i] == GUARD_BYTE)
		i++;
	return i;
}

const struct fake_block *fake_memory_overrun(const struct fake_memory *m, size_t *distance)
{
	if (FAKE_ASAN || !m->blocks)
		return NULL;
	*distance = intact(m->base, FAKE_GUARD);
	if (*distance < FAKE_GUARD)
		return &fake_memory_before;
	for (const struct fake_block *b = m->blocks; b; b = b->next) {
		size_t n = (size_t)(end_of(b) - (b->at + b->bytes));

		*distance = intact(b->at + b->bytes, n);
		if (*distance < n)
			return b;
	}
	return NULL;
}

struct fake_block *fake_block_find(struct fake_block *list, const void *p)
{
	while (list && !((const char *)p >= list->at && (const char *)p < list->at + list->bytes))
		list = list->next;
	return list;
}

bool fake_block_contains(const struct fake_block *b, const void *p, size_t bytes)
{
	return b && (const char *)p >= b->at && (const char *)p <= b->at + b->bytes &&
	       bytes <= (size_t)(b->at + b->bytes - (const char *)p);
}
