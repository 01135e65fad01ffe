/* The flight record: its contents while it is written, and the messages and files of ranks whose peer has skipped a
 * collective or has stopped. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/rank_page.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "dist/watchdog.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"
#include "tests/pause.h"

/* ---- the ring */

static struct ct_flight_record record_of(int64_t seq)
{
	return (struct ct_flight_record){.seq = seq,
					 .number = seq * 3,
					 .step = seq * 5,
					 .bucket = (int)(seq % 1000),
					 .kind = CT_COMM_REDUCE_SCATTER,
					 .dtype = CT_BF16,
					 .op = CT_AVG,
					 .root = -1,
					 .tag = 7,
					 .n = (uint64_t)seq * 7,
					 .posted_ns = seq + 1};
}

static bool same(const struct ct_flight_record *a, const struct ct_flight_record *b)
{
	return a->seq == b->seq && a->number == b->number && a->step == b->step && a->bucket == b->bucket &&
	       a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root && a->tag == b->tag &&
	       a->n == b->n && a->posted_ns == b->posted_ns;
}

static void test_ring(void **state)
{
	struct ct_flight *f = CT_NEW(struct ct_flight);
	struct ct_flight_record r, want;
	const int64_t n = CT_FLIGHT_RECORDS + 10;

	(void)state;
	assert_non_null(f);
	assert_false(ct__flight_at(f, 0, &r));
	for (int64_t seq = 0; seq < n; seq++) {
		want = record_of(seq);
		ct__flight_add(f, &want);
	}
	/* The first ten have been overwritten. */
	assert_false(ct__flight_at(f, 9, &r));
	assert_true(ct__flight_at(f, 10, &r));
	want = record_of(10);
	assert_true(same(&r, &want) && r.begun_ns == 0 && r.done_ns == 0);
	assert_true(ct__flight_find(f, n, 3 * 20, &r));
	assert_int_equal(r.seq, 20);
	assert_false(ct__flight_find(f, n, 3 * 9, &r));
	for (int64_t seq = 0; seq < n - 2; seq++)
		ct__flight_done(f, seq); /* of overwritten records: nothing */
	assert_true(ct__flight_pending(f, n, &r));
	assert_int_equal(r.seq, n - 2);
	ct__flight_begun(f, n - 2, ct_now_ns());
	assert_true(ct__flight_at(f, n - 2, &r) && r.begun_ns > 0 && r.done_ns == 0);
	ct__flight_done(f, n - 2);
	ct__flight_done(f, n - 1);
	assert_false(ct__flight_pending(f, n, &r));
	ct_free(f);
}

struct race {
	struct ct_flight f;
	_Atomic int64_t written;
	_Atomic bool stop;
};

static void *write_all(void *arg)
{
	struct race *race = arg;

	for (int64_t seq = 0; !atomic_load(&race->stop); seq++) {
		const struct ct_flight_record r = record_of(seq);

		ct__flight_add(&race->f, &r);
		atomic_store(&race->written, seq + 1);
	}
	return NULL;
}

/* A record that is read while the ring is written is complete, or it is not there. */
static void test_race(void **state)
{
	struct race *race = CT_NEW(struct race);
	struct ct_thread t = {0};
	struct ct_flight_record r, want;
	int n_read = 0;

	(void)state;
	assert_non_null(race);
	assert_int_equal(ct_thread_start(&t, "writer", write_all, race), CT_OK);
	while (n_read < 1000000) {
		const int64_t n = atomic_load(&race->written);

		/* The oldest record is the one that is being overwritten. */
		for (int64_t seq = n - CT_FLIGHT_RECORDS; seq < n; seq += CT_FLIGHT_RECORDS / 4) {
			if (!ct__flight_at(&race->f, seq, &r))
				continue;
			want = record_of(seq);
			assert_true(same(&r, &want));
			n_read++;
		}
	}
	atomic_store(&race->stop, true);
	ct_thread_join(&t);
	ct_free(race);
}

/* ---- ranks */

enum { SKIPS, STOPS, ANOTHER_BUCKET };

static char dir[] = "/tmp/ctrain-flight-XXXXXX";

static char *file_of(int rank)
{
	return ct_strfmt("%s/flight-%05d.json", dir, rank);
}

static ct_watchdog *start_watchdog(struct ct_world *w, ct_comm *c)
{
	char *path = file_of(w->id.rank);
	ct_watchdog *dog;

	CHECK(path && ct_watchdog_start(w, &dog) == CT_OK);
	(void)unlink(path);
	ct_watchdog_flight_file(dog, path);
	ct_watchdog_add_comm(dog, c);
	(void)ct_rank_page_enter(CT_RANK_TRAINING, 118);
	ct_watchdog_beat(dog);
	ct_free(path);
	return dog;
}

static enum ct_status post_bucket(ct_comm *c, float *x, int b, ct_work **w)
{
	enum ct_status st;

	ct_comm_set_bucket(c, b);
	st = ct_comm_allreduce(c, x, 1000, CT_F32, CT_SUM, w);
	ct_comm_set_bucket(c, -1);
	return st;
}

/* Reduces buckets 0, 1 and 2 of step 118. The last rank does not post bucket 2. */
static enum ct_status three_buckets(ct_comm *c, const struct scene *s)
{
	const bool last = ct_comm_rank(c) == ct_comm_size(c) - 1;
	static float x[1000];
	enum ct_status st = CT_OK;
	ct_work *w;

	ct_rank_page_post_step(118);
	for (int b = 0; b < 3 && st == CT_OK; b++) {
		if (last && b == 2 && s->variant == STOPS)
			raise(SIGSTOP);
		if (last && b == 2 && s->variant == SKIPS)
			break;
		st = run(post_bucket(c, x, last && b == 2 ? 5 : b, &w), &w);
	}
	return st;
}

