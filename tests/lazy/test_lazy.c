/* Tests when posted work runs on the lazy device. */
#include "tests/lazy/lazy_rig.h"

static void test_open(void **state)
{
	struct ct_device_info info;
	ct_device *d = NULL;
	bool has_driver;
	char why[256];

	(void)state;
	setenv("CTRAIN_LAZY_SEED", "often", 1);
	assert_fails(ct_device_open("lazy", 0, &d), CT_USAGE, "CTRAIN_LAZY_SEED=often");
	unsetenv("CTRAIN_LAZY_SEED");
	assert_fails(ct_device_open("lazy", 64, &d), CT_NO_DEVICE, "lazy device 64");
	assert_null(strstr(ct_error_hint_text(), "lazy"));
	assert_string_not_equal(ct_device_choose(&has_driver, why, sizeof(why)), "lazy");
	assert_ok(ct_device_open("lazy", 63, &d));
	assert_false(ct_device_caps(d)->host_visible);
	assert_true(ct_device_caps(d)->async);
	assert_true(ct_device_caps(d)->host_code);
	assert_true(ct_device_caps(d)->recordable);
	assert_ok(ct_device_info(d, &info));
	assert_string_equal(info.kind, "lazy");
	assert_int_equal(info.index, 63);
	assert_true(info.name[0] && info.free_bytes == info.total_bytes && info.total_bytes > 0);
	ct_device_close(d);
}

static void test_order_in_stream(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);

		for (char c = 'a'; c <= 'z'; c++)
			post_note(r, r->a, c);
		assert_string_equal(r->log, ""); /* nothing runs when it is posted */
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		assert_string_equal(r->log, "abcdefghijklmnopqrstuvwxyz");
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		close_rig(r);
	}
}

/* When the host waits for stream a, stream b may have done none, some or all of its work, in any interleaving. */
static void test_order_between_streams(void **state)
{
	int b_first = 0, a_first = 0, none = 0, some = 0, all = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		size_t n;

		for (int i = 0; i < 4; i++) {
			post_note(r, r->a, (char)('A' + i));
			post_note(r, r->b, (char)('a' + i));
		}
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		n = strlen(r->log);
		assert_true(n >= 4 && n <= 8);
		none += n == 4;
		some += n > 4 && n < 8;
		all += n == 8;
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		assert_int_equal(strlen(r->log), 8);
		a_first += position(r, 'D') < position(r, 'a');
		b_first += position(r, 'd') < position(r, 'A');
		close_rig(r);
	}
	assert_true(a_first > 0 && b_first > 0 && a_first + b_first < N_SEEDS);
	assert_true(none > 0 && some > 0 && all > 0);
}

/* A stream that is not waited for often does nothing, no matter how long the host waits for another one. */
static void test_held_back(void **state)
{
	int held = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);

		post_note(r, r->b, 'b');
		for (int i = 0; i < 60; i++)
			post_note(r, r->a, 'a');
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		held += position(r, 'b') < 0;
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		assert_true(position(r, 'b') >= 0);
		close_rig(r);
	}
	assert_true(held > N_SEEDS / 3 && held < N_SEEDS);
}

static void test_same_seed_same_order(void **state)
{
	char logs[2][64];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rig *r = open_rig(7);

		for (int k = 0; k < 20; k++)
			post_note(r, k % 2 ? r->a : r->b, (char)('a' + k));
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		memcpy(logs[i], r->log, sizeof(r->log));
		close_rig(r);
	}
	assert_string_equal(logs[0], logs[1]);
}

static void test_events(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);

		assert_ok(ct_event_wait(r->t, CT_FOREVER)); /* never recorded: done */
		assert_ok(ct_stream_wait_event(r->b, r->e));
		post_note(r, r->a, 'a');
		assert_ok(ct_event_record(r->e, r->a));
		post_note(r, r->a, 'b');
		assert_ok(ct_stream_wait_event(r->b, r->e));
		post_note(r, r->b, 'c');
		assert_ok(ct_event_record(r->f, r->b));
		assert_ok(ct_event_record(r->t, r->b));
		assert_ok(ct_stream_wait_event(r->a, r->f));
		post_note(r, r->a, 'd');
		assert_ok(ct_event_wait(r->t, CT_FOREVER));
		assert_true(position(r, 'a') >= 0 && position(r, 'a') < position(r, 'c'));
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		assert_true(position(r, 'c') < position(r, 'd') && position(r, 'b') < position(r, 'd'));
		close_rig(r);
	}
}

/* A stream waits for the record that was the last one when the wait was posted, whatever happens to the event later. */
static void test_event_recorded_again(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		ct_stream *c;
		ct_event *g;

		assert_ok(ct_stream_create(r->d, false, &c));
		assert_ok(ct_event_create(r->d, false, &g));
		post_note(r, r->a, 'a');
		assert_ok(ct_event_record(g, r->a));
		assert_ok(ct_stream_wait_event(c, g));
		post_note(r, c, 'c');
		post_note(r, r->b, 'b');
		assert_ok(ct_event_record(g, r->b));
		assert_ok(ct_event_record(r->t, r->b));
		assert_ok(ct_event_wait(r->t, CT_FOREVER));
		assert_true(position(r, 'b') >= 0);
		ct_event_destroy(g); /* while stream c still waits for what it recorded */
		assert_ok(ct_stream_sync(c, CT_FOREVER));
		assert_true(position(r, 'a') >= 0 && position(r, 'a') < position(r, 'c'));
		ct_stream_destroy(c);
		close_rig(r);
	}
}

