/* Executes a grid. The blocks run one after the other, and the threads of a block are fibers. A warp runs until each of
 * its threads waits at a barrier of the block or has ended; then the next warp runs. So a warp runs as far ahead of the
 * other warps as barriers allow, and a thread runs as far ahead of the other threads in its warp as shuffles allow. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/soft_gpu/exec/fence.h"
#include "tests/soft_gpu/exec/fiber.h"
#include "tests/soft_gpu/runtime/runtime_impl.h"

#if FAKE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { WARP = 32, MAX_THREADS = 1024, SHARED_BYTES = 227 << 10, SHARED_GUARD = 256, GUARD_BYTE = 0xA5 };

enum state { RUNNABLE, AT_BLOCK, AT_WARP, ENDED };
enum exchange { SHUFFLE, BALLOT };

struct thread {
	struct soft__fiber *fiber;
	enum state state;
	const char *file; /* where it waits */
	int line;
	/* AT_BLOCK, AT_WARP: what it gives; afterwards what it gets. */
	uint64_t value, result;
	/* AT_WARP */
	enum exchange exchange;
	unsigned mask;
	int source;
};

struct soft_thread soft_thread;

static struct thread threads[MAX_THREADS];
static unsigned n_threads, current;
static const struct soft__grid *grid;
_Alignas(256) static char dynamic_shared[SHARED_BYTES + SHARED_GUARD];

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	char why[512];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	soft_gpu_fail("kernel %s, started at %s:%d, block (%u, %u, %u): %s", grid->kernel.name, grid->kernel.file,
		      grid->kernel.line, soft_thread.block.x, soft_thread.block.y, soft_thread.block.z, why);
}

static void thread_main(void)
{
	for (;;) {
		unsigned me = current;

		grid->kernel.call(grid->kernel.function, grid->args);
		threads[me].state = ENDED;
		soft__fiber_leave(threads[me].fiber);
	}
}

static void wait_here(enum state state, const char *file, int line)
{
	struct thread *t = &threads[current];

	t->state = state;
	t->file = file;
	t->line = line;
	soft__fiber_leave(t->fiber);
}

/* Linear thread numbers are x first, as CUDA numbers them for warps. */
static void resume(unsigned i)
{
	const dim3 *b = &soft_thread.block_dim;

	if (!threads[i].fiber)
		threads[i].fiber = soft__fiber_create(thread_main);
	current = i;
	soft_thread.thread = (uint3){i % b->x, i / b->x % b->y, i / b->x / b->y};
	soft_thread.lane = i % WARP;
	soft__fiber_enter(threads[i].fiber);
}

/* Forward, backward, from the middle. */
static unsigned nth(unsigned i, unsigned n)
{
	return grid->order == 0 ? i : grid->order == 1 ? n - 1 - i : (i + n / 2) % n;
}

static unsigned lanes_of(unsigned warp)
{
	unsigned left = n_threads - warp * WARP;

	return left < WARP ? left : WARP;
}

/* Whether all lanes of the mask have come where lane `me` waits. */
static bool is_complete(const struct thread *lanes, unsigned n, unsigned me)
{
	const struct thread *t = &lanes[me];

	if (!(t->mask >> me & 1))
		fail("%s:%d: lane %u is not in its own mask %08x", t->file, t->line, me, t->mask);
	for (unsigned i = 0; i < WARP; i++) {
		if (!(t->mask >> i & 1))
			continue;
		if (i >= n || lanes[i].state != AT_WARP || lanes[i].mask != t->mask || lanes[i].line != t->line ||
		    lanes[i].file != t->file)
			return false;
	}
	return true;
}

static void exchange(struct thread *lanes, unsigned me)
{
	unsigned mask = lanes[me].mask, ballot = 0;

	for (unsigned i = 0; i < WARP; i++)
		ballot |= (mask >> i & 1 && lanes[i].value ? 1u : 0u) << i;
	for (unsigned i = 0; i < WARP; i++) {
		struct thread *t = &lanes[i];

		if (!(mask >> i & 1))
			continue;
		if (t->exchange == BALLOT) {
			t->result = ballot;
			continue;
		}
		if (t->source < 0 || t->source >= WARP || !(mask >> t->source & 1))
			fail("%s:%d: lane %u reads lane %d, which is not in the mask %08x", t->file, t->line, i,
			     t->source, mask);
		t->result = lanes[t->source].value;
	}
	for (unsigned i = 0; i < WARP; i++) {
		if (mask >> i & 1)
			lanes[i].state = RUNNABLE;
	}
}

/* Lets lanes go on whose partners have all come. */
static bool release_warp(unsigned warp)
{
	struct thread *lanes = &threads[warp * WARP];
	unsigned n = lanes_of(warp);
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		if (lanes[i].state == AT_WARP && is_complete(lanes, n, i)) {
			exchange(lanes, i);
			any = true;
		}
	}
	return any;
}

/* Runs a warp as far as it can. */
static void run_warp(unsigned warp)
{
	unsigned n = lanes_of(warp);

	do {
		for (unsigned i = 0; i < n; i++) {
			unsigned t = warp * WARP + nth(i, n);

			if (threads[t].state == RUNNABLE)
				resume(t);
		}
	} while (release_warp(warp));
}

