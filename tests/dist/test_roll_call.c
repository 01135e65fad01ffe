/* The list of nodes and ranks that have joined, and what ends a run that is forming. */
#include "dist/rendezvous/roll_call.h"

#include "tests/dist/store_rig.h"

struct expected {
	int n_nodes, first[6];
	const char *here; /* one letter per rank: its host, '.': missing, '-': gone */
	const char *text;
};

static const struct expected lists[] = {
	{4, {0, 1, 2, 3, 4}, "abc.", "joined 3/4: a(0), b(1), c(2); missing node rank 3"},
	{4, {0, 1, 2, 3, 4}, ".b..", "joined 1/4: b(1); missing node rank 0, 2-3"},
	{2, {0, 2, 4}, "....", "joined 0/2; missing node rank 0-1"},
	{2, {0, 2, 4}, "aabb", "joined 2/2: a(0), b(1)"},
	{3, {0, 3, 4, 6}, "aaab.c", "joined 2/3: a(0), b(1); in part: c(2) 1 of 2 ranks"},
	{2, {0, 2, 3}, "a-.", "joined 0/2; in part: a(0) 1 of 2 ranks; missing node rank 1"},
	{0, {0}, "aab.", "joined 3/4 ranks: a(0-1), b(2); missing rank 3"},
	{0, {0}, ".aba", "joined 3/4 ranks: a(1), b(2), a(3); missing rank 0"},
	{0, {0}, "a..-b.", "joined 2/6 ranks: a(0), b(4); missing rank 1-3, 5"},
	{0, {0}, "..", "joined 0/2 ranks; missing rank 0-1"},
	{0,
	 {0},
	 "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.",
	 "joined 18/36 ranks: a(0), a(2), a(4), a(6), a(8), a(10), a(12), a(14), a(16), a(18), a(20), a(22), a(24), a(26), a(28), a(30), ...; "
	 "missing rank 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, ..."},
};

static int members_of(const char *here, struct ct_member_state *m)
{
	int n = 0;

	for (int i = 0; here[i]; i++) {
		if (here[i] == '.')
			continue;
		m[n] = (struct ct_member_state){.rank = i, .connected = here[i] != '-'};
		m[n].host[0] = here[i];
		n++;
	}
	return n;
}

static void test_lists(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lists); i++) {
		struct ct_member_state m[64];
		int n = members_of(lists[i].here, m), world = (int)strlen(lists[i].here);
		struct ct_roll r = {.world = world, .n_nodes = lists[i].n_nodes, .first = (int *)lists[i].first};
		struct ct_str text = {0};

		ct_roll_call(&r, m, n, &text);
		assert_string_equal(ct_str_text(&text), lists[i].text);
		assert_int_equal(ct_roll_complete(&r, m, n), !strpbrk(lists[i].here, ".-"));
		ct_str_release(&text);
	}
}

static void test_publish(void **state)
{
	int first[] = {0, 2, 3};
	const struct ct_roll mine = {.world = 3, .n_nodes = 2, .first = first};
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 0);
	struct ct_roll got;

	(void)state;
	assert_ok(ct_roll_publish(&mine, s));
	assert_ok(ct_roll_read(s, 3, &got));
	assert_int_equal(got.n_nodes, 2);
	assert_memory_equal(got.first, first, sizeof(first));
	ct_roll_release(&got);
	/* Of another number of ranks: only the ranks are listed. */
	assert_ok(ct_roll_read(s, 4, &got));
	assert_int_equal(got.n_nodes, 0);
	assert_int_equal(got.world, 4);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static struct ct_store_opts launcher_of(int node, int pid, const char *host)
{
	struct ct_store_opts o = opts_of("run-a", "secret", CT_STORE_LAUNCHER);

	o.pid = pid;
	snprintf(o.host, sizeof(o.host), "%s", host);
	o.world = o.n_nodes = 3;
	o.node = node;
	return o;
}

