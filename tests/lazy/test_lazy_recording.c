/* Tests recordings of the lazy device. */
#include <unistd.h>

#include "tests/lazy/lazy_rig.h"

/* y = sum of x [n], z = y + 1 on another stream, all in pinned and device memory. */
struct calc {
	struct rig *r;
	float *in, *out;  /* pinned: [4], [2] */
	float *x, *y, *z; /* device memory: [4], [1], [1] */
	ct_recording *rec;
};

struct sum {
	const float *x;
	float *y;
	int n;
	float add;
};

static enum ct_status run_sum(const void *args)
{
	const struct sum *s = args;
	float sum = s->add;

	for (int i = 0; i < s->n; i++)
		sum += s->x[i];
	*s->y = sum;
	return CT_OK;
}

static void post_sum(ct_stream *s, const float *x, int n, float add, float *y)
{
	struct sum a = {x, y, n, add};

	assert_ok(ct_stream_run(s, run_sum, &a, sizeof(a)));
}

static float *device_floats(struct rig *r, size_t n)
{
	void *p;

	assert_ok(ct_device_mem_alloc(r->d, n * sizeof(float), false, &p));
	return p;
}

static float *pinned_floats(struct rig *r, size_t n)
{
	void *p;

	assert_ok(ct_device_host_alloc(r->d, n * sizeof(float), &p));
	return p;
}

static void hand_over(ct_event *e, ct_stream *from, ct_stream *to)
{
	assert_ok(ct_event_record(e, from));
	assert_ok(ct_stream_wait_event(to, e));
}

/* a: in -> x, y = sum(x); b: z = y + 1; a: out = y, z. With `wrong`, b does not wait for y. */
static void post_calc(struct calc *c, bool wrong)
{
	struct rig *r = c->r;

	hand_over(r->e, r->a, r->b);
	assert_ok(ct_device_copy(r->d, c->x, c->in, 4 * sizeof(float), r->a));
	post_sum(r->a, c->x, 4, 0, c->y);
	if (!wrong)
		hand_over(r->e, r->a, r->b);
	post_sum(r->b, c->y, 1, 1, c->z);
	hand_over(r->f, r->b, r->a);
	assert_ok(ct_device_copy(r->d, c->out, c->y, sizeof(float), r->a));
	assert_ok(ct_device_copy(r->d, c->out + 1, c->z, sizeof(float), r->a));
	assert_ok(ct_event_record(r->t, r->a));
}

static struct calc open_calc(int seed)
{
	struct calc c = {.r = open_rig(seed)};

	c.in = pinned_floats(c.r, 4);
	c.out = pinned_floats(c.r, 2);
	c.x = device_floats(c.r, 4);
	c.y = device_floats(c.r, 1);
	c.z = device_floats(c.r, 1);
	return c;
}

static void record_calc(struct calc *c, bool wrong)
{
	assert_ok(ct_recording_begin(c->r->a));
	post_calc(c, wrong);
	assert_ok(ct_recording_end(c->r->a, &c->rec));
}

static void close_calc(struct calc *c)
{
	ct_recording_destroy(c->rec);
	ct_device_mem_free(c->r->d, c->x);
	ct_device_mem_free(c->r->d, c->y);
	ct_device_mem_free(c->r->d, c->z);
	ct_device_host_free(c->r->d, c->in);
	ct_device_host_free(c->r->d, c->out);
	close_rig(c->r);
}

/* Two streams are recorded and posted three times with other input. Each post reaches the event. */
static void test_posted_again(void **state)
{
	uint64_t before = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct calc c = open_calc(seed);

		for (int i = 0; i < 4; i++)
			c.in[i] = 1;
		c.out[0] = c.out[1] = -1;
		record_calc(&c, false);
		assert_ok(ct_event_wait(c.r->t, CT_FOREVER)); /* nothing has recorded it */
		assert_ok(ct_device_sync(c.r->d, CT_FOREVER));
		assert_true(c.out[0] == -1 && c.out[1] == -1); /* recorded work does not run */
		for (int k = 1; k <= 4; k++) {
			for (int i = 0; i < 4; i++)
				c.in[i] = (float)(k + i);
			assert_ok(ct_recording_post(c.rec, k == 4 ? c.r->b : c.r->a));
			assert_ok(ct_event_wait(c.r->t, CT_FOREVER));
			assert_true(c.out[0] == (float)(4 * k + 6) && c.out[1] == (float)(4 * k + 7));
			assert_ok(ct_device_sync(c.r->d, CT_FOREVER));
			if (k == 2)
				before = ct_mem_count();
		}
		assert_int_equal(ct_mem_count(), before); /* posting again allocates nothing */
		close_calc(&c);
	}
}

