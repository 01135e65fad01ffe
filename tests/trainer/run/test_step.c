/* Steps of a single process: a smaller last step in an epoch, and accumulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/nn/on_host.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/run/step/step.h"

/* 29 samples in steps of 24: the second and last one has 5. */
#define DATA \
	"data: {name: synthetic, n_train: 29, n_val: 8, shape: [1, 4, 4]}\ntrain: {epochs: 2, engine: ref}\nbatch: {global: 24}\n"
#define MLP "model: {name: mlp, hidden: [8]}\n" DATA
#define GROUPS                                                                                                                \
	"model: {name: mlp, hidden: [8]}\n"                                                                                   \
	"data: {name: synthetic, n_train: 72, n_val: 8, shape: [1, 4, 4]}\ntrain: {epochs: 2, engine: ref, graph_steps: 4}\n" \
	"batch: {global: 24}\ndevice: lazy\n"
#define MANY                                                                                                                  \
	"model: {name: mlp, hidden: [8]}\n"                                                                                   \
	"data: {name: synthetic, n_train: 29, n_val: 8, shape: [1, 4, 4]}\ntrain: {epochs: 2, engine: ref, accumulate: 12}\n" \
	"batch: {global: 24}\ndevice: lazy\n"
#define NORM "model: {name: layers, layers: [\"linear 8\", \"batch_norm\", \"relu\", \"linear 10\"]}\n" DATA

struct rig {
	struct ct_config *cfg;
	struct ct_session s;
	ct_stepper *stepper;
};

static enum ct_status open_rig(struct rig *r, const char *yaml, const char *key, const char *value)
{
	struct ct_config_set set = {key, value, "test"};

	*r = (struct rig){0};
	CT_TRY(ct_file_replace(in_tmpdir("c.yaml"), yaml, strlen(yaml)));
	CT_TRY(ct_config_load(in_tmpdir("c.yaml"), &set, 1, &r->cfg));
	CT_TRY(ct_session_create(r->cfg, NULL, true, &r->s));
	return ct_stepper_create(&r->s, &r->stepper);
}

static void close_rig(struct rig *r)
{
	ct_stepper_destroy(r->stepper);
	ct_session_destroy(&r->s, false);
	ct_config_destroy(r->cfg);
}

static struct ct_step_result gradients(struct rig *r)
{
	struct ct_step_request req = {.step = 0}; /* with a learning rate of 0 */
	struct ct_step_result out;
	bool last;

	assert_int_equal(ct_stepper_post(r->stepper, &req, &last), CT_OK);
	assert_int_equal(ct_stepper_pending(r->stepper), 1);
	assert_int_equal(ct_stepper_take(r->stepper, &out), CT_OK);
	assert_int_equal(out.last_of_epoch, last);
	assert_int_equal(out.outcome, CT_UPDATE_DONE);
	return out;
}

/* The same sums in other pieces; in the last step the 5 samples fall into 4 micro-batches of 2, 1, 1, 1 and 8 of 1 or
 * none. */
static void test_accumulation_changes_nothing(void **state)
{
	static const char *const accumulate[] = {"4", "8"};
	struct rig one, many;

	(void)state;
	for (size_t k = 0; k < CT_ARRAY_LEN(accumulate); k++) {
		assert_int_equal(open_rig(&one, MLP, "train.accumulate", "1"), CT_OK);
		assert_int_equal(open_rig(&many, MLP, "train.accumulate", accumulate[k]), CT_OK);
		for (int step = 0; step < 4; step++) {
			struct ct_step_result a = gradients(&one), b = gradients(&many);

			assert_int_equal(a.n_global, step % 2 ? 5 : 24);
			assert_int_equal(b.n_global, a.n_global);
			assert_int_equal(a.last_of_epoch, step % 2);
			assert_int_equal(b.last_of_epoch, a.last_of_epoch);
			assert_true(fabs(a.loss_sum - b.loss_sum) < 1e-5 * a.loss_sum);
			for (size_t i = 0; i < ct_net_arena_elems(one.s.net); i++)
				assert_true(fabsf(on_host(ct_net_grads(one.s.net))[i] -
						  on_host(ct_net_grads(many.s.net))[i]) < 1e-6f);
		}
		close_rig(&many);
		close_rig(&one);
	}
}

