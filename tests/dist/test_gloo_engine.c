/* gloo over the transport of ctrain: messages whose receivers are late. Each rank is a thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "dist/comm/gloo/gloo_engine.h"

#define TIMEOUT (60 * CT_SEC)
/* Long enough for data that are there, short enough for those that are not. */
#define A_MOMENT_MS 300

struct rank {
	enum ct_status (*fn)(struct rank *r, ct_gloo *g);
	int fds[2];
	pthread_t thread;
	int rank;
	uint32_t *data;
	enum ct_status status;
	char message[256];
};

static enum ct_status run_rank(struct rank *r)
{
	const struct ct_gloo_opts o = {.rank = r->rank, .size = 2, .fds = r->fds, .timeout_ns = TIMEOUT};
	struct pollfd p = {.fd = r->fds[0], .events = POLLIN};
	enum ct_status st;
	ct_gloo *g;

	/* Rank 1 begins when rank 0 has sent what it can send alone. */
	if (r->rank == 1)
		(void)poll(&p, 1, A_MOMENT_MS);
	CT_TRY(ct__gloo_open(&o, &g));
	st = r->fn(r, g);
	ct__gloo_close(g);
	return st;
}

static void *rank_thread(void *arg)
{
	struct rank *r = arg;

	r->status = run_rank(r);
	snprintf(r->message, sizeof(r->message), "%s", r->status < 0 ? ct_error_message() : "");
	return NULL;
}

/* Runs fn on two ranks that are connected. */
static void run_two(enum ct_status (*fn)(struct rank *r, ct_gloo *g), uint32_t *const data[2])
{
	struct rank r[2];
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	for (int i = 0; i < 2; i++) {
		r[i] = (struct rank){.fn = fn, .fds = {-1, -1}, .rank = i, .data = data[i]};
		r[i].fds[1 - i] = pair[i];
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&r[i].thread, NULL, rank_thread, &r[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(r[i].thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		close(pair[i]);
		if (r[i].status != CT_OK)
			fail_msg("rank %d: %s", i, r[i].message);
	}
}

/* gloo sends the parts of a vector in one slot; the last one is short. */
#define N ((8 << 20) / 4 + 1024)

static enum ct_status reduce(struct rank *r, ct_gloo *g)
{
	const struct ct_gloo_op op = {
		.kind = CT_COMM_REDUCE, .dst = r->data, .n = N, .dtype = CT_I32, .op = CT_SUM, .root = 1, .tag = 7};

	return ct__gloo_run(g, &op);
}

static void test_short_message_after_long_ones(void **state)
{
	uint32_t *data[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		data[i] = ct_calloc(N, sizeof(uint32_t));
		assert_non_null(data[i]);
		for (uint32_t k = 0; k < N; k++)
			data[i][k] = k * (uint32_t)(i + 1);
	}
	run_two(reduce, data);
	for (uint32_t k = 0; k < N; k++)
		assert_int_equal(data[1][k], 3 * k);
	ct_free(data[0]);
	ct_free(data[1]);
}

/* The root of broadcasts does not run ahead of the others: they would have to keep what it sends. */
#define N_SHORT 1000
#define SHORT 256

static _Atomic uint32_t n_sent;

static enum ct_status broadcast(struct rank *r, ct_gloo *g)
{
	uint32_t buf[SHORT];

	for (uint32_t i = 0; i < N_SHORT; i++) {
		const struct ct_gloo_op op = {
			.kind = CT_COMM_BROADCAST, .dst = buf, .n = SHORT, .dtype = CT_I32, .root = 0, .tag = i};

		if (r->rank == 1 && atomic_load(&n_sent) > i)
			return CT_FAIL(CT_BUG, "broadcast %u was done before it was received", i);
		for (int k = 0; k < SHORT; k++)
			buf[k] = r->rank == 0 ? i : 0;
		CT_TRY(ct__gloo_run(g, &op));
		if (r->rank == 0)
			atomic_store(&n_sent, i + 1);
		if (buf[0] != i || buf[SHORT - 1] != i)
			return CT_FAIL(CT_BUG, "broadcast %u has the value %u", i, buf[0]);
	}
	return CT_OK;
}

static void test_root_waits(void **state)
{
	(void)state;
	run_two(broadcast, (uint32_t *const[2]){NULL, NULL});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short_message_after_long_ones),
		cmocka_unit_test(test_root_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