/* A missing wait in the recording gives wrong results with some seeds. */
static void test_missing_event_wait(void **state)
{
	int right = 0, wrong = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct calc c = open_calc(seed);

		for (int i = 0; i < 4; i++)
			c.in[i] = 1;
		record_calc(&c, true);
		assert_ok(ct_recording_post(c.rec, c.r->a));
		assert_ok(ct_event_wait(c.r->t, CT_FOREVER));
		right += c.out[1] == 5;
		wrong += c.out[1] != c.out[1]; /* new memory is NaN */
		close_calc(&c);
	}
	assert_true(right > 0 && wrong > 0 && right + wrong == N_SEEDS);
}

/* The work of a post runs between the work that was posted to its stream earlier and later, and posts do not overlap.
 */
static void test_order_of_posts(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		ct_recording *rec;
		ct_stream *c;

		assert_ok(ct_stream_create(r->d, false, &c));
		post_note(r, r->b, 'w'); /* not in the recording, although b joins it later */
		assert_ok(ct_recording_begin(r->a));
		post_note(r, r->a, 'a');
		post_note(r, c, 'x'); /* c does not join */
		hand_over(r->e, r->a, r->b);
		post_note(r, r->b, 'b');
		hand_over(r->e, r->b, r->a);
		assert_ok(ct_recording_end(r->a, &rec));
		assert_string_equal(r->log, "");
		post_note(r, r->a, '1');
		assert_ok(ct_recording_post(rec, r->a));
		post_note(r, r->a, '2');
		assert_ok(ct_recording_post(rec, r->a));
		assert_ok(ct_recording_post(rec, c)); /* in order within c, but not ordered with the other streams */
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		assert_int_equal(strlen(r->log), 10);
		/* Without the letters of the streams that did not join. */
		char rest[16] = "";
		size_t n = 0;
		for (const char *p = r->log; *p; p++) {
			if (*p != 'w' && *p != 'x')
				rest[n++] = *p;
		}
		assert_string_equal(rest, "1ab2abab");
		ct_recording_destroy(rec);
		ct_stream_destroy(c);
		close_rig(r);
	}
}

/* A post reads pinned memory when its copy runs, so the memory must not change between the post and the copy. */
static void test_changed_source(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct calc c = open_calc(seed);

		record_calc(&c, false);
		c.in[0] = 1; /* recorded copies do not wait */
		assert_ok(ct_recording_post(c.rec, c.r->a));
		c.in[0] = 2;
		assert_fails(ct_stream_sync(c.r->a, CT_FOREVER), CT_BUG,
			     "host memory changed while a posted copy was waiting");
		close_calc(&c);
	}
}

static void test_not_joined(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec;
	ct_stream *c;

	(void)state;
	assert_ok(ct_stream_create(r->d, false, &c));
	/* Work is posted after the event that a waits for. */
	assert_ok(ct_recording_begin(r->a));
	hand_over(r->e, r->a, r->b);
	post_note(r, r->b, 'b');
	hand_over(r->e, r->b, r->a);
	post_note(r, r->b, 'c');
	assert_fails(ct_recording_end(r->a, &rec), CT_BUG, "wait for all work of the streams that joined");
	assert_null(rec);
	/* a waits for c, and c for b. */
	for (int good = 0; good < 2; good++) {
		assert_ok(ct_recording_begin(r->a));
		hand_over(r->e, r->a, r->b);
		post_note(r, r->b, 'b');
		hand_over(r->e, good ? r->b : r->a, c);
		post_note(r, c, 'c');
		hand_over(r->e, c, r->a);
		assert_int_equal(ct_recording_end(r->a, &rec), good ? CT_OK : CT_BUG);
		ct_recording_destroy(rec);
	}
	/* A stream joined and did nothing. */
	assert_ok(ct_recording_begin(r->a));
	hand_over(r->e, r->a, r->b);
	assert_ok(ct_recording_end(r->a, &rec));
	ct_recording_destroy(rec);
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	assert_string_equal(r->log, "");
	ct_stream_destroy(c);
	close_rig(r);
}

