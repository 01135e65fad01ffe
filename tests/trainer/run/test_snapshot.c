/* Successive snapshots of a training run in the same memory or without a copy, and saving while training continues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/ckpt_fixture.h"
#include "trainer/run/checkpoint/snapshot_impl.h"

static struct fixture fx;

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0)
		return -1;
	if (fixture_try_open(&fx, "resnet20", 10, 0.9f) < 0) {
		print_error("%s\n", ct_error_message());
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	fixture_close(&fx);
	return tmpdir_teardown(state);
}

static bool holds(const struct ct_mirror *copy, ct_arena *a)
{
	return copy->n == ct_arena_elems(a) && memcmp(copy->data, on_host(a), ct_arena_bytes(a)) == 0;
}

/* A copy on several threads is complete, and later snapshots are taken into the memory of the first. */
static void test_reuse(void **state)
{
	struct ct_checkpoint_source src = {
		.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &fx.state, .threads = 3};
	void *first[3][2] = {{NULL}};
	struct ct_snapshot snap = {0};

	(void)state;
	assert_true(ct_arena_bytes(ct_net_params(fx.net)) > 1 << 20); /* large enough for several threads */
	for (uint32_t step = 1; step <= 3; step++) {
		fixture_set_step(&fx, step);
		uint64_t before = ct_mem_count();
		assert_ok(ct__snapshot_take(&src, &snap));
		assert_int_equal(snap.n_groups, 3);
		assert_int_equal(snap.state.step, step);
		assert_true(holds(&snap.groups[0].params, ct_net_params(fx.net)));
		assert_true(holds(&snap.groups[0].buffers, ct_net_buffers(fx.net)));
		assert_true(holds(&snap.groups[1].params, ct_optim_state(fx.optim, 0)));
		assert_false(snap.groups[1].has_buffers);
		assert_true(holds(&snap.groups[2].params, ct_ema_params(fx.ema)));
		assert_true(holds(&snap.groups[2].buffers, ct_ema_buffers(fx.ema)));
		if (step > 1)
			assert_int_equal(ct_mem_count() - before, 1); /* the lines of the config */
		for (int i = 0; i < 3; i++) {
			void *now[2] = {snap.groups[i].params.data, snap.groups[i].buffers.data};

			if (step > 1)
				assert_memory_equal(now, first[i], sizeof(now));
			memcpy(first[i], now, sizeof(now));
		}
	}
	ct__snapshot_release(&snap);
}

/* Values that stay unchanged are not copied, whether or not they were copied before. */
static void test_unchanged(void **state)
{
	struct ct_checkpoint_source src = {.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &fx.state};
	ct_arena *const params[3] = {ct_net_params(fx.net), ct_optim_state(fx.optim, 0), ct_ema_params(fx.ema)};
	ct_arena *const buffers[3] = {ct_net_buffers(fx.net), NULL, ct_ema_buffers(fx.ema)};
	static const bool unchanged[] = {true, false, true, true, false};
	struct ct_snapshot snap = {0};

	(void)state;
	for (uint32_t step = 0; step < CT_ARRAY_LEN(unchanged); step++) {
		fixture_set_step(&fx, step);
		src.unchanged = unchanged[step];
		assert_ok(ct__snapshot_take(&src, &snap));
		for (int i = 0; i < 3; i++) {
			const struct ct_snapshot_group *g = &snap.groups[i];

			assert_true(holds(&g->params, params[i]));
			assert_true((g->params.data == on_host(params[i])) == src.unchanged);
			if (!buffers[i])
				continue;
			assert_true(holds(&g->buffers, buffers[i]));
			assert_true((g->buffers.data == on_host(buffers[i])) == src.unchanged);
		}
	}
	ct__snapshot_release(&snap);
	assert_true(fixture_is_step(&fx, CT_ARRAY_LEN(unchanged) - 1));
}

/* The weights change while the writer works; every checkpoint has those of its own step. */
static void test_writer(void **state)
{
	struct ct_checkpoint_source src = {.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &fx.state};
	const char *run = in_tmpdir("writer");
	struct ct_checkpoint_result r;
	ct_checkpoint_writer *w;

	(void)state;
	assert_ok(ct_checkpoint_writer_create(run, 0, &w));
	for (uint32_t step = 1; step <= 3; step++) {
		fixture_set_step(&fx, step);
		assert_ok(ct_checkpoint_writer_post(w, &src, false));
		fixture_set_step(&fx, 100 + step);
		assert_ok(ct_checkpoint_writer_take(w, true, &r));
		assert_int_equal(r.step, step);
		assert_true(r.exposed_seconds > 0 && r.seconds > 0);
		ct_free(r.path);
		assert_int_equal(fixture_newest(&fx, run), step);
	}
	ct_checkpoint_writer_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_unchanged),
		cmocka_unit_test(test_writer),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
