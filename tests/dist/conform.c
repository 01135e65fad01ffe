#include "tests/dist/conform.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dist/comm/comm_impl.h"
#include "tests/dist/elements.h"

#define TIMEOUT (60 * CT_SEC)

/* What rank q contributes at i: small, not negative (u8), a multiple of the world's size for averages. */
static double value(int q, size_t i, enum ct_redop op, int size)
{
	if (op == CT_PROD)
		return 1 + (q + (int)(i % 3)) % 2;
	return (double)((q * 7 + (int)(i % 11) * 3) % 13) * (op == CT_AVG ? size : 1);
}

static double expected(size_t i, enum ct_redop op, int size)
{
	double a = value(0, i, op, size);

	for (int q = 1; q < size; q++) {
		double b = value(q, i, op, size);

		a = op == CT_PROD ? a * b : op == CT_MIN ? (a < b ? a : b) : op == CT_MAX ? (a > b ? a : b) : a + b;
	}
	return op == CT_AVG ? a / size : a;
}

/* Returns whether a result agrees with the expected one. For an average, NCCL multiplies by 1/size before it adds. */
static bool agrees(double got, double want, enum ct_dtype t, enum ct_redop op, const char *backend)
{
	const double unit = t == CT_F32 ? 1e-6 : t == CT_F64 ? 1e-14 : t == CT_F16 ? 4e-3 : t == CT_BF16 ? 3e-2 : 0;
	const double off = got < want ? want - got : got - want;

	return op == CT_AVG && strcmp(backend, "nccl") == 0 ? off <= unit * want : got == want;
}

/* ---- buffers: private ones between guards, or the one shared arena */

struct buffers {
	ct_comm *c;
	const char *backend;
	/* With nccl: the collectives work on memory of the GPU, of which the arena is a copy. */
	ct_device *gpu;
	ct_stream *stream;
	char *on_gpu;
	char *arena;
	size_t arena_bytes, used;
	bool shared;
	void *blocks[8];
	int n_blocks;
};

#define GUARD 64

static void *take(struct buffers *b, size_t bytes)
{
	char *p;

	if (b->shared) {
		p = b->arena + b->used;
		b->used += (bytes + 2 * GUARD + 63) & ~(size_t)63;
		CHECK(b->used <= b->arena_bytes);
	} else {
		p = ct_calloc(1, bytes + 2 * GUARD);
		CHECK(p && b->n_blocks < 8);
		b->blocks[b->n_blocks++] = p;
	}
	memset(p, 0xa5, bytes + 2 * GUARD);
	return p + GUARD;
}

/* The buffer that a collective gets. */
static void *at(const struct buffers *b, void *p)
{
	return p && b->shared && b->gpu ? b->on_gpu + ((char *)p - b->arena) : p;
}

/* Copies what is in use of the arena to the GPU, or back. */
static void copy_arena(const struct buffers *b, bool to_gpu)
{
	char *dst = to_gpu ? b->on_gpu : b->arena, *src = to_gpu ? b->arena : b->on_gpu;

	if (!b->shared || !b->gpu)
		return;
	CHECK(ct_device_copy(b->gpu, dst, src, b->used, b->stream) == CT_OK);
	CHECK(ct_stream_sync(b->stream, CT_FOREVER) == CT_OK);
}

static void check_guards(const void *buf, size_t bytes)
{
	const unsigned char *p = buf;

	for (int i = 1; i <= GUARD; i++)
		CHECK(p[-i] == 0xa5 && p[bytes + (size_t)i - 1] == 0xa5);
}

static void give_back(struct buffers *b)
{
	for (int i = 0; i < b->n_blocks; i++)
		ct_free(b->blocks[i]);
	b->n_blocks = 0;
	b->used = 0;
}

static void finish(enum ct_status posted, ct_work **w)
{
	CHECK(posted == CT_OK);
	CHECK(ct_work_wait(*w) == CT_OK);
}

/* ---- the collectives */