/* When a recording is spoiled, the call that spoils it fails, and later its end. The streams work as before. */
static void test_spoiled(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec, *good;
	void *x, *p;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
	assert_ok(ct_recording_begin(r->a));
	post_note(r, r->a, 'g');
	assert_ok(ct_recording_end(r->a, &good));
	post_note(r, r->b, 'b');
	assert_ok(ct_event_record(r->f, r->b));
	for (int i = 0; i < 10; i++) {
		assert_ok(ct_recording_begin(r->a));
		post_note(r, r->a, 'a');
		if (i == 0)
			assert_fails(ct_stream_sync(r->b, CT_FOREVER), CT_BUG, "the host waited during a recording");
		if (i == 1)
			assert_fails(ct_event_wait(r->t, CT_FOREVER), CT_BUG, "the host waited during a recording");
		if (i == 2)
			assert_fails(ct_device_sync(r->d, 0), CT_BUG, "the host waited during a recording");
		if (i == 3)
			assert_fails(ct_device_mem_alloc(r->d, 8, false, &p), CT_BUG, "memory was allocated during a");
		if (i == 4)
			assert_fails(ct_device_host_alloc(r->d, 8, &p), CT_BUG, "memory was allocated during a");
		if (i == 5)
			ct_device_mem_free(r->d, x);
		if (i == 6)
			assert_fails(ct_stream_wait_event(r->a, r->f), CT_BUG, "an event from outside during a");
		if (i == 7)
			assert_fails(ct_recording_begin(r->b), CT_BUG, "another recording was begun during a");
		if (i == 8)
			assert_fails(ct_recording_post(good, r->a), CT_BUG, "was posted to a recorded stream");
		if (i == 9) { /* only the stream on which it began can end it */
			assert_fails(ct_recording_end(r->b, &rec), CT_BUG, "no recording was begun on the stream");
			assert_ok(ct_recording_end(r->a, &rec));
			ct_recording_destroy(rec);
			break;
		}
		assert_fails(ct_recording_end(r->a, &rec), CT_BUG, "during a recording");
		assert_null(rec);
	}
	assert_fails(ct_recording_end(r->a, &rec), CT_BUG, "no recording was begun");
	ct_recording_destroy(good);
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	assert_string_equal(r->log, "b");
	close_rig(r);
}

/* An event that was recorded in a recording cannot be used outside. */
static void test_event_outside(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec, *second;

	(void)state;
	assert_ok(ct_recording_begin(r->a));
	assert_ok(ct_event_record(r->e, r->a));
	assert_ok(ct_recording_end(r->a, &rec));
	assert_fails(ct_stream_wait_event(r->b, r->e), CT_BUG, "an event of a recording that has ended");
	assert_ok(ct_recording_begin(r->a));
	assert_fails(ct_stream_wait_event(r->b, r->e), CT_BUG, "an event of a recording that has ended");
	assert_fails(ct_stream_wait_event(r->a, r->e), CT_BUG, "an event of another recording");
	assert_fails(ct_recording_end(r->a, &second), CT_BUG, "an event of another recording");
	/* Once it is recorded again, it is like any other event. */
	assert_ok(ct_event_record(r->e, r->a));
	assert_ok(ct_stream_wait_event(r->b, r->e));
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	ct_recording_destroy(rec);
	close_rig(r);
}

/* Copies and fills are checked when they are recorded, and again when they are posted: memory may have been freed. */
static void test_ranges(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec;
	void *x;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
	assert_ok(ct_recording_begin(r->a));
	assert_fails(ct_device_fill(r->d, x, 0, 65, r->a), CT_BUG, "not inside one block");
	assert_ok(ct_device_fill(r->d, x, 0, 64, r->a));
	assert_ok(ct_recording_end(r->a, &rec));
	assert_ok(ct_recording_post(rec, r->a));
	ct_device_mem_free(r->d, x);
	assert_fails(ct_recording_post(rec, r->a), CT_BUG, "the destination of a recorded copy or fill");
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	ct_recording_destroy(rec);
	close_rig(r);
}

