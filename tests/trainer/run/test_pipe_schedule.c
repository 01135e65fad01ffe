/* The order of the passes of a pipeline, and the messages between its stages, without a model. */
#include "tests/base/check.h"

#include "trainer/run/pipeline/pass_schedule.h"

enum { MOST_STAGES = 6, MOST_MICROS = 9 };

/* Each pass runs once and in order, backward passes follow their forward passes, and few micro-batches are in flight.
 */
static void check_order(int n_stages, int stage, int n_micros)
{
	struct ct_pipe_schedule s = ct_pipe_begin(n_stages, stage, n_micros);
	int n_forward = 0, n_backward = 0, most = 0;
	struct ct_pipe_task t;

	while (ct_pipe_next(&s, &t)) {
		assert_int_equal(t.micro, t.backward ? n_backward : n_forward);
		n_forward += !t.backward;
		n_backward += t.backward;
		assert_true(n_backward <= n_forward);
		most = n_forward - n_backward > most ? n_forward - n_backward : most;
	}
	assert_int_equal(n_forward, n_micros);
	assert_int_equal(n_backward, n_micros);
	assert_int_equal(most, ct_pipe_in_flight(n_stages, stage, n_micros));
	assert_true(most <= n_stages - stage);
}

static void test_order(void **state)
{
	(void)state;
	for (int n = 1; n <= MOST_STAGES; n++) {
		for (int k = 0; k < n; k++) {
			for (int m = 0; m <= MOST_MICROS; m++)
				check_order(n, k, m);
		}
	}
}

/* One stage of a simulated pipeline. A message is done when both sides have posted it. */
struct stage {
	struct ct_pipe_schedule schedule;
	struct ct_pipe_task task; /* the pass before whose messages the stage waits */
	bool has_task;
	/* Messages that this stage has posted: forward to the next stage and backward to the previous one, sent and
	 * received. */
	int sent[2], received[2];
	int passes;
};

enum { FORWARD, BACKWARD };

/* Posts the result of the pass that was run, and the receive of the next pass, as the trainer does. */
static void post(struct stage *s, int k, int n)
{
	if (s->has_task && (s->task.backward ? k > 0 : k < n - 1))
		s->sent[s->task.backward ? BACKWARD : FORWARD]++;
	s->has_task = ct_pipe_next(&s->schedule, &s->task);
	if (s->has_task && (s->task.backward ? k < n - 1 : k > 0))
		s->received[s->task.backward ? BACKWARD : FORWARD]++;
}

/* Returns whether the other sides have posted all messages that stage k has posted. */
static bool is_done(const struct stage *stages, int k, int n)
{
	const struct stage *s = &stages[k];

	return (k == n - 1 || (stages[k + 1].received[FORWARD] >= s->sent[FORWARD] &&
			       stages[k + 1].sent[BACKWARD] >= s->received[BACKWARD])) &&
	       (k == 0 || (stages[k - 1].sent[FORWARD] >= s->received[FORWARD] &&
			   stages[k - 1].received[BACKWARD] >= s->sent[BACKWARD]));
}

static void simulate(int n, int n_micros)
{
	struct stage stages[MOST_STAGES] = {0};
	bool moved = true;

	for (int k = 0; k < n; k++) {
		stages[k].schedule = ct_pipe_begin(n, k, n_micros);
		post(&stages[k], k, n);
	}
	while (moved) {
		moved = false;
		for (int k = 0; k < n; k++) {
			if (!stages[k].has_task || !is_done(stages, k, n))
				continue;
			stages[k].passes++;
			post(&stages[k], k, n);
			moved = true;
		}
	}
	for (int k = 0; k < n; k++) {
		if (stages[k].passes != 2 * n_micros || !is_done(stages, k, n))
			fail_msg("%d stages, %d micro-batches: stage %d is blocked after %d passes", n, n_micros, k,
				 stages[k].passes);
	}
}

static void test_no_deadlock(void **state)
{
	(void)state;
	for (int n = 1; n <= MOST_STAGES; n++) {
		for (int m = 0; m <= MOST_MICROS; m++)
			simulate(n, m);
	}
}

static void test_bubble(void **state)
{
	(void)state;
	assert_true(ct_pipe_bubble(1, 4) == 0.0);
	assert_true(ct_pipe_bubble(2, 3) == 0.25);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_no_deadlock),
					   cmocka_unit_test(test_bubble)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