static void test_requests_come_back(void **state)
{
	struct ct_step_request req = {.stop = true};
	struct ct_step_result out;
	struct rig r;
	bool last;

	(void)state;
	assert_int_equal(open_rig(&r, MLP, "train.accumulate", "1"), CT_OK);
	assert_int_equal(ct_stepper_post(r.stepper, &req, &last), CT_OK);
	assert_int_equal(ct_stepper_take(r.stepper, &out), CT_OK);
	assert_true(out.stop && !out.save);
	req = (struct ct_step_request){.save = true};
	assert_int_equal(ct_stepper_post(r.stepper, &req, &last), CT_OK);
	assert_int_equal(ct_stepper_take(r.stepper, &out), CT_OK);
	assert_true(!out.stop && out.save);
	assert_true(out.times.forward_ns > 0 && out.times.backward_ns > 0);
	close_rig(&r);
}

/* Batch norm cannot be trained on one row: said before the first step. */
static void test_last_step_of_one_row(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, NORM, "data.n_train", "25"), CT_CONFIG);
	assert_non_null(strstr(ct_error_message(), "the last step of an epoch has one sample for rank 0"));
	assert_non_null(strstr(ct_error_hint_text(), "data.drop_last=true"));
	close_rig(&r);
	assert_int_equal(open_rig(&r, NORM, "data.n_train", "26"), CT_OK);
	close_rig(&r);
	assert_int_equal(open_rig(&r, MLP, "data.n_train", "25"), CT_OK);
	close_rig(&r);
}

/* In each of the 3 slots, the first step is posted as usual, and the second one is recorded and posted as usual. Later
 * steps post the recordings. When another program has been created, the steps are recorded again. */
static void test_recorded_steps(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MLP "device: lazy\n", "data.n_train", "264"), CT_OK);
	for (int step = 0; step < 33; step++) {
		(void)gradients(&r);
		assert_int_equal(ct_stepper_replayed(r.stepper), step < 6 ? 0 : step - 5);
	}
	ct_program *other;
	assert_int_equal(ct_program_create(r.s.net, 3, CT_EVAL, &other), CT_OK);
	for (int step = 0; step < 12; step++) {
		(void)gradients(&r);
		assert_int_equal(ct_stepper_replayed(r.stepper), 27 + (step < 3 ? 0 : step - 2));
	}
	ct_program_destroy(other);
	close_rig(&r);
}

/* The 12th and last step of an epoch is smaller. All ranks drop their recordings at the first such step, even those
 * that need no other program for it. Here, the program for one row has been created before the first step. */
static void test_smaller_step_drops_recordings(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MLP "device: lazy\n", "data.n_train", "265"), CT_OK);
	for (int step = 0; step < 36; step++) {
		static const int replayed[] = {5, 13, 24};
		const bool smaller = gradients(&r).n_global == 1;

		assert_int_equal(smaller, step % 12 == 11);
		if (smaller)
			assert_int_equal(ct_stepper_replayed(r.stepper), replayed[step / 12]);
	}
	close_rig(&r);
}

/* The data set has 3 steps in an epoch, all of them full, so a group contains steps of two epochs. */
static void post_steps(struct rig *r, int n, int most)
{
	struct ct_step_request req = {0};
	struct ct_step_result out;
	bool last;

	for (int i = 0; i < n; i++) {
		assert_int_equal(ct_stepper_post(r->stepper, &req, &last), CT_OK);
		while (ct_stepper_pending(r->stepper) > most) {
			assert_int_equal(ct_stepper_take(r->stepper, &out), CT_OK);
			assert_int_equal(out.outcome, CT_UPDATE_DONE);
			assert_int_equal(out.n_global, 24);
			assert_true(out.times.step_ns > 0);
		}
	}
}

