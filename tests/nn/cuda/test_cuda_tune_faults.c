/* Plans that fail while they are chosen, and starts that end before they have chosen all. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/nn/cuda/tune_check.h"

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
		TEST(test_broken_engine), TEST(test_broken_first_plan),   TEST(test_broken_fusion),
		TEST(test_broken_choice), TEST(test_error_keeps_choices), TEST(test_killed_start_keeps_choices),
		TEST(test_failures),
	};

	ct_log_off_terminal(true);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
