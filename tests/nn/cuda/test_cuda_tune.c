/* The choice of plans: tuning, and what the plan cache keeps of it, on the software GPU with the stand-in of cuDNN. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "nn/cuda/program/program.h"
#include "nn/plan_cache.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/cuda/plan_cache_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { MAX_CHOICES = 16 };

static const char default_layers[] = "conv2d 8 kernel=3;relu;conv2d 8 kernel=3;linear 10";
static const char *layers = default_layers;
static void (*progress)(void *user, size_t done, size_t total); /* ct_net_opts.tuning */

/* What one start of a training program has done. */
struct start {
	enum ct_status status;
	int executions;        /* of plans, all of them for tuning */
	int heuristics, plans; /* that cuDNN has run and made */
	int n;
	char config[MAX_CHOICES][CT__CUDNN_CONFIG_MAX];
	struct ct__cudnn_plan_info info[MAX_CHOICES];
};

static void compile(struct start *s, ct_graph *g, ct_engine *e, enum ct_precision precision, enum ct_autotune tune)
{
	const struct ct_net_opts opts = {.batch = 2,
					 .input = CT_INPUT_F32_NCHW,
					 .train = true,
					 .precision = precision,
					 .autotune = tune,
					 .tuning = progress};
	const ct__cudnn_choices *all = ((const struct cuda_engine *)e)->choices;
	ct_program *p = NULL;
	ct_net *net;

	assert_ok(ct_net_create(e, g, &opts, &net));
	s->heuristics = -soft_cudnn_finalized(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	s->plans = -soft_cudnn_finalized(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	s->status = ct_program_create(net, 2, CT_TRAIN, &p);
	s->executions = soft_gpu_calls("cudnnBackendExecute");
	s->heuristics += soft_cudnn_finalized(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	s->plans += soft_cudnn_finalized(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	s->n = s->status < 0 ? 0 : (int)ct__cudnn_choices_count(all); /* a failed search leaves some without a plan */
	assert_true(s->n <= MAX_CHOICES);
	for (int i = 0; s->status == CT_OK && i < s->n; i++) {
		s->info[i] = *ct__cudnn_plan_info(ct__cudnn_choices_at(all, (size_t)i)->plan);
		memcpy(s->config[i], s->info[i].config, sizeof(s->config[i]));
	}
	ct_program_destroy(p);
	ct_net_destroy(net);
}

static struct start start_with(enum ct_precision precision, enum ct_autotune tune, const char *faults)
{
	ct_graph *g = graph_make((struct ct_shape){3, 8, 8}, layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	static struct start s;
	ct_device *device;
	ct_engine *e;

	memset(&s, 0, sizeof(s));
	soft_gpu_set_faults(NULL);
	open_engine(true, &device, &e);
	soft_gpu_set_faults(faults);
	compile(&s, g, e, precision, tune);
	soft_gpu_set_faults(NULL);
	ct_engine_close(e);
	ct_device_close(device);
	ct_graph_destroy(g);
	assert_int_equal(soft_gpu_live() + soft_cudnn_live(), 0);
	return s;
}

static struct start start(enum ct_precision precision, enum ct_autotune tune)
{
	return start_with(precision, tune, NULL);
}

static bool same_choices(const struct start *a, const struct start *b)
{
	return a->n == b->n && !memcmp(a->config, b->config, sizeof(a->config));
}

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

/* A plan that cuDNN cannot finalize or execute is skipped. Engine 10 is the first one of the heuristics. */
static void test_broken_engine(void **state)
{
	static const enum soft_cudnn_stage stages[] = {SOFT_CUDNN_FINALIZE, SOFT_CUDNN_EXECUTE};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(stages); i++) {
		open_log();
		soft_cudnn_set_broken(10, stages[i]);
		const struct start s = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
		soft_cudnn_set_broken(-1, stages[i]);
		assert_int_equal(s.status, CT_OK);
		assert_int_equal(s.n, 8);
		for (int k = 0; k < s.n; k++)
			assert_int_not_equal(s.info[k].engine, 10);
		assert_true(has_logged("failed and were skipped: 8 "));
		ct_log_close();
		assert_ok(ct_dir_remove(dir));
		assert_ok(ct_dir_make(dir));
	}
}

/* The same without tuning. A warning names the operation, because the results differ from those of other starts. */
static void test_broken_first_plan(void **state)
{
	(void)state;
	open_log();
	(void)start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF);
	assert_false(has_logged("cuDNN prefers"));
	soft_cudnn_set_broken(10, SOFT_CUDNN_FINALIZE);
	const struct start off = start(CT_PRECISION_TF32, CT_AUTOTUNE_OFF);
	soft_cudnn_set_broken(-1, SOFT_CUDNN_FINALIZE);
	assert_int_equal(off.status, CT_OK);
	for (int k = 0; k < off.n; k++)
		assert_int_not_equal(off.info[k].engine, 10);
	assert_true(has_logged(
		"conv2: using plan 11, because those that cuDNN prefers failed (1): cuDNN: cudnnBackendFinalize (finalizing a plan)"));
}

/* In fp32, the stand-in has only engine 0 for fused graphs. */
static void test_broken_fusion(void **state)
{
	(void)state;
	open_log();
	soft_cudnn_set_broken(0, SOFT_CUDNN_FINALIZE);
	const struct start s = start(CT_PRECISION_FP32, CT_AUTOTUNE_OFF);
	soft_cudnn_set_broken(-1, SOFT_CUDNN_FINALIZE);
	assert_int_equal(s.status, CT_OK);
	assert_true(has_logged("conv1 is not fused: cuDNN has no usable plan for"));
}

/* The plans of the file that cannot be made again are replaced. */
static void test_broken_choice(void **state)
{
	(void)state;
	open_log();
	const struct start one = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	const int64_t broken = one.info[0].engine;
	soft_cudnn_set_broken(broken, SOFT_CUDNN_FINALIZE);
	const struct start two = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	soft_cudnn_set_broken(-1, SOFT_CUDNN_FINALIZE);
	const struct start three = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);

	assert_int_equal(two.status, CT_OK);
	assert_true(two.executions > 0);
	for (int i = 0; i < two.n; i++)
		assert_int_not_equal(two.info[i].engine, broken);
	assert_true(has_logged(
		"choosing a plan again: cuDNN: cudnnBackendFinalize (finalizing a plan): CUDNN_STATUS_INTERNAL_ERROR"));
	assert_int_equal(three.executions, 0);
	assert_true(same_choices(&two, &three));
}

static size_t n_tuned, n_done;

static void count(void *user, size_t done, size_t total)
{
	(void)user;
	n_done = done;
	n_tuned = total;
}

/* A start after one that ended early, at which `left` of 8 operations are tuned. */
static void expect_left(size_t left)
{
	n_tuned = 0;
	progress = count;
	const struct start s = start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
	progress = NULL;
	assert_int_equal(s.status, CT_OK);
	assert_int_equal(s.n, 8);
	assert_int_equal(n_tuned, left);
}

/* What was tuned before an error is kept. An operation has 5 plans, and each one takes 4 to 12 records. */
static void test_error_keeps_choices(void **state)
{
	(void)state;
	progress = count;
	const struct start failed = start_with(CT_PRECISION_TF32, CT_AUTOTUNE_ON, "cudaEventRecordWithFlags:100:999");
	progress = NULL;
	assert_int_equal(failed.status, CT_DEVICE);
	assert_in_range(n_done, 1, 7);
	expect_left(8 - n_done);
}

/* What the tests add to the clock. */
static int64_t ahead_ns;

int64_t __real_ct_now_ns(void);
int64_t __wrap_ct_now_ns(void);
int64_t __wrap_ct_now_ns(void)
{
	return __real_ct_now_ns() + ahead_ns;
}

/* Ends the process as if it was killed when two operations have been tuned, the second one after the interval in which
 * the cache is saved. */
static void kill_after_two(void *user, size_t done, size_t total)
{
	(void)user;
	(void)total;
	if (done == 1)
		ahead_ns = 2100 * CT_MS;
	if (done == 2)
		(void)raise(SIGKILL);
}

static void test_killed_start_keeps_choices(void **state)
{
	int status;

	(void)state;
	progress = kill_after_two;
	const pid_t child = fork();
	if (child == 0) {
		(void)start(CT_PRECISION_TF32, CT_AUTOTUNE_ON);
		_exit(1);
	}
	progress = NULL;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	expect_left(6);
}

/* Too little memory for the operands is not an error, but the choice is not kept. A failure that is not that of one
 * plan is an error. */
static void test_failures(void **state)
{
	(void)state;
	static const struct {
		const char *fault;
		enum ct_status status;
	} cases[] = {{"cudnnBackendExecute:3:5000", CT_OK},
		     {"cudnnBackendExecute:0:5000", CT_DEVICE},
		     {"cudnnBackendGetAttribute:90:4003", CT_NOMEM},
		     {"cudnnBackendGetAttribute:30:4003", CT_NOMEM},
		     {"cudaEventRecordWithFlags:2:999", CT_DEVICE}};

	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_ok(ct_dir_remove(dir));
		const struct start s = start_with(CT_PRECISION_TF32, CT_AUTOTUNE_ON, cases[i].fault);
		if (s.status != cases[i].status)
			fail_msg("%s: status %d instead of %d: %s", cases[i].fault, (int)s.status, (int)cases[i].status,
				 ct_error_message());
	}
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
		TEST(test_broken_engine),
		TEST(test_broken_first_plan),
		TEST(test_broken_fusion),
		TEST(test_broken_choice),
		TEST(test_error_keeps_choices),
		TEST(test_killed_start_keeps_choices),
		TEST(test_failures),
	};

	ct_log_off_terminal(true);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
