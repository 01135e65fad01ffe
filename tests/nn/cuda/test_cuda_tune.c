/* The choice of plans: tuning, and what the plan cache keeps of it, on the software GPU with the stand-in of cuDNN. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/nn/cuda/tune_check.h"

/* The path of the only cache in the directory, which the caller frees. */
static char *cache_path(void)
{
	char *plans = ct_path_join(dir, "ctrain/plans"), **names, *path = NULL;
	size_t n;

	assert_ok(ct_dir_list(plans, &names, &n));
	for (size_t i = 0; i < n; i++) {
		const size_t len = strlen(names[i]);

		if (len > 4 && !strcmp(names[i] + len - 4, ".txt"))
			path = ct_path_join(plans, names[i]);
	}
	ct_dir_list_free(names, n);
	ct_free(plans);
	assert_non_null(path);
	return path;
}

/* ---- Tests -------------------------------------------------------------------------------------------- */

static void test_second_start_does_not_tune(void **state)
{
	(void)state;
	const struct start off = start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF),
			   one = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO),
			   two = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO);

	assert_int_equal(off.executions, 0);
	assert_int_equal(one.n, 8); /* three layers, without the gradient of the input */
	/* Each candidate at least twice; there are at least four for each graph. */
	assert_true(one.executions >= one.n * 4 * 2);
	assert_int_equal(two.executions, 0);
	assert_true(same_choices(&one, &two));
	/* Engines that the stand-in has for these graphs; 10 is the first one of the heuristics. */
	for (int i = 0; i < off.n; i++)
		assert_int_equal(off.info[i].engine, 10);
}

/* "cached" uses the plans of the file, measures nothing and does not write the file. */
static void test_cached(void **state)
{
	(void)state;
	const struct start off = start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF),
			   none = start(CT_PRECISION_TF32, CT_AUTOTUNE_CACHED),
			   tuned = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO),
			   cached = start(CT_PRECISION_TF32, CT_AUTOTUNE_CACHED);

	assert_int_equal(none.executions, 0);
	assert_true(same_choices(&off, &none));
	assert_true(tuned.executions > 0);
	assert_int_equal(cached.executions, 0);
	assert_true(same_choices(&tuned, &cached));
	assert_false(same_choices(&off, &cached));
}

/* To find out what can be fused, at most one plan is made for each layer, none of an engine that is compiled at run
 * time, and none at all if the choices are known. */
static void test_few_plans_are_made(void **state)
{
	(void)state;
	const struct start off = start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF);
	assert_int_equal(off.n, 8);
	assert_int_equal(off.plans, 8 + 3);
	(void)start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	const struct start known = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	assert_int_equal(known.heuristics, 0);
	assert_int_equal(known.plans, 8);
	layers = "conv2d 8 kernel=3 bias=false;relu;linear 10 bias=false";
	const struct start no_bias = start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF);
	layers = default_layers;
	assert_int_equal(no_bias.status, CT_OK);
	assert_true(no_bias.heuristics > no_bias.n); /* it has asked for convolution and ReLU */
	assert_int_equal(no_bias.plans, no_bias.n);
}

/* The fastest plan is chosen, and not the first one. */
static void test_slow_engines(void **state)
{
	static const int64_t engines[] = {10, 0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(engines); i++) {
		soft_cudnn_set_slow(engines[i], SOFT_CUDNN_EXECUTE);
		const struct start s = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
		soft_cudnn_set_slow(-1, SOFT_CUDNN_EXECUTE);
		assert_ok(ct_dir_remove(dir));
		assert_int_equal(s.n, 8);
		for (int k = 0; k < s.n; k++)
			assert_int_not_equal(s.info[k].engine, engines[i]);
	}
}

/* While a plan is measured, no other one is made, although threads make them. */
static void test_nothing_else_is_measured(void **state)
{
	(void)state;
	const int before = soft_cudnn_overlaps();
	soft_cudnn_set_slow(10, SOFT_CUDNN_FINALIZE);
	const struct start s = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	soft_cudnn_set_slow(-1, SOFT_CUDNN_FINALIZE);
	assert_true(s.executions > 0);
	assert_int_equal(soft_cudnn_overlaps(), before);
}

/* fp32 and tf32 have the same graphs, but not the same plans. */
static void test_precisions_are_separate(void **state)
{
	(void)state;
	const struct start tf32 = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON),
			   fp32 = start(CT_PRECISION_FP32, CT_AUTOTUNE_ON),
			   again = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON),
			   fp32_again = start(CT_PRECISION_FP32, CT_AUTOTUNE_ON);

	assert_true(tf32.executions > 0 && fp32.executions > 0);
	assert_int_equal(again.executions + fp32_again.executions, 0);
	assert_true(same_choices(&tf32, &again) && same_choices(&fp32, &fp32_again));
	for (int i = 0; i < fp32.n; i++)
		assert_false(fp32.info[i].tensor_core);
}