static void reductions(struct buffers *b, size_t n, enum ct_dtype t, enum ct_redop op)
{
	int rank = ct_comm_rank(b->c), size = ct_comm_size(b->c), root = (int)(n % (size_t)size);
	size_t bytes = n * ct_dtype_bytes(t);
	void *x = take(b, bytes), *y = take(b, bytes), *parts = take(b, bytes * (size_t)size), *part = take(b, bytes);
	ct_work *w;

	for (size_t i = 0; i < n; i++) {
		put(x, t, i, value(rank, i, op, size));
		put(y, t, i, value(rank, i, op, size));
		for (int q = 0; q < size; q++)
			put(parts, t, (size_t)q * n + i, value(rank, i + (size_t)q, op, size));
	}
	copy_arena(b, true);
	finish(ct_comm_allreduce(b->c, at(b, x), n, t, op, &w), &w);
	finish(ct_comm_reduce(b->c, at(b, y), n, t, op, root, &w), &w);
	finish(ct_comm_reduce_scatter(b->c, at(b, parts), at(b, part), n, t, op, &w), &w);
	copy_arena(b, false);
	for (size_t i = 0; i < n; i++) {
		CHECK(agrees(get(x, t, i), expected(i, op, size), t, op, b->backend));
		CHECK(rank != root || agrees(get(y, t, i), expected(i, op, size), t, op, b->backend));
		CHECK(agrees(get(part, t, i), expected(i + (size_t)rank, op, size), t, op, b->backend));
	}
	check_guards(x, bytes);
	check_guards(y, bytes);
	check_guards(parts, bytes * (size_t)size);
	check_guards(part, bytes);
	give_back(b);
}

static void movements(struct buffers *b, size_t n, enum ct_dtype t)
{
	int rank = ct_comm_rank(b->c), size = ct_comm_size(b->c), root = (int)((n + 1) % (size_t)size);
	size_t bytes = n * ct_dtype_bytes(t), all = bytes * (size_t)size;
	void *x = take(b, bytes), *src = take(b, bytes), *gathered = take(b, all), *at_root = take(b, all);
	void *parts = take(b, all), *part = take(b, bytes);
	ct_work *w;

	for (size_t i = 0; i < n; i++) {
		put(x, t, i, value(rank, i, CT_SUM, size));
		put(src, t, i, value(rank, i + 1, CT_SUM, size));
		for (int q = 0; q < size; q++)
			put(parts, t, (size_t)q * n + i, value(rank + q, i + 2, CT_SUM, size));
	}
	copy_arena(b, true);
	finish(ct_comm_broadcast(b->c, at(b, x), n, t, root, &w), &w);
	finish(ct_comm_allgather(b->c, at(b, src), at(b, gathered), n, t, &w), &w);
	finish(ct_comm_gather(b->c, at(b, src), rank == root ? at(b, at_root) : NULL, n, t, root, &w), &w);
	finish(ct_comm_scatter(b->c, rank == root ? at(b, parts) : NULL, at(b, part), n, t, root, &w), &w);
	finish(ct_comm_barrier(b->c, &w), &w);
	copy_arena(b, false);
	for (size_t i = 0; i < n; i++) {
		CHECK(get(x, t, i) == value(root, i, CT_SUM, size));
		CHECK(get(src, t, i) == value(rank, i + 1, CT_SUM, size));
		for (int q = 0; q < size; q++) {
			CHECK(get(gathered, t, (size_t)q * n + i) == value(q, i + 1, CT_SUM, size));
			CHECK(rank != root || get(at_root, t, (size_t)q * n + i) == value(q, i + 1, CT_SUM, size));
		}
		CHECK(get(part, t, i) == value(root + rank, i + 2, CT_SUM, size));
	}
	check_guards(x, bytes);
	check_guards(gathered, all);
	check_guards(at_root, all);
	check_guards(part, bytes);
	give_back(b);
}

static void collectives(struct buffers *b)
{
	static const size_t small[] = {0, 1, 3, 100, 511, 1000};
	const size_t large = b->gpu ? 320023 : 1300001; /* the software GPU is slow */

	for (int t = 0; t < CT_N_DTYPES; t++) {
		for (size_t k = b->gpu ? 1 : 0; k < CT_ARRAY_LEN(small); k += b->gpu ? 3 : 1) {
			for (int op = CT_SUM; op <= CT_AVG; op++)
				reductions(b, small[k], (enum ct_dtype)t, (enum ct_redop)op);
			movements(b, small[k], (enum ct_dtype)t);
		}
	}
	reductions(b, 0, CT_F32, CT_SUM);
	movements(b, 0, CT_F32);
	reductions(b, large / 4, CT_F32, CT_SUM);
	reductions(b, 40001, CT_F64, CT_AVG);
	reductions(b, large / 2, CT_U8, CT_MAX);
	movements(b, large / 4, CT_F32);
	movements(b, large, CT_U8);
}

