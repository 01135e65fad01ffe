/* Errors of posted work that the posting of a plan is the first to return, and plans that cuDNN does not execute. */
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { ROWS = 2, SIZE = 5, CLASSES = 4 };

static void expect_suspects(void)
{
	const char *message = ct_error_message();

	assert_int_equal(ct_error_status(), CT_DEVICE);
	if (!strstr(message, "conv1: CUDA: cudnnBackendExecute reports that work has failed, probably one of ") ||
	    !strstr(message, "\"conv1: cuDNN\"") || !strstr(message, ": cudaErrorIllegalAddress: "))
		fail_msg("\"%s\" does not name the plan that has failed", message);
	assert_non_null(strstr(ct_error_hint_text(), "CUDA_LAUNCH_BLOCKING=1 ctrain CONFIG train.cuda_graph=off"));
}

/* The plan of a forward pass fails when it runs. The next pass, which begins with a plan because it has no images,
 * reports this. */
static void fail_before_a_plan(bool recorded)
{
	const struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true};
	struct cuda_rig r;

	cuda_rig_open(&r, "conv2d 4 kernel=3;linear 4", SIZE, CLASSES, ROWS, &opts);
	assert_ok(ct_program_create(r.net, ROWS, CT_TRAIN, &r.train));
	const struct ct_batch b = cuda_rig_batch(&r, ROWS), no_images = {.n = ROWS, .labels = r.labels};
	soft_gpu_set_faults("cudnnBackendExecute@1:700");
	assert_ok(ct_program_forward(r.train, &b));
	if (recorded)
		assert_ok(ct_recording_begin(ct_engine_stream(r.engine)));
	while (soft_gpu_progress() == cudaSuccess)
		;
	assert_true(r.engine->ops->forward(r.train, &no_images, &r.net->state->metrics) < 0);
	expect_suspects();
}

static void test_suspects(void **state)
{
	int status;

	(void)state;
	for (int recorded = 0; recorded < 2; recorded++) {
		const pid_t child = fork(); /* a process does not recover from the failure of a GPU */

		if (child == 0) {
			fail_before_a_plan(recorded);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

/* Runs a pass with an engine of cuDNN that is broken in this way, and checks whether each graph keeps it. Engine 10 is
 * the first that the heuristics propose, and 11 needs more workspace. */
static void run_broken(enum soft_cudnn_stage stage, bool kept)
{
	const struct ct_net_opts opts = {
		.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true, .precision = CT_PRECISION_TF32};
	const struct ct_backward_opts backward = {.scale = 1};
	struct cuda_rig r;

	cuda_rig_open(&r, "conv2d 4 kernel=3;linear 4", SIZE, CLASSES, ROWS, &opts);
	assert_ok(ct_program_create(r.net, ROWS, CT_TRAIN, &r.train));
	const struct ct_batch b = cuda_rig_batch(&r, ROWS);
	const ct__cudnn_choices *choices = ((const struct cuda_engine *)r.engine)->choices;
	soft_cudnn_set_broken(10, stage);
	for (int i = 0; i < 2; i++) {
		const int calls = soft_gpu_calls("cudnnBackendExecute"), n = (int)ct__cudnn_choices_count(choices);

		assert_ok(ct_program_forward(r.train, &b));
		assert_ok(ct_program_backward(r.train, &backward));
		/* Only in the first pass, plans fail. */
		assert_int_equal(soft_gpu_calls("cudnnBackendExecute") - calls > n, i == 0);
	}
	soft_cudnn_set_broken(-1, stage);
	for (size_t i = 0; i < ct__cudnn_choices_count(choices); i++) {
		const int64_t engine = ct__cudnn_plan_info(ct__cudnn_choices_at(choices, i)->plan)->engine;

		assert_int_not_equal(engine, 11);
		assert_int_equal(engine == 10, kept);
	}
	assert_ok(ct_stream_sync(ct_engine_stream(r.engine), CT_FOREVER));
	cuda_rig_close(&r);
	assert_int_equal(soft_gpu_live() + soft_cudnn_live(), 0);
}

static void test_plan_without_a_handle(void **state)
{
	(void)state;
	run_broken(SOFT_CUDNN_EXECUTE_WITHOUT_HANDLE, true);
}

static void test_plan_that_cannot_run(void **state)
{
	(void)state;
	run_broken(SOFT_CUDNN_EXECUTE, false);
}

/* An error that only cuDNN has is that of cuDNN. */
static void test_error_of_the_library(void **state)
{
	const struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true};
	struct cuda_rig r;

	(void)state;
	cuda_rig_open(&r, "conv2d 4 kernel=3;linear 4", SIZE, CLASSES, ROWS, &opts);
	assert_ok(ct_program_create(r.net, ROWS, CT_TRAIN, &r.train));
	const struct ct_batch b = cuda_rig_batch(&r, ROWS);
	soft_gpu_set_faults("cudnnBackendExecute:0:4000");
	assert_int_equal(ct_program_forward(r.train, &b), CT_DEVICE);
	soft_gpu_set_faults(NULL);
	assert_non_null(
		strstr(ct_error_message(), "conv1: cuDNN: cudnnBackendExecute: CUDNN_STATUS_INTERNAL_ERROR: the call"));
	assert_string_equal(ct_error_hint_text(), "");
	ct_error_clear();
	cuda_rig_close(&r);
	assert_int_equal(soft_gpu_live(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suspects),
		cmocka_unit_test(test_plan_without_a_handle),
		cmocka_unit_test(test_plan_that_cannot_run),
		cmocka_unit_test(test_error_of_the_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