static void test_groups_of_steps(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, GROUPS, "data.n_train", "72"), CT_OK);
	const int lag = ct_stepper_lag(r.stepper);
	assert_int_equal(lag, 8);
	post_steps(&r, 24, lag);
	assert_int_equal(ct_stepper_replayed(r.stepper), 0);
	post_steps(&r, 8, lag);
	assert_int_equal(ct_stepper_replayed(r.stepper), 8);
	/* Steps whose results are taken before their group is full are posted without a recording. */
	post_steps(&r, 2, 0);
	assert_int_equal(ct_stepper_pending(r.stepper), 0);
	assert_int_equal(ct_stepper_replayed(r.stepper), 8);
	post_steps(&r, 4, lag);
	assert_int_equal(ct_stepper_replayed(r.stepper), 12);
	close_rig(&r);
}

static void test_device_that_cannot_record(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MLP, "train.cuda_graph", "on"), CT_UNSUPPORTED);
	assert_non_null(strstr(ct_error_message(), "train.cuda_graph=on: a cpu device cannot record steps"));
	assert_non_null(strstr(ct_error_hint_text(), "train.cuda_graph=auto"));
	close_rig(&r);
}

static void test_too_many_batches_to_record(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MANY, "train.cuda_graph", "on"), CT_UNSUPPORTED);
	assert_non_null(strstr(ct_error_message(), "steps of more than 8 batches (train.accumulate) are not recorded"));
	close_rig(&r);
}

static bool hold;

static enum ct_status held(const void *args)
{
	(void)args;
	return hold ? CT_INPROGRESS : CT_OK;
}

/* Another rank never takes part in a collective that cannot measure this itself. */
static void test_results_that_never_come(void **state)
{
	struct ct_config_set sets[] = {{"device", "lazy", "test"}, {"dist.timeout", "0.05", "test"}};
	struct ct_step_request req = {.step = 7};
	struct ct_step_result out;
	struct rig r = {0};
	bool last;

	(void)state;
	assert_int_equal(ct_file_replace(in_tmpdir("c.yaml"), MLP, strlen(MLP)), CT_OK);
	assert_int_equal(ct_config_load(in_tmpdir("c.yaml"), sets, CT_ARRAY_LEN(sets), &r.cfg), CT_OK);
	assert_int_equal(ct_session_create(r.cfg, NULL, true, &r.s), CT_OK);
	hold = true;
	r.s.world.id.world = 2;
	assert_int_equal(ct_stepper_create(&r.s, &r.stepper), CT_OK);
	assert_int_equal(ct_stream_run(ct_engine_stream(r.s.engine), held, &r, sizeof(r.cfg)), CT_OK);
	assert_int_equal(ct_stepper_post(r.stepper, &req, &last), CT_OK);
	/* The next step, which is smaller, needs a program, and the device must be idle when it is created. */
	assert_int_equal(ct_stepper_post(r.stepper, &req, &last), CT_TIMEOUT);
	assert_non_null(strstr(ct_error_message(), "waited 0.1 s for the posted steps, for which all ranks"));
	assert_non_null(strstr(ct_error_hint_text(), "dist.timeout determines this time"));
	assert_int_equal(ct_stepper_take(r.stepper, &out), CT_TIMEOUT);
	assert_non_null(strstr(ct_error_message(), "waited 0.1 s for the results of step 7, for which all ranks"));
	hold = false;
	r.s.world.id.world = 1;
	close_rig(&r);
}

/* An all-reduce that is not done before the compute stream waits for it. Other work runs between two calls, and at most
 * a few operations precede the wait. */
enum { CALLS = 200, STEPS = 33 };
static struct {
	bool on;
	int calls, n; /* calls of the current all-reduce; all-reduces that are done */
	int64_t ns,
		waits[STEPS]; /* durations of the second halves of the calls, during which the compute stream waits */
} late;