/* More operations under way than the back end has room for, waited for in another order than posted. */
static void overlap(struct buffers *b)
{
	enum { N = 150, LEN = 600 };
	const int size = ct_comm_size(b->c), rank = ct_comm_rank(b->c), n = b->gpu ? 40 : N;
	float *x = take(b, sizeof(float) * N * LEN);
	int32_t *sums = take(b, sizeof(int32_t) * N);
	ct_work *big[N], *tiny[N], *bar;

	for (int k = 0; k < n; k++) {
		for (int i = 0; i < LEN; i++)
			x[k * LEN + i] = (float)(rank + k + i);
		sums[k] = rank * k;
	}
	copy_arena(b, true);
	for (int k = 0; k < n; k++) {
		CHECK(ct_comm_allreduce(b->c, at(b, x + k * LEN), LEN, CT_F32, CT_SUM, &big[k]) == CT_OK);
		if (k % 3 == 0)
			finish(ct_comm_barrier(b->c, &bar), &bar);
		CHECK(ct_comm_allreduce(b->c, at(b, sums + k), 1, CT_I32, CT_SUM, &tiny[k]) == CT_OK);
		CHECK(ct_comm_progress(b->c) == CT_OK);
	}
	for (int k = n - 1; k >= 0; k--) {
		enum ct_status st;

		CHECK(ct_work_wait(tiny[k]) == CT_OK);
		while ((st = ct_work_test(big[k])) == CT_INPROGRESS)
			;
		CHECK(st == CT_OK);
		CHECK(ct_work_wait(big[k]) == CT_OK);
	}
	copy_arena(b, false);
	for (int k = 0; k < n; k++) {
		for (int i = 0; i < LEN; i++)
			CHECK(x[k * LEN + i] == (float)(size * (k + i) + size * (size - 1) / 2));
		CHECK(sums[k] == k * size * (size - 1) / 2);
	}
	give_back(b);
}

static void exchange(struct buffers *b, size_t n)
{
	int size = ct_comm_size(b->c), rank = ct_comm_rank(b->c), right = (rank + 1) % size,
	    left = (rank + size - 1) % size;
	int32_t *to[3], *from[3];
	ct_work *s[3], *r[3];

	if (size == 1)
		return;
	for (int k = 0; k < 3; k++) {
		to[k] = ct_calloc(n ? n : 1, sizeof(int32_t));
		from[k] = ct_calloc(n ? n : 1, sizeof(int32_t));
		CHECK(to[k] && from[k]);
		for (size_t i = 0; i < n; i++)
			to[k][i] = (int32_t)i * 10 + rank + k * 1000;
		CHECK(ct_comm_send(b->c, to[k], n, CT_I32, right, k, &s[k]) == CT_OK);
	}
	/* Tags in another order than they were sent. */
	for (int k = 2; k >= 0; k--)
		CHECK(ct_comm_recv(b->c, from[k], n, CT_I32, left, k, &r[k]) == CT_OK);
	for (int k = 0; k < 3; k++) {
		CHECK(ct_work_wait(r[k]) == CT_OK);
		CHECK(ct_work_wait(s[k]) == CT_OK);
		for (size_t i = 0; i < n; i++)
			CHECK(from[k][i] == (int32_t)i * 10 + left + k * 1000);
		ct_free(to[k]);
		ct_free(from[k]);
	}
}

/* Messages of one tag arrive in order, more of them than a channel has places. */
static void stream(struct buffers *b)
{
	enum { N = 40 };
	int size = ct_comm_size(b->c), rank = ct_comm_rank(b->c);
	int64_t v[N];
	ct_work *w[N];

	if (size == 1 || rank > 1)
		return;
	for (int k = 0; k < N; k++) {
		v[k] = rank == 0 ? k * k : -1;
		CHECK((rank == 0 ? ct_comm_send(b->c, &v[k], 1, CT_I64, 1, 5, &w[k])
				 : ct_comm_recv(b->c, &v[k], 1, CT_I64, 0, 5, &w[k])) == CT_OK);
	}
	for (int k = 0; k < N; k++) {
		CHECK(ct_work_wait(w[k]) == CT_OK);
		CHECK(v[k] == k * k);
	}
}

static uint64_t fnv(const void *p, size_t n)
{
	const unsigned char *b = p;
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 1099511628211u;
	return h;
}

