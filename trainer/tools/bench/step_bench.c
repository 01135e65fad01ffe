/* Steps are run in groups of as many as the stepper posts before it takes a result, so that the measured time of a
 * group includes all of its work and nothing of another group. On an asynchronous device, the warm-up is long enough
 * that each slot has been posted and recorded once. The learning rate is small, and 0 while nodes are profiled, because
 * the weights do not matter. The nodes are profiled after the measurement, in further steps.
 *
 * Allocations are counted only in steps with a full batch that compile and record nothing: those must make none.
 * Allocations of all threads together minus those of this one are the loader's. */
#include "trainer/tools/bench/step_bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

static int compare_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Runs the n steps of a group and waits for their results, so that the measured time includes all of their work. */
static enum ct_status run_steps(ct_stepper *p, uint64_t first, int n, double lr, struct ct_step_result *r)
{
	bool last_of_epoch;

	for (int i = 0; i < n; i++)
		CT_TRY(ct_stepper_post(p, &(struct ct_step_request){.step = first + (uint64_t)i, .lr = lr},
				       &last_of_epoch));
	for (int i = 0; i < n; i++)
		CT_TRY(ct_stepper_take(p, &r[i]));
	return CT_OK;
}

enum { STEP, DATA, FORWARD, BACKWARD, EXPOSED, OPTIM, N_PHASES };

/* Stores the times of step i, in nanoseconds, in ns [N_PHASES, steps]. */
static void note_times(int64_t *ns, int64_t steps, int64_t i, int64_t step_ns, const struct ct_step_times *t)
{
	const int64_t all[N_PHASES] = {step_ns, t->data_ns, t->forward_ns, t->backward_ns, t->exposed_ns, t->optim_ns};

	for (int k = 0; k < N_PHASES; k++)
		ns[k * steps + i] = all[k];
}

/* Median of a phase in milliseconds, over the first n of the steps; sorts the row of the phase. */
static double median_ms(int64_t *ns, int64_t steps, int64_t n, int phase)
{
	qsort(ns + phase * steps, (size_t)n, sizeof(*ns), compare_i64);
	return (double)ns[phase * steps + n / 2] * 1e-6;
}

/* Numbers of heap allocations. */
struct allocations {
	uint64_t steps;     /* by full steps */
	uint64_t preparing; /* by steps that compile the program of a smaller last batch, or record their work */
	uint64_t all; /* by all threads: the buffers of loader threads grow until the largest file has been read */
};

/* Runs at most `steps` steps, in groups, after `warmup` others. Stores their times in ns [N_PHASES, steps], and their
 * number in *done. After `seconds`, no further group begins. */
static enum ct_status measure(const struct ct_session *s, ct_stepper *p, int64_t warmup, int64_t steps, double seconds,
			      int64_t *ns, int64_t *done, struct allocations *a)
{
	struct ct_step_result r[CT_STEP_GROUP_MAX];
	const int group = ct_stepper_group(p);
	int64_t start = 0;

	for (int64_t i = -warmup; i < steps; i += group) {
		if (i > 0 && ct_seconds_since(start) >= seconds)
			break;
		if (i == 0) {
			a->all = ct_mem_count();
			start = ct_now_ns();
		}
		int64_t t0 = ct_now_ns(), compile_ns = 0;
		const uint64_t before = ct_mem_count_of_thread(), replayed = ct_stepper_replayed(p);
		CT_TRY(run_steps(p, (uint64_t)(i + warmup), group, s->plan.lr * 0.01, r));
		const uint64_t made = ct_mem_count_of_thread() - before;
		bool full = ct_stepper_replayed(p) > replayed || ct_stepper_replayed(p) == 0;
		for (int k = 0; k < group; k++) {
			compile_ns += r[k].compile_ns;
			full = full && r[k].n_own == s->plan.per_rank && r[k].compile_ns == 0;
		}
		const int64_t step_ns = (ct_now_ns() - t0 - compile_ns) / group;
		for (int k = 0; k < group && i >= 0; k++)
			note_times(ns, steps, i + k, step_ns, &r[k].times);
		*done = i + group;
		a->steps += i >= 0 && full ? made : 0;
		a->preparing += i >= 0 && !full ? made : 0;
	}
	a->all = ct_mem_count() - a->all;
	return CT_OK;
}

/* Measures the nodes in up to 20 steps. Only full batches are counted, because the smaller last batch of an epoch has
 * its own program. */
static enum ct_status profile(const struct ct_session *s, ct_stepper *p, uint64_t first, int64_t steps,
			      struct ct__step_trace *trace, int64_t *n_full)
{
	const int64_t most = steps < 20 ? steps : 20;
	struct ct_step_result r;

	ct_program_profile(s->model.full, true);
	for (int64_t i = 0; i < most; i++) {
		const bool traced = trace && i < CT__TRACE_STEPS;

		if (traced)
			CT_TRY(ct_trace_begin(trace, p, first + (uint64_t)i));
		CT_TRY(run_steps(p, first + (uint64_t)i, 1, 0, &r));
		if (traced)
			CT_TRY(ct_trace_end(trace, p));
		*n_full += r.n_own == s->plan.per_rank;
	}
	return CT_OK;
}

static enum ct_status bench(struct ct_session *s, int64_t steps, int64_t warmup, double seconds, bool profiled,
			    struct ct__step_trace *trace, struct ct_step_bench *out)
{
	ct_stepper *p = NULL;
	int64_t *ns = NULL, n = 0;
	struct allocations made = {0};
	enum ct_status st;

	*out = (struct ct_step_bench){0};
	if (s->plan.n_sizes > 1) /* with progressive resizing, only the first size is measured */
		s->plan.n_sizes = 1;
	CT_TRY(ct_stepper_create(s, &p));
	/* Each slot is posted and recorded before it is measured. */
	const int64_t group = ct_stepper_group(p);
	if (ct_stepper_lag(p) > 0)
		warmup = 2 * (ct_stepper_lag(p) + group);
	steps = (steps + group - 1) / group * group;
	ns = CT_NEW_ARRAY(int64_t, (size_t)steps *N_PHASES);
	CT_TRY_GOTO(ns ? CT_OK : CT_NOMEM, st, out);
	CT_TRY_GOTO(measure(s, p, warmup, steps, seconds, ns, &n, &made), st, out);
	if (profiled)
		CT_TRY_GOTO(profile(s, p, (uint64_t)(warmup + steps), steps, trace, &out->profiled), st, out);
	out->steps = n;
	out->step_ms = median_ms(ns, steps, n, STEP);
	out->step_min_ms = (double)ns[0] * 1e-6;
	out->data_ms = median_ms(ns, steps, n, DATA);
	out->forward_ms = median_ms(ns, steps, n, FORWARD);
	out->backward_ms = median_ms(ns, steps, n, BACKWARD);
	out->exposed_ms = median_ms(ns, steps, n, EXPOSED);
	out->optim_ms = median_ms(ns, steps, n, OPTIM);
	out->allocations = made.steps;
	out->loader_allocations = made.all - made.steps - made.preparing;
out:
	ct_stepper_destroy(p);
	ct_free(ns);
	return st;
}

enum ct_status ct_step_bench(struct ct_session *s, int64_t steps, struct ct__step_trace *trace,
			     struct ct_step_bench *out)
{
	return bench(s, steps, 5, INFINITY, true, trace, out);
}

enum ct_status ct_step_bench_for(struct ct_session *s, double seconds, struct ct_step_bench *out)
{
	return bench(s, 20, 1, seconds, false, NULL, out);
}