static enum ct_status late_allreduce(const void *args)
{
	(void)args;
	late.calls++;
	if (late.calls == CALLS / 2)
		late.ns = ct_now_ns();
	if (late.calls < CALLS)
		return CT_INPROGRESS;
	assert_in_range(late.n, 0, STEPS - 1);
	late.waits[late.n++] = ct_now_ns() - late.ns;
	late.calls = 0;
	return CT_OK;
}

enum ct_status __real_ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
					     ct_stream *s);
enum ct_status __wrap_ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
					     ct_stream *s);
enum ct_status __wrap_ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
					     ct_stream *s)
{
	return late.on ? ct_stream_run(s, late_allreduce, &c, sizeof(c))
		       : __real_ct_comm_post_allreduce(c, buf, n, t, op, s);
}

/* Most of the steps are recorded. */
static void check_exposed(struct rig *r)
{
	for (int step = 0; step < STEPS; step++) {
		const struct ct_step_times t = gradients(r).times;

		if (late.on)
			assert_true(late.waits[step] > 0 && t.exposed_ns >= late.waits[step]);
		else
			assert_int_equal(t.exposed_ns, 0);
		assert_true(t.forward_ns > 0 && t.backward_ns > 0 && t.optim_ns > 0);
	}
	assert_true(ct_stepper_replayed(r->stepper) > STEPS / 2);
}

/* The compute stream's wait for a late all-reduce is exposed communication, in recorded steps, too. A single rank has
 * none. */
static void test_exposed_communication(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MLP "device: lazy\n", "data.n_train", "264"), CT_OK);
	check_exposed(&r);
	close_rig(&r);
	assert_int_equal(open_rig(&r, MLP "device: lazy\n", "data.n_train", "264"), CT_OK);
	r.s.world.id.world = 2;
	late.on = true;
	check_exposed(&r);
	late.on = false;
	r.s.world.id.world = 1;
	close_rig(&r);
}

/* The size in a checkpoint replaces one that was measured, but not one that the config sets. */
static void test_buckets_of_a_checkpoint(void **state)
{
	struct rig r;

	(void)state;
	assert_int_equal(open_rig(&r, MLP "dist: {first_bucket_mib: 0.0001}\n", "dist.bucket_mib", "auto"), CT_OK);
	/* A single rank has nothing to measure. */
	assert_true(r.s.grad.choice.n_times == 0 && r.s.grad.choice.bytes == 4 << 20);
	assert_int_equal(r.s.grad.n_buckets, 2);
	assert_int_equal(ct_session_resume_buckets(&r.s, 64), CT_OK);
	assert_true(r.s.grad.n_buckets == 2 && r.s.state.bucket_bytes == 0);
	r.s.grad.choice.n_times = 1;
	assert_int_equal(ct_session_resume_buckets(&r.s, 0), CT_OK);
	assert_true(!r.s.grad.choice.resumed && r.s.state.bucket_bytes == 4 << 20);
	assert_int_equal(r.s.grad.n_buckets, 2);
	assert_int_equal(ct_session_resume_buckets(&r.s, 64), CT_OK);
	assert_true(r.s.grad.choice.resumed && r.s.state.bucket_bytes == 64 && r.s.grad.choice.bytes == 64);
	assert_int_equal(r.s.grad.n_buckets, 4);
	assert_int_equal(gradients(&r).n_global, 24);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accumulation_changes_nothing),  cmocka_unit_test(test_requests_come_back),
		cmocka_unit_test(test_last_step_of_one_row),          cmocka_unit_test(test_recorded_steps),
		cmocka_unit_test(test_smaller_step_drops_recordings), cmocka_unit_test(test_groups_of_steps),
		cmocka_unit_test(test_device_that_cannot_record),     cmocka_unit_test(test_too_many_batches_to_record),
		cmocka_unit_test(test_results_that_never_come),       cmocka_unit_test(test_exposed_communication),
		cmocka_unit_test(test_buckets_of_a_checkpoint),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