/* The host cannot wait for events that order streams, and streams cannot wait for timed events. */
static void test_uses_of_events(void **state)
{
	struct rig *r = open_rig(1);
	int64_t ns;

	(void)state;
	assert_fails(ct_event_wait(r->e, CT_FOREVER), CT_BUG, "not created as timed");
	assert_fails(ct_event_elapsed(r->e, r->t, &ns), CT_BUG, "not created as timed");
	assert_fails(ct_event_elapsed(r->t, r->e, &ns), CT_BUG, "not created as timed");
	assert_fails(ct_stream_wait_event(r->a, r->t), CT_BUG, "does not order");
	close_rig(r);
}

struct sum_args {
	const float *x;
	float *y;
	size_t n;
};

static enum ct_status sum_up(const void *args)
{
	const struct sum_args *a = args;

	*a->y = 0;
	for (size_t i = 0; i < a->n; i++)
		*a->y += a->x[i];
	return CT_OK;
}

/* The input is copied on one stream and used on another. */
static float copy_and_use(int seed, bool with_event)
{
	struct rig *r = open_rig(seed);
	struct sum_args args = {.n = 16};
	float *in, sum;
	void *host, *x, *y;

	assert_ok(ct_device_host_alloc(r->d, 64, &host));
	assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
	assert_ok(ct_device_mem_alloc(r->d, 4, false, &y));
	in = host;
	for (int i = 0; i < 16; i++)
		in[i] = 1;
	assert_ok(ct_device_copy(r->d, x, host, 64, r->b));
	if (with_event) {
		assert_ok(ct_event_record(r->e, r->b));
		assert_ok(ct_stream_wait_event(r->a, r->e));
	}
	args.x = x;
	args.y = y;
	assert_ok(ct_stream_run(r->a, sum_up, &args, sizeof(args)));
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	assert_ok(ct_device_copy(r->d, host, y, 4, r->a));
	assert_ok(ct_stream_sync(r->a, CT_FOREVER));
	sum = in[0];
	ct_device_mem_free(r->d, x);
	ct_device_mem_free(r->d, y);
	ct_device_host_free(r->d, host);
	close_rig(r);
	return sum;
}

static void test_missing_event_wait(void **state)
{
	int right = 0, wrong = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		float sum = copy_and_use(seed, false);

		assert_true(copy_and_use(seed, true) == 16);
		right += sum == 16;
		wrong += sum != sum; /* new memory is NaN */
	}
	assert_true(right > 0 && wrong > 0 && right + wrong == N_SEEDS);
}

struct late {
	struct rig *rig;
	char after, letter;
};

/* This work is unfinished until another stream has run `after`. */
static enum ct_status be_late(const void *args)
{
	const struct late *l = args;
	struct note n = {l->rig, l->letter};

	return position(l->rig, l->after) < 0 ? CT_INPROGRESS : add_letter(&n);
}

static void test_unfinished(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		struct late b = {r, 'x', 'b'}, c = {r, 'b', 'c'};

		assert_ok(ct_stream_run(r->a, be_late, &b, sizeof(b)));
		post_note(r, r->a, 'y');
		post_note(r, r->b, 'x');
		assert_ok(ct_stream_run(r->b, be_late, &c, sizeof(c)));
		assert_ok(ct_stream_sync(seed % 2 ? r->a : r->b, CT_FOREVER));
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		assert_true(position(r, 'x') == 0 && position(r, 'b') == 1);
		assert_int_equal(strlen(r->log), 4);
		close_rig(r);
	}
}

static void test_deadline(void **state)
{
	struct rig *r = open_rig(3);
	struct late b = {r, 'x', 'b'};

	(void)state;
	assert_ok(ct_stream_run(r->a, be_late, &b, sizeof(b)));
	assert_ok(ct_event_record(r->t, r->a));
	assert_fails(ct_stream_sync(r->a, ct_deadline_in(2 * CT_MS)), CT_TIMEOUT, "in time");
	assert_fails(ct_event_wait(r->t, ct_deadline_in(2 * CT_MS)), CT_TIMEOUT, "in time");
	assert_fails(ct_device_sync(r->d, 0), CT_TIMEOUT, "in time");
	/* A wait that times out is not an error of the device. */
	post_note(r, r->b, 'x');
	assert_ok(ct_event_wait(r->t, CT_FOREVER));
	assert_string_equal(r->log, "xb");
	/* Waits with a deadline that has passed make progress, too. */
	post_note(r, r->a, 'c');
	while (ct_stream_sync(r->a, 0) != CT_OK)
		assert_int_equal(ct_error_status(), CT_TIMEOUT);
	assert_string_equal(r->log, "xbc");
	close_rig(r);
}

static void test_elapsed(void **state)
{
	struct rig *r = open_rig(1);
	int64_t ns = -1, before = ct_now_ns(), all;

	(void)state;
	assert_fails(ct_event_elapsed(r->t, r->u, &ns), CT_BUG, "waited for");
	assert_ok(ct_event_record(r->t, r->a));
	post_note(r, r->a, 'a');
	assert_ok(ct_event_record(r->u, r->a));
	assert_fails(ct_event_elapsed(r->t, r->u, &ns), CT_BUG, "waited for");
	assert_int_equal(ns, -1);
	assert_ok(ct_event_wait(r->u, CT_FOREVER));
	assert_ok(ct_event_elapsed(r->t, r->u, &ns));
	all = ct_now_ns() - before;
	assert_true(ns >= 0 && ns <= all);
	assert_ok(ct_event_elapsed(r->u, r->t, &before));
	assert_true(before == -ns);
	close_rig(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_order_in_stream),
		cmocka_unit_test(test_order_between_streams),
		cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_same_seed_same_order),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_event_recorded_again),
		cmocka_unit_test(test_uses_of_events),
		cmocka_unit_test(test_missing_event_wait),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_elapsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