/* Destroying a recording waits for what it posted. */
static void test_destroyed_while_posted(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct calc c = open_calc(seed);

		for (int i = 0; i < 4; i++)
			c.in[i] = 2;
		record_calc(&c, false);
		assert_ok(ct_recording_post(c.rec, c.r->a));
		assert_ok(ct_recording_post(c.rec, c.r->a));
		ct_recording_destroy(c.rec);
		c.rec = NULL;
		assert_true(c.out[0] == 8 && c.out[1] == 9);
		close_calc(&c);
	}
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

/* Work that needs several calls, like a collective, lets the other streams of the recording continue. */
static void test_unfinished(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		struct late l = {r, 'b', 'a'};
		ct_recording *rec;

		assert_ok(ct_recording_begin(r->a));
		hand_over(r->e, r->a, r->b);
		assert_ok(ct_stream_run(r->a, be_late, &l, sizeof(l)));
		post_note(r, r->b, 'b');
		hand_over(r->e, r->b, r->a);
		assert_ok(ct_recording_end(r->a, &rec));
		for (int i = 0; i < 3; i++) {
			memset(r->log, 0, sizeof(r->log));
			assert_ok(ct_recording_post(rec, r->a));
			assert_ok(ct_stream_sync(r->a, CT_FOREVER));
			assert_string_equal(r->log, "ba");
		}
		ct_recording_destroy(rec);
		close_rig(r);
	}
}

static enum ct_status fail_once(const void *args)
{
	(void)args;
	return CT_FAIL(CT_COMM, "lost the link to rank 7");
}

/* A device that fails during a recording, or in a post of one, releases everything. */
static void test_failed_device(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec;

	(void)state;
	assert_ok(ct_recording_begin(r->a));
	hand_over(r->e, r->a, r->b);
	assert_ok(ct_stream_run(r->b, fail_once, NULL, 0));
	assert_ok(ct_event_record(r->t, r->b));
	hand_over(r->e, r->b, r->a);
	assert_ok(ct_recording_end(r->a, &rec));
	assert_ok(ct_recording_post(rec, r->a));
	assert_ok(ct_recording_post(rec, r->a));
	assert_fails(ct_stream_sync(r->a, CT_FOREVER), CT_COMM, "rank 7");
	assert_fails(ct_recording_post(rec, r->a), CT_COMM, "rank 7");
	assert_fails(ct_recording_begin(r->a), CT_COMM, "rank 7");
	ct_recording_destroy(rec);
	close_rig(r);
}

static void test_out_of_memory(void **state)
{
	struct rig *r = open_rig(1);
	ct_recording *rec;
	int failed = 0;

	(void)state;
	ct_mem_fail_after(1);
	assert_int_equal(ct_recording_begin(r->a), CT_NOMEM);
	ct_mem_fail_after(0);
	assert_ok(ct_recording_begin(r->a));
	ct_mem_fail_after(1);
	assert_int_equal(ct_event_record(r->e, r->a), CT_NOMEM);
	ct_mem_fail_after(0);
	assert_ok(ct_event_record(r->e, r->a));
	assert_ok(ct_stream_wait_event(r->b, r->e));
	post_note(r, r->b, 'b');
	assert_ok(ct_event_record(r->u, r->b));
	hand_over(r->f, r->b, r->a);
	assert_ok(ct_recording_end(r->a, &rec));
	for (uint64_t i = 1;; i++) {
		ct_mem_fail_after(i);
		enum ct_status st = ct_recording_post(rec, r->a);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			break;
		assert_int_equal(st, CT_NOMEM);
		failed++;
	}
	assert_true(failed > 1);
	assert_ok(ct_event_wait(r->u, CT_FOREVER));
	assert_string_equal(r->log, "b");
	ct_recording_destroy(rec);
	close_rig(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_posted_again),
		cmocka_unit_test(test_missing_event_wait),
		cmocka_unit_test(test_order_of_posts),
		cmocka_unit_test(test_changed_source),
		cmocka_unit_test(test_not_joined),
		cmocka_unit_test(test_spoiled),
		cmocka_unit_test(test_event_outside),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_destroyed_while_posted),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_failed_device),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
