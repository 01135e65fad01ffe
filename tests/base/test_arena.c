/* Tests arenas and mirrors on every device that this build has. */
#include "base/device/arena.h"

#include "base/clock.h"
#include "tests/base/check.h"

struct rig {
	ct_device *d;
	ct_stream *s;
};

static void open_rig(void **state, struct rig *r)
{
	if (ct_device_open(*state, 0, &r->d) == CT_NO_DEVICE) {
		print_message("%s\n", ct_error_message());
		skip();
	}
	assert_non_null(r->d);
	assert_ok(ct_stream_create(r->d, false, &r->s));
}

static void close_rig(struct rig *r)
{
	ct_stream_destroy(r->s);
	ct_device_close(r->d);
}

static void expect_floats(struct rig *r, const ct_arena *a, size_t first, size_t n, const float *want)
{
	float *got = CT_NEW_ARRAY(float, n + 1);

	assert_non_null(got);
	got[n] = -7;
	assert_ok(ct_arena_read(a, first, n, got, r->s));
	assert_memory_equal(got, want, n * sizeof(*got));
	assert_true(got[n] == -7);
	ct_free(got);
}

static void test_create(void **state)
{
	static const float zeros[10];
	struct rig r = {0};
	ct_arena *a, *empty;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 10, &a));
	assert_ptr_equal(ct_arena_device(a), r.d);
	assert_int_equal(ct_arena_dtype(a), CT_F32);
	assert_int_equal(ct_arena_elems(a), 10);
	assert_int_equal(ct_arena_bytes(a), 40);
	assert_int_equal((uintptr_t)ct_arena_at(a, 0) % 256, 0);
	assert_ptr_equal((char *)ct_arena_at(a, 10) - 40, ct_arena_at(a, 0));
	expect_floats(&r, a, 0, 10, zeros);
	ct_arena_destroy(a);
	ct_arena_destroy(NULL);
	assert_ok(ct_arena_create(r.d, CT_BF16, 0, &empty));
	assert_int_equal(ct_arena_bytes(empty), 0);
	assert_ok(ct_arena_zero(empty, r.s));
	assert_ok(ct_arena_read(empty, 0, 0, NULL, r.s));
	ct_arena_destroy(empty);
	assert_fails(ct_arena_create(r.d, CT_F64, SIZE_MAX / 4, &a), CT_NOMEM, "too large");
	for (uint64_t i = 1; i <= 2; i++) {
		ct_mem_fail_after(i);
		assert_int_equal(ct_arena_create(r.d, CT_F32, 10, &a), CT_NOMEM);
		ct_mem_fail_after(0);
	}
	close_rig(&r);
}

static void test_wrap(void **state)
{
	static const float two[] = {1, 2};
	struct rig r = {0};
	ct_arena *a, *part;
	uint64_t before;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 8, &a));
	assert_fails(ct_arena_wrap(r.d, CT_F32, 1, (char *)ct_arena_at(a, 0) + 2, &part), CT_BUG, "f32");
	assert_ok(ct_arena_wrap(r.d, CT_F32, 2, ct_arena_at(a, 3), &part));
	before = ct_arena_generation(a);
	assert_ok(ct_arena_write(part, 0, 2, two, r.s));
	assert_true(ct_arena_generation(a) == before); /* the owner touches what it knows to be changed */
	ct_arena_destroy(part);                        /* does not free the memory */
	expect_floats(&r, a, 2, 4, (const float[]){0, 1, 2, 0});
	ct_arena_destroy(a);
	close_rig(&r);
}

static void test_read_write(void **state)
{
	float in[] = {1, 2, 3};
	struct rig r = {0};
	ct_arena *a;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 5, &a));
	assert_ok(ct_arena_write(a, 1, 3, in, r.s));
	in[0] = 9; /* ordinary memory has been read when the call returns */
	expect_floats(&r, a, 0, 5, (const float[]){0, 1, 2, 3, 0});
	assert_ok(ct_arena_write(a, 4, 1, in, r.s));
	expect_floats(&r, a, 3, 2, (const float[]){3, 9});
	assert_ok(ct_arena_zero(a, r.s));
	expect_floats(&r, a, 0, 5, (const float[]){0, 0, 0, 0, 0});
	ct_arena_destroy(a);
	close_rig(&r);
}

struct add_args {
	float *x;
	size_t n;
	float by;
};

static enum ct_status add(const void *args)
{
	const struct add_args *a = args;

	for (size_t i = 0; i < a->n; i++)
		a->x[i] += a->by;
	return CT_OK;
}

/* Copies run in the order of the stream. */
static void test_copy(void **state)
{
	struct rig r = {0};
	ct_arena *a, *b;
	struct add_args args;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 2, &a));
	assert_ok(ct_arena_create(r.d, CT_F32, 2, &b));
	args = (struct add_args){ct_arena_at(a, 0), 2, 1};
	assert_ok(ct_stream_run(r.s, add, &args, sizeof(args)));
	assert_ok(ct_arena_copy(b, a, r.s));
	assert_ok(ct_stream_run(r.s, add, &args, sizeof(args)));
	expect_floats(&r, b, 0, 2, (const float[]){1, 1});
	expect_floats(&r, a, 0, 2, (const float[]){2, 2});
	ct_arena_destroy(a);
	ct_arena_destroy(b);
	close_rig(&r);
}