/* Attribution needs a heartbeat of each rank. */
static void await_heartbeats(ct_store *s, int n_ranks)
{
	struct ct_member_state *m;
	int n, n_beating = 0;

	while (n_beating < n_ranks) {
		CHECK(ct_store_members(s, &m, &n) == CT_OK);
		n_beating = 0;
		for (int i = 0; i < n; i++)
			n_beating += m[i].beat_age_s >= 0;
		ct_free(m);
		pause_briefly();
	}
}

#define NEVER_POSTED \
	"is alive but has never posted bucket 2 of step 118 (allreduce sum f32[1000]); ranks waiting in it: 0, 1"

static void rank_main(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	const bool last = world->id.rank == world->id.world - 1;
	ct_comm *c = open_comm(world, s);
	ct_watchdog *dog = start_watchdog(world, c);
	struct ct_failure f;
	enum ct_status st;

	await_heartbeats(world->store, world->id.world);
	CHECK(barrier(c) == CT_OK);
	st = three_buckets(c, s);
	if (last && s->variant == SKIPS) {
		/* Alive, but it never posts bucket 2. */
		CHECK(st == CT_OK && ct_store_watch(world->store, ct_deadline_in(LONG), &f) == CT_OK);
		CHECK(ct_failure_raise(&f) == CT_PEER_LOST);
	} else {
		CHECK(st < 0);
		s->outcome[world->id.rank] = st;
		if (s->variant == ANOTHER_BUCKET) {
			CHECK(st == CT_MISMATCH || st == CT_PEER_LOST);
			CHECK(says("bucket 2") && says("bucket 5") && says("ranks disagree"));
		} else if (s->variant == SKIPS) {
			CHECK(says("rank 2 (pid ") && says(NEVER_POSTED));
		} else {
			CHECK(says("rank 2 (pid ") && says("has not answered for") &&
			      says("; ranks waiting in bucket 2 of step 118 (allreduce sum f32[1000]): 0, 1"));
		}
	}
	ct_watchdog_report(dog);
	ct_watchdog_remove_comm(dog, c);
	ct_comm_close(c);
	ct_watchdog_stop(dog);
}

/* Checks the last record in the file of a rank, and returns the number of its collective. */
static int64_t check_file(int rank, int64_t bucket, const char *state)
{
	char *path = file_of(rank), *text = NULL;
	const ct_json *comm, *list, *last;
	const char *s = "";
	int64_t v = -1;
	size_t len = 0;
	ct_json *j = NULL;

	assert_int_equal(ct_file_read(path, 1 << 20, &text, &len), CT_OK);
	assert_int_equal(ct_json_parse(text, len, path, &j), CT_OK);
	assert_true(ct_json_get_i64(j, "rank", &v) == CT_OK && v == rank);
	assert_true(ct_json_get_str(j, "reason", &s) == CT_OK && strstr(s, "rank 2 (pid "));
	assert_true(ct_json_get_str(j, "phase", &s) == CT_OK && strcmp(s, "training, step 118") == 0);
	comm = ct_json_at(ct_json_get(j, "communicators"), 0);
	list = ct_json_get(comm, "records");
	last = ct_json_at(list, ct_json_len(list) - 1);
	assert_true(ct_json_get_i64(last, "bucket", &v) == CT_OK && v == bucket);
	assert_true(ct_json_get_i64(last, "step", &v) == CT_OK && v == 118);
	assert_true(ct_json_get_i64(last, "bytes", &v) == CT_OK && v == 4000);
	assert_int_equal(ct_json_get_str(last, "state", &s), CT_OK);
	if (!strstr(state, s))
		fail_msg("rank %d: bucket %d is %s", rank, (int)bucket, s);
	assert_int_equal(ct_json_get_i64(last, "collective", &v), CT_OK);
	ct_json_destroy(j);
	ct_free(text);
	ct_free(path);
	return v;
}

static void check_ranks(const char *backend, const int *nodes, int variant)
{
	int outcome[MAX_RANKS];
	int64_t number;
	char *path;

	for (int q = 0; q < 3; q++) {
		path = file_of(q);
		(void)unlink(path);
		ct_free(path);
	}
	play(backend, 3, nodes, CT_SEC, rank_main, variant, variant == STOPS, outcome);
	assert_true(outcome[0] < 0 && outcome[1] < 0);
	if (variant == ANOTHER_BUCKET)
		return;
	number = check_file(0, 2, "posted begun");
	assert_int_equal(check_file(1, 2, "posted begun"), number);
	if (variant == SKIPS)
		assert_int_equal(check_file(2, 1, "done"), number - 1);
}

static void check_variant(int variant)
{
	check_ranks("shm", NULL, variant);
	if (comm_built("gloo"))
		check_ranks("gloo", NULL, variant);
}

static void test_skips(void **state)
{
	(void)state;
	check_variant(SKIPS);
	if (comm_built("hier"))
		check_ranks("hier", two_hosts, SKIPS);
}

static void test_stops(void **state)
{
	(void)state;
	check_variant(STOPS);
}

/* The sums of two different buckets of equal size would be wrong. */
static void test_another_bucket(void **state)
{
	(void)state;
	check_variant(ANOTHER_BUCKET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),  cmocka_unit_test(test_race),           cmocka_unit_test(test_skips),
		cmocka_unit_test(test_stops), cmocka_unit_test(test_another_bucket),
	};
	int failed;

	if (ct_log_configure("error") != CT_OK || !mkdtemp(dir))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (ct_dir_remove(dir) < 0)
		return 1;
	return failed;
}
