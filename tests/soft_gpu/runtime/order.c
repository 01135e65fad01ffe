/* Finds work of two streams that accesses the same memory in no defined order. It uses vector clocks (Lamport 1978;
 * Fidge and Mattern 1988): the clock of a stream contains the number of operations of each other stream that precede
 * its next operation. An event stores the clock of its stream, and waiting for the event merges it into the clock of
 * the waiting stream. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

void soft__merge(uint64_t *clock, const uint64_t *from)
{
	for (int i = 0; i < FAKE_MAX_STREAMS; i++) {
		if (from[i] > clock[i])
			clock[i] = from[i];
	}
}

bool soft__overlap(const struct soft_range *a, const struct soft_range *b)
{
	const char *pa = a->address, *pb = b->address;

	return (a->written || b->written) && pa < pb + b->bytes && pb < pa + a->bytes;
}

void soft__order_post(cudaStream_t s)
{
	s->clock[s->queue.slot] = ++s->seq;
	soft__merge(s->clock, soft__gpu.host_clock);
}

/* Removes the accesses that precede everything that will be posted from now on. */
static void prune(cudaStream_t s)
{
	uint64_t known = UINT64_MAX;
	int kept = 0;

	for (int i = 0; i < soft__gpu.machine.n_streams; i++) {
		const struct CUstream_st *t = soft__stream_in(i);

		if (t != s && !t->dead && t->clock[s->queue.slot] < known)
			known = t->clock[s->queue.slot];
	}
	if (known == UINT64_MAX || known < soft__gpu.host_clock[s->queue.slot])
		known = soft__gpu.host_clock[s->queue.slot];
	for (int i = 0; i < s->n_accesses; i++) {
		if (s->accesses[i].seq > known)
			s->accesses[kept++] = s->accesses[i];
		else
			free(s->accesses[i].name);
	}
	s->n_accesses = kept;
}

static void check(const struct CUstream_st *s, const char *name, const struct soft_range *r)
{
	for (int i = 0; i < soft__gpu.machine.n_streams; i++) {
		const struct CUstream_st *t = soft__stream_in(i);

		if (t == s)
			continue;
		for (int k = t->n_accesses - 1; k >= 0 && t->accesses[k].seq > s->clock[t->queue.slot]; k--) {
			const struct soft__access *a = &t->accesses[k];

			if (soft__overlap(r, &a->range))
				soft_gpu_fail(
					"%s (stream %d) %s memory that %s (stream %d) %s, and nothing orders them",
					name, s->queue.slot, r->written ? "writes" : "reads", a->name, t->queue.slot,
					a->range.written ? "writes" : "reads");
		}
	}
}

void soft__order_ranges(cudaStream_t s, const char *name, const struct soft_range *ranges, int n)
{
	if (s->n_accesses >= 64 && s->n_accesses + n > s->accesses_capacity)
		prune(s);
	for (int i = 0; i < n; i++) {
		char *copy = fake_alloc(strlen(name) + 1);

		check(s, name, &ranges[i]);
		memcpy(copy, name, strlen(name));
		s->accesses = fake_grow(s->accesses, s->n_accesses, &s->accesses_capacity, sizeof(*s->accesses));
		s->accesses[s->n_accesses++] = (struct soft__access){s->seq, ranges[i], copy};
	}
}

void soft__order_host(const uint64_t *clock)
{
	soft__merge(soft__gpu.host_clock, clock);
	for (int i = 0; i < soft__gpu.machine.n_streams; i++) {
		cudaStream_t s = soft__stream_in(i);

		if (s->n_accesses && s->accesses[0].seq <= soft__gpu.host_clock[i])
			prune(s);
	}
}