/* Sums of random floats round; they must round alike everywhere and every time. */
static void same_bits(struct buffers *b, struct suite *s)
{
	int size = ct_comm_size(b->c), rank = ct_comm_rank(b->c);
	size_t n = 200003;
	float *x = take(b, n * sizeof(float));
	uint64_t mine, all[MAX_RANKS];
	uint32_t state = 12345u + (uint32_t)rank * 7919u;
	ct_work *w;

	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		x[i] = ((float)(state >> 8) / 8388608.0f - 1.0f) * (float)(1 + i % 17);
	}
	copy_arena(b, true);
	finish(ct_comm_allreduce(b->c, at(b, x), n, CT_F32, CT_SUM, &w), &w);
	copy_arena(b, false);
	mine = fnv(x, n * sizeof(float));
	finish(ct_comm_allgather(b->c, &mine, all, 1, CT_I64, &w), &w);
	for (int q = 0; q < size; q++)
		CHECK(all[q] == mine);
	/* shm reduces private and shared buffers in the same order. */
	CHECK(!b->shared || strcmp(s->backend, "shm") != 0 || s->digests[s->run * MAX_RANKS + rank] == mine);
	s->digests[s->run * MAX_RANKS + rank] = mine;
	give_back(b);
}

/* All have arrived before one closes: a close ends what others still wait for, also for a third rank. */
static void leave(struct buffers *b)
{
	ct_work *w;

	finish(ct_comm_barrier(b->c, &w), &w);
	ct_comm_close(b->c);
}

static void open_gpu(struct buffers *b, int rank)
{
	if (strcmp(b->backend, "nccl") != 0)
		return;
	CHECK(ct_device_open("cuda", rank, &b->gpu) == CT_OK);
	CHECK(ct_stream_create(b->gpu, false, &b->stream) == CT_OK);
}

static void close_gpu(struct buffers *b)
{
	if (!b->gpu)
		return;
	ct_device_host_free(b->gpu, b->arena);
	ct_stream_destroy(b->stream);
	ct_device_close(b->gpu);
}

static void open_arena(struct buffers *b)
{
	void *p;

	CHECK(ct_comm_mem_alloc(b->c, b->arena_bytes, &p) == CT_OK);
	b->arena = p;
	if (b->gpu) {
		b->on_gpu = p;
		CHECK(ct_device_host_alloc(b->gpu, b->arena_bytes, &p) == CT_OK);
		b->arena = p;
		memset(b->arena, 1, b->arena_bytes);
		b->shared = true;
		b->used = b->arena_bytes;
		copy_arena(b, false);
		b->used = 0;
	}
	CHECK(((uintptr_t)b->arena & 4095) == 0 || b->gpu);
	for (size_t i = 0; i < b->arena_bytes; i += 512)
		CHECK(b->arena[i] == 0);
}

void conform(struct ct_world *world, void *arg)
{
	struct suite *s = arg;
	struct ct_comm_opts o = {.timeout_ns = TIMEOUT};
	struct buffers b = {.backend = world->id.world == 1 ? "self" : s->backend};

	open_gpu(&b, world->id.rank);
	o.device = b.gpu;
	b.arena_bytes = (size_t)(b.gpu ? 6 : 32) << 20;
	enum ct_status st = ct_comm_open(s->backend, world, &o, &b.c);
	if (st == CT_UNSUPPORTED) {
		s->unsupported[world->id.rank] = true;
		return;
	}
	CHECK(st == CT_OK);
	CHECK(ct_comm_rank(b.c) == world->id.rank && ct_comm_size(b.c) == world->id.world);
	CHECK(strcmp(ct_comm_name(b.c), b.backend) == 0);
	open_arena(&b);
	for (int shared = 0; shared < 2; shared++) {
		b.shared = shared;
		if (s->run == 0) {
			collectives(&b);
			overlap(&b);
		}
		same_bits(&b, s);
	}
	exchange(&b, 0);
	exchange(&b, 10);
	exchange(&b, 100003);
	stream(&b);
	CHECK(ct_comm_seq(b.c) > 0);
	leave(&b);
	/* Again on the same store. */
	CHECK(ct_comm_open(s->backend, world, &o, &b.c) == CT_OK);
	exchange(&b, 1);
	leave(&b);
	close_gpu(&b);
}

bool run_suite(const char *backend, int size, const int *nodes)
{
	struct suite s = {.backend = backend};

	s.digests = shared_zeroed(2 * MAX_RANKS * sizeof(uint64_t));
	s.unsupported = shared_zeroed(MAX_RANKS * sizeof(bool));
	assert_non_null(s.digests);
	assert_non_null(s.unsupported);
	for (s.run = 0; s.run < 2; s.run++) {
		assert_int_equal(run_ranks(size, nodes, conform, &s, NULL), 0);
		for (int q = 1; q < size; q++)
			assert_int_equal(s.unsupported[q], s.unsupported[0]);
		if (s.unsupported[0])
			return false;
	}
	assert_memory_equal(s.digests, s.digests + MAX_RANKS, (size_t)size * sizeof(uint64_t));
	assert_true(s.digests[0] != 0);
	return true;
}
