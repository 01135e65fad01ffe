#include "tests/dist/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const int two_hosts[3] = {0, 0, 1};

void play(const char *backend, int size, const int *nodes, int64_t timeout_ns, rank_fn fn, int variant, int bad,
	  int *outcome)
{
	struct scene s = {
		.backend = backend, .gpu = strcmp(backend, "nccl") == 0, .timeout_ns = timeout_ns, .variant = variant};

	s.outcome = shared_zeroed(MAX_RANKS * sizeof(int));
	assert_non_null(s.outcome);
	assert_int_equal(run_ranks(size, nodes, fn, &s, NULL), bad);
	if (outcome)
		memcpy(outcome, s.outcome, MAX_RANKS * sizeof(int));
}

ct_comm *open_comm(struct ct_world *w, const struct scene *s)
{
	struct ct_comm_opts o = {.timeout_ns = s->timeout_ns};
	ct_comm *c;

	CHECK(ct_comm_open(s->backend, w, &o, &c) == CT_OK);
	return c;
}

enum ct_status run(enum ct_status posted, ct_work **w)
{
	return posted < 0 ? posted : ct_work_wait(*w);
}

enum ct_status barrier(ct_comm *c)
{
	ct_work *w;

	return run(ct_comm_barrier(c, &w), &w);
}

bool says(const char *text)
{
	return strstr(ct_error_message(), text) != NULL;
}

void is_dead(ct_comm *c, enum ct_status st)
{
	char first[512];
	ct_work *w;

	snprintf(first, sizeof(first), "%.500s", ct_error_message());
	CHECK(ct_comm_barrier(c, &w) == st && w == NULL);
	CHECK(strncmp(first, ct_error_message(), strlen(first)) == 0);
	CHECK(ct_comm_progress(c) == st);
}