/* No thread can go on, and it is not so that all wait at one barrier. */
static void __attribute__((noreturn)) fail_stuck(void)
{
	unsigned n_ended = 0, waits = 0, other = MAX_THREADS;

	while (threads[waits].state == ENDED)
		waits++;
	for (unsigned i = 0; i < n_threads; i++) {
		n_ended += threads[i].state == ENDED;
		if (threads[i].state != ENDED &&
		    (threads[i].line != threads[waits].line || threads[i].file != threads[waits].file) &&
		    other == MAX_THREADS)
			other = i;
	}
	if (other < MAX_THREADS)
		fail("thread %u waits at %s:%d, but thread %u at %s:%d; %u threads have ended", waits,
		     threads[waits].file, threads[waits].line, other, threads[other].file, threads[other].line,
		     n_ended);
	fail("thread %u waits at %s:%d for threads that do not come; %u threads have ended", waits, threads[waits].file,
	     threads[waits].line, n_ended);
}

/* All threads wait at the same barrier: they go on. */
static void release_block(void)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < n_threads; i++) {
		if (threads[i].state != AT_BLOCK || threads[i].line != threads[0].line ||
		    threads[i].file != threads[0].file)
			fail_stuck();
		count += threads[i].value;
	}
	for (unsigned i = 0; i < n_threads; i++) {
		threads[i].result = count;
		threads[i].state = RUNNABLE;
	}
}

static bool has_ended(void)
{
	for (unsigned i = 0; i < n_threads; i++) {
		if (threads[i].state != ENDED)
			return false;
	}
	return true;
}

/* Static shared memory has guards between its variables, which only a function that is not instrumented can overwrite.
 */
__attribute__((no_sanitize("address"))) static void fill_static_shared(void)
{
	for (volatile char *p = grid->kernel.shared; p != grid->kernel.shared_end; p++)
		*p = (char)0xFF;
}

static void open_shared(void)
{
	size_t bytes = grid->shared_bytes;

	fill_static_shared();
	ASAN_UNPOISON_MEMORY_REGION(dynamic_shared, sizeof(dynamic_shared));
	memset(dynamic_shared, 0xFF, bytes);
	memset(dynamic_shared + bytes, GUARD_BYTE, SHARED_GUARD);
	ASAN_POISON_MEMORY_REGION(dynamic_shared + bytes, sizeof(dynamic_shared) - bytes);
	soft_thread.dynamic_shared = dynamic_shared;
}

static void close_shared(void)
{
	ASAN_UNPOISON_MEMORY_REGION(dynamic_shared, sizeof(dynamic_shared));
	for (size_t i = 0; i < SHARED_GUARD; i++) {
		if (dynamic_shared[grid->shared_bytes + i] != (char)GUARD_BYTE)
			fail("wrote after the end of %zu bytes of dynamic shared memory", grid->shared_bytes);
	}
}

static void run_block(void)
{
	unsigned n_warps = (n_threads + WARP - 1) / WARP;

	open_shared();
	for (unsigned i = 0; i < n_threads; i++)
		threads[i].state = RUNNABLE;
	for (;;) {
		for (unsigned i = 0; i < n_warps; i++)
			run_warp(nth(i, n_warps));
		if (has_ended())
			break;
		release_block();
	}
	close_shared();
}

void soft__run_grid(const struct soft__grid *g)
{
	uint64_t n = (uint64_t)g->grid.x * g->grid.y * g->grid.z;

	grid = g;
	n_threads = g->block.x * g->block.y * g->block.z;
	soft_thread.block_dim = g->block;
	soft_thread.grid_dim = g->grid;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t b = g->order == 0 ? i : g->order == 1 ? n - 1 - i : (i + n / 2) % n;

		soft_thread.block = (uint3){(unsigned)(b % g->grid.x), (unsigned)(b / g->grid.x % g->grid.y),
					    (unsigned)(b / g->grid.x / g->grid.y)};
		run_block();
		soft__fence_end_block();
	}
	soft__fence_end_grid();
}

void soft_block_sync(const char *file, int line)
{
	(void)soft_block_count(false, file, line);
}

int soft_block_count(bool value, const char *file, int line)
{
	unsigned me = current;

	threads[me].value = value;
	wait_here(AT_BLOCK, file, line);
	return (int)threads[me].result;
}

static uint64_t exchange_here(enum exchange what, unsigned mask, uint64_t value, int source, const char *file, int line)
{
	struct thread *t = &threads[current];

	t->exchange = what;
	t->mask = mask;
	t->value = value;
	t->source = source;
	wait_here(AT_WARP, file, line);
	return t->result;
}

uint64_t soft_warp_shuffle(unsigned mask, uint64_t value, int source_lane, const char *file, int line)
{
	return exchange_here(SHUFFLE, mask, value, source_lane, file, line);
}

unsigned soft_warp_ballot(unsigned mask, bool value, const char *file, int line)
{
	return (unsigned)exchange_here(BALLOT, mask, value, 0, file, line);
}