/* Nets of one engine share choices only if they allow the same plans. */
static void test_determinism_is_separate(void **state)
{
	ct_graph *g = graph_make((struct ct_shape){3, 8, 8}, layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true, .autotune = CT_AUTOTUNE_OFF};
	const size_t expected[] = {8, 16, 16}; /* deterministic, not, deterministic again */
	ct_device *device;
	ct_engine *e;

	(void)state;
	open_engine(true, &device, &e);
	for (size_t i = 0; i < CT_ARRAY_LEN(expected); i++) {
		ct_program *p;
		ct_net *net;

		opts.nondeterministic = i == 1;
		assert_ok(ct_net_create(e, g, &opts, &net));
		assert_ok(ct_program_create(net, 2, CT_TRAIN, &p));
		assert_int_equal(ct__cudnn_choices_count(((const struct cuda_engine *)e)->choices), expected[i]);
		ct_program_destroy(p);
		ct_net_destroy(net);
	}
	ct_engine_close(e);
	ct_device_close(device);
	ct_graph_destroy(g);
}

/* An entry that is intact but not allowed, for example made by hand, is not used. */
static void test_entry_that_is_not_allowed(void **state)
{
	char *path, *text, *from;
	size_t n;

	(void)state;
	open_log();
	const struct start one = start(CT_PRECISION_FP32, CT_AUTOTUNE_ON);
	path = cache_path();
	assert_ok(ct_file_read(path, 1 << 20, &text, &n));
	/* The same entries, all with engine 10, which uses tensor cores. */
	from = strchr(text, '\n') + 1;
	*strchr(from, '\n') = '\0';
	ct_plan_cache *c = open_cache(from);
	for (char *line = strchr(from, '\0') + 1, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (strchr(line, '\t'))
			assert_ok(ct_plan_cache_put(c, strchr(line, '\t') + 1, "10"));
	}
	ct_plan_cache_save(c);
	ct_plan_cache_destroy(c);
	ct_free(text);
	ct_free(path);
	const struct start two = start(CT_PRECISION_FP32, CT_AUTOTUNE_ON);
	assert_int_equal(two.status, CT_OK);
	assert_true(two.executions > 0);
	for (int i = 0; i < one.n; i++)
		assert_false(two.info[i].tensor_core);
	assert_true(has_logged("choosing a plan again: configuration 10 of \"forward"));
}

static void test_damaged_file_is_replaced(void **state)
{
	char *path, *data;
	size_t n;

	(void)state;
	open_log();
	const struct start one = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO);
	path = cache_path();
	assert_ok(ct_file_read(path, 1 << 20, &data, &n));
	data[n / 2] = (char)(data[n / 2] ^ 4);
	assert_ok(ct_file_replace(path, data, n));
	const struct start two = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO),
			   three = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO);
	assert_true(has_logged(path));
	assert_true(two.executions > 0);
	assert_int_equal(three.executions, 0);
	assert_int_equal(one.n, three.n);
	assert_true(same_choices(&two, &three));
	ct_free(data);
	ct_free(path);
}

/* A directory in which nothing can be written, also for root. */
static void test_no_directory(void **state)
{
	char *file = ct_path_join(dir, "file");

	(void)state;
	open_log();
	assert_ok(ct_file_replace(file, "", 0));
	assert_int_equal(setenv("XDG_CACHE_HOME", file, 1), 0);
	const struct start automatic = start(CT_PRECISION_TF32, CT_AUTOTUNE_AUTO),
			   on = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	assert_int_equal(automatic.status, CT_OK);
	assert_int_equal(automatic.executions, 0);
	assert_int_equal(on.status, CT_OK);
	assert_true(on.executions > 0);
	assert_true(has_logged("tuned plans cannot be saved"));
	ct_free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_slow_engines),
		TEST(test_second_start_does_not_tune),
		TEST(test_cached),
		TEST(test_nothing_else_is_measured),
		TEST(test_few_plans_are_made),
		TEST(test_precisions_are_separate),
		TEST(test_determinism_is_separate),
		TEST(test_entry_that_is_not_allowed),
		TEST(test_damaged_file_is_replaced),
		TEST(test_no_directory),
	};

	ct_log_off_terminal(true);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