/* A second node, a second rank, another size: refused, and the run that is forming fails with the same words. */
static void test_ends_forming_run(void **state)
{
	struct ct_store_opts second_node = launcher_of(1, 12, "c"), second_owner = launcher_of(0, 13, "d"),
			     more_nodes = launcher_of(2, 14, "e"), second_rank = opts_of("run-a", "secret", 1);
	const struct {
		const struct ct_store_opts *opts;
		const char *words[3];
	} cases[] = {
		{&second_node,
		 {"launcher (pid 12 on host c)", "node rank 1", "launcher (pid 11 on host b) already has"}},
		{&second_owner,
		 {"launcher (pid 13 on host d)", "node rank 0", "launcher (pid 10 on host a) already has"}},
		{&more_nodes, {"world of 3 ranks on 4 nodes", "(pid 10 on host a)", "for 3 on 3 nodes"}},
		{&second_rank, {"pid 77 on host c", "rank 1 is taken", "pid 1001 on host h1"}},
	};

	(void)state;
	more_nodes.n_nodes = 4;
	second_rank.pid = 77;
	snprintf(second_rank.host, sizeof(second_rank.host), "c");
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_store_opts owner = launcher_of(0, 10, "a"), node = launcher_of(1, 11, "b");
		ct_store_server *srv = NULL;
		ct_store *one, *launcher = NULL, *again = NULL, *none = NULL;
		struct ct_failure f;
		int port;

		owner.member = CT_STORE_OBSERVER;
		assert_ok(ct_store_server_start("127.0.0.1", 0, &owner, &srv));
		port = ct_store_server_port(srv);
		one = join(srv, 1);
		assert_ok(ct_store_connect("127.0.0.1", port, &node, SOON, &launcher));
		/* The same launcher may connect again. */
		assert_ok(ct_store_connect("127.0.0.1", port, &node, SOON, &again));
		assert_int_equal(ct_store_watch(one, 0, &f), CT_TIMEOUT);
		assert_int_equal(ct_store_connect("127.0.0.1", port, cases[i].opts, SOON, &none), CT_MISMATCH);
		for (int k = 0; k < 3; k++)
			assert_non_null(strstr(ct_error_message(), cases[i].words[k]));
		assert_ok(ct_store_watch(one, SOON, &f));
		assert_int_equal(f.status, CT_MISMATCH);
		for (int k = 0; k < 3; k++)
			assert_non_null(strstr(f.message, cases[i].words[k]));
		assert_string_not_equal(f.hint, "");
		ct_store_close(again);
		ct_store_close(launcher);
		ct_store_drop(one);
		ct_store_server_stop(srv, 0);
	}
}

/* When all ranks are there, a stranger with a right token cannot end the run. */
static void test_does_not_end_complete_run(void **state)
{
	struct ct_store_opts owner = launcher_of(0, 10, "a"), second_owner = launcher_of(0, 13, "d"),
			     second_rank = opts_of("run-a", "secret", 1);
	ct_store_server *srv = NULL;
	ct_store *ranks[3], *none = NULL;
	struct ct_failure f;

	(void)state;
	owner.member = CT_STORE_OBSERVER;
	second_rank.pid = 77;
	assert_ok(ct_store_server_start("127.0.0.1", 0, &owner, &srv));
	for (int r = 0; r < 3; r++)
		ranks[r] = join(srv, r);
	assert_fails(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &second_owner, SOON, &none), CT_MISMATCH,
		     "node rank 0");
	assert_fails(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &second_rank, SOON, &none), CT_MISMATCH,
		     "rank 1 is taken");
	still_serves(ranks[0]);
	assert_int_equal(ct_store_watch(ranks[0], 0, &f), CT_TIMEOUT);
	for (int r = 0; r < 3; r++)
		ct_store_close(ranks[r]);
	ct_store_server_stop(srv, SOON);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_publish),
		cmocka_unit_test(test_ends_forming_run),
		cmocka_unit_test(test_does_not_end_complete_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