static void test_mirror(void **state)
{
	struct ct_mirror m = {0};
	struct rig r = {0};
	ct_arena *a, *empty;
	struct add_args args;
	float *x;

	open_rig(state, &r);
	assert_ok(ct_mirror_close(&m)); /* a zeroed mirror */
	assert_ok(ct_arena_create(r.d, CT_F32, 3, &a));
	args = (struct add_args){ct_arena_at(a, 0), 3, 4};
	assert_ok(ct_stream_run(r.s, add, &args, sizeof(args)));
	assert_ok(ct_mirror_open(a, CT_MIRROR_WRITE, r.s, &m));
	assert_int_equal(m.n, 3);
	assert_true(m.copied == !ct_device_caps(r.d)->host_visible);
	x = m.data;
	assert_true(x[0] == 4 && x[2] == 4); /* what was posted before */
	x[1] = 5;
	assert_ok(ct_mirror_close(&m));
	assert_null(m.data);
	expect_floats(&r, a, 0, 3, (const float[]){4, 5, 4});
	assert_ok(ct_mirror_open(a, CT_MIRROR_READ, r.s, &m));
	assert_memory_equal(m.data, ((const float[]){4, 5, 4}), 12);
	assert_ok(ct_mirror_close(&m));
	/* A dropped mirror does not copy anything back. */
	assert_ok(ct_mirror_open(a, CT_MIRROR_WRITE, r.s, &m));
	if (m.copied)
		((float *)m.data)[0] = 99;
	ct_mirror_drop(&m);
	ct_mirror_drop(&m);
	expect_floats(&r, a, 0, 3, (const float[]){4, 5, 4});
	assert_ok(ct_arena_create(r.d, CT_F32, 0, &empty));
	assert_ok(ct_mirror_open(empty, CT_MIRROR_WRITE, r.s, &m));
	assert_int_equal(m.n, 0);
	assert_ok(ct_mirror_close(&m));
	ct_arena_destroy(empty);
	ct_arena_destroy(a);
	close_rig(&r);
}

static void test_generation(void **state)
{
	struct ct_mirror m;
	struct rig r = {0};
	ct_arena *a, *b;
	uint64_t g;
	float x = 1;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 1, &a));
	assert_ok(ct_arena_create(r.d, CT_F32, 1, &b));
	assert_true(ct_arena_generation(a) != 0);
#define CHANGES(is_changed, what)                                           \
	do {                                                                \
		g = ct_arena_generation(a);                                 \
		what;                                                       \
		assert_true((ct_arena_generation(a) != g) == (is_changed)); \
	} while (0)
	CHANGES(true, ct_arena_touch(a));
	CHANGES(true, assert_ok(ct_arena_write(a, 0, 1, &x, r.s)));
	CHANGES(false, assert_ok(ct_arena_read(a, 0, 1, &x, r.s)));
	CHANGES(false, assert_ok(ct_arena_copy(b, a, r.s)));
	CHANGES(true, assert_ok(ct_arena_copy(a, b, r.s)));
	CHANGES(true, assert_ok(ct_arena_zero(a, r.s)));
	CHANGES(false, assert_ok(ct_mirror_open(a, CT_MIRROR_READ, r.s, &m)); assert_ok(ct_mirror_close(&m)));
	CHANGES(true, assert_ok(ct_mirror_open(a, CT_MIRROR_WRITE, r.s, &m)); assert_ok(ct_mirror_close(&m)));
#undef CHANGES
	ct_arena_destroy(a);
	ct_arena_destroy(b);
	close_rig(&r);
}

/* Reads and mirrors return the error of failed work. */
static enum ct_status fail_always(const void *args)
{
	(void)args;
	return CT_FAIL(CT_DEVICE, "broken on purpose");
}

static void test_failure(void **state)
{
	struct ct_mirror m;
	struct rig r = {0};
	ct_arena *a;
	enum ct_status st;
	float x;

	open_rig(state, &r);
	assert_ok(ct_arena_create(r.d, CT_F32, 1, &a));
	st = ct_stream_run(r.s, fail_always, NULL, 0);
	if (ct_device_caps(r.d)->async) {
		assert_ok(st);
		assert_fails(ct_arena_read(a, 0, 1, &x, r.s), CT_DEVICE, "broken on purpose");
		assert_fails(ct_mirror_open(a, CT_MIRROR_READ, r.s, &m), CT_DEVICE, "broken on purpose");
		assert_null(m.data);
	} else {
		assert_int_equal(st, CT_DEVICE);
	}
	ct_arena_destroy(a);
	close_rig(&r);
}

#define ON(kind, fn) {#fn "(" kind ")", fn, NULL, NULL, (void *)(uintptr_t)kind}
#define ON_ALL(fn) ON("cpu", fn), ON("lazy", fn)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_ALL(test_create), ON_ALL(test_wrap),       ON_ALL(test_read_write), ON_ALL(test_copy),
		ON_ALL(test_mirror), ON_ALL(test_generation), ON_ALL(test_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
