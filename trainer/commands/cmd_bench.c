/* `ctrain bench step|loader`. Each command measures one part of the work separately and prints a JSON object. The
 * scripts that compare ctrain with other programs are in bench/. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"
#include "trainer/loop/step.h"

static int compare_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* Number of floating-point operations in the matrix products of a node for one sample, forward and backward; 0 for
 * nodes without products. The gradient of the input takes as many operations as the gradient of the weights. It is
 * computed only if a node before this one has parameters. */
static void products(const ct_graph *g, int id, const bool *needs_grad, double *forward, double *backward)
{
	const struct ct_node *node = ct_graph_node(g, id);
	const bool product = node->op == CT_OP_CONV2D || node->op == CT_OP_LINEAR;

	*forward = product ? ct_graph_node_flops(g, id) : 0;
	*backward = needs_grad[node->in[0]] ? 2 * *forward : *forward;
}

static void set_node(ct_json *a, const struct ct_session *s, int id, int64_t steps, const bool *needs_grad)
{
	double f, b, forward, backward;

	if (ct_program_times(s->full, id, &f, &b) < 0)
		return;
	ct_json *o = ct_json_object();
	ct_json_set_str(o, "name", ct_graph_node(s->graph, id)->name);
	ct_json_set_str(o, "op", ct_op_name(ct_graph_node(s->graph, id)->op));
	ct_json_set_f64(o, "forward_ms", f * 1e3 / (double)steps);
	ct_json_set_f64(o, "backward_ms", b * 1e3 / (double)steps);
	products(s->graph, id, needs_grad, &forward, &backward);
	if (forward > 0) {
		const double rows = (double)s->plan.per_rank * (double)steps;
		ct_json_set_f64(o, "flops", forward * s->plan.per_rank);
		ct_json_set_f64(o, "backward_flops", backward * s->plan.per_rank);
		/* If the time is 0, the rate is not finite and is written as null. */
		ct_json_set_f64(o, "forward_gflops_per_sec", forward * rows / f * 1e-9);
		ct_json_set_f64(o, "backward_gflops_per_sec", backward * rows / b * 1e-9);
	}
	ct_json_push(a, o);
}

static enum ct_status set_nodes(ct_json *j, const struct ct_session *s, int64_t steps)
{
	const int n = ct_graph_n_nodes(s->graph);
	ct_json *a = ct_json_array();
	bool *needs_grad = CT_NEW_ARRAY(bool, (size_t)n);

	for (int i = 1; needs_grad && i < n; i++) {
		const struct ct_node *node = ct_graph_node(s->graph, i);
		set_node(a, s, i, steps, needs_grad);
		needs_grad[i] =
			node->weight >= 0 || needs_grad[node->in[0]] || (node->in[1] >= 0 && needs_grad[node->in[1]]);
	}
	ct_json_set(j, "nodes", a);
	const enum ct_status st = needs_grad ? CT_OK : CT_NOMEM;
	ct_free(needs_grad);
	return st;
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

enum { STEP, DATA, FORWARD, BACKWARD, OPTIM, N_PHASES };

/* Stores the times of step i, in nanoseconds, in ns [N_PHASES, steps]. */
static void note_times(int64_t *ns, int64_t steps, int64_t i, int64_t step_ns, const struct ct_step_times *t)
{
	const int64_t all[N_PHASES] = {step_ns, t->data_ns, t->forward_ns, t->backward_ns, t->optim_ns};

	for (int k = 0; k < N_PHASES; k++)
		ns[k * steps + i] = all[k];
}

/* Median of a phase in milliseconds; sorts the row of the phase. */
static double median_ms(int64_t *ns, int64_t steps, int phase)
{
	qsort(ns + phase * steps, (size_t)steps, sizeof(*ns), compare_i64);
	return (double)ns[phase * steps + steps / 2] * 1e-6;
}

/* Numbers of heap allocations. */
struct allocations {
	uint64_t steps;     /* by full steps */
	uint64_t preparing; /* by steps that compile the program of a smaller last batch, or record their work */
	uint64_t all;       /* by all threads: the buffers of loader threads grow until the largest file has been read */
};

/* Runs `steps` steps, in groups, after `warmup` others. Stores their times in ns [N_PHASES, steps]. */
static enum ct_status measure(const struct ct_session *s, ct_stepper *p, int64_t warmup, int64_t steps, int64_t *ns,
			      struct allocations *a)
{
	struct ct_step_result r[CT_STEP_GROUP_MAX];
	const int group = ct_stepper_group(p);

	for (int64_t i = -warmup; i < steps; i += group) {
		if (i == 0)
			a->all = ct_mem_count();
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
		a->steps += i >= 0 && full ? made : 0;
		a->preparing += i >= 0 && !full ? made : 0;
	}
	a->all = ct_mem_count() - a->all;
	return CT_OK;
}

/* Measures the nodes in up to 20 steps. Only full batches are counted, because the smaller last batch of an epoch has
 * its own program. */
static enum ct_status profile(const struct ct_session *s, ct_stepper *p, uint64_t first, int64_t steps, int64_t *n_full)
{
	const int64_t most = steps < 20 ? steps : 20;
	struct ct_step_result r;

	ct_program_profile(s->full, true);
	for (int64_t i = 0; i < most; i++) {
		CT_TRY(run_steps(p, first + (uint64_t)i, 1, 0, &r));
		*n_full += r.n_own == s->plan.per_rank;
	}
	return CT_OK;
}

static enum ct_status bench_step(struct ct_session *s, int64_t steps)
{
	ct_stepper *p = NULL;
	int64_t *ns = NULL, profiled = 0;
	struct allocations made = {0};
	enum ct_status st;
	if (s->plan.n_sizes > 1) /* with progressive resizing, only the first size is measured */
		s->plan.n_sizes = 1;
	CT_TRY(ct_stepper_create(s, &p));
	/* Each slot is posted and recorded before it is measured. */
	const int64_t group = ct_stepper_group(p), warmup = ct_stepper_lag(p) > 0 ? 2 * (ct_stepper_lag(p) + group) : 5;
	steps = (steps + group - 1) / group * group;
	ns = CT_NEW_ARRAY(int64_t, (size_t)steps * N_PHASES);
	CT_TRY_GOTO(ns ? CT_OK : CT_NOMEM, st, out);
	CT_TRY_GOTO(measure(s, p, warmup, steps, ns, &made), st, out);
	CT_TRY_GOTO(profile(s, p, (uint64_t)(warmup + steps), steps, &profiled), st, out);
	double median = median_ms(ns, steps, STEP) * 1e-3, flop = 3 * ct_graph_flops(s->graph) * s->plan.per_rank;
	ct_json *j = ct_json_object();
	ct_json_set_str(j, "bench", "step");
	ct_json_set_str(j, "model", ct_config_choice(s->cfg, "model.name"));
	ct_json_set_str(j, "engine", ct_engine_version(s->engine));
	ct_json_set_i64(j, "batch", s->plan.per_rank);
	ct_json_set_i64(j, "steps", steps);
	ct_json_set_f64(j, "step_ms_median", median * 1e3);
	ct_json_set_f64(j, "step_ms_min", (double)ns[0] * 1e-6);
	ct_json_set_f64(j, "images_per_sec", s->plan.per_rank / median);
	ct_json_set_f64(j, "gflops_per_sec", flop / median * 1e-9);
	ct_json_set_f64(j, "data_ms", median_ms(ns, steps, DATA));
	ct_json_set_f64(j, "forward_ms", median_ms(ns, steps, FORWARD));
	ct_json_set_f64(j, "backward_ms", median_ms(ns, steps, BACKWARD));
	ct_json_set_f64(j, "optim_ms", median_ms(ns, steps, OPTIM));
	ct_json_set_i64(j, "allocations", (int64_t)made.steps);
	ct_json_set_i64(j, "loader_allocations", (int64_t)(made.all - made.steps - made.preparing));
	st = set_nodes(j, s, profiled);
	if (st == CT_OK)
		st = ct__print_json(j, false);
	else
		ct_json_destroy(j);
out:
	ct_stepper_destroy(p);
	ct_free(ns);
	return st;
}

static enum ct_status bench_loader(struct ct_session *s, int64_t steps)
{
	ct_loader *l = NULL;
	struct ct_loader_batch b;
	struct ct_loader_opts lo;
	uint64_t images = 0, sum = 0;
	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->train), true, 0, 1, &lo);
	CT_TRY(ct_loader_create(s->train, &lo, &l));
	int64_t t0 = ct_now_ns();
	enum ct_status st = CT_OK;
	for (int64_t i = 0; i < steps && st == CT_OK; i++) {
		st = ct_loader_next(l, CT_FOREVER, &b);
		images += st == CT_OK ? b.n : 0;
		sum += st == CT_OK && b.n > 0 ? ((const uint8_t *)b.x)[0] : 0;
		ct_loader_release(l, &b);
	}
	double seconds = ct_seconds_since(t0);
	ct_loader_destroy(l);
	CT_TRY(st);
	ct_json *j = ct_json_object();
	ct_json_set_str(j, "bench", "loader");
	ct_json_set_str(j, "data", ct_config_choice(s->cfg, "data.name"));
	ct_json_set_i64(j, "threads", lo.n_threads);
	ct_json_set_i64(j, "images", (int64_t)images);
	ct_json_set_i64(j, "checksum", (int64_t)sum);
	ct_json_set_f64(j, "open_seconds", s->data_s);
	ct_json_set_f64(j, "images_per_sec", (double)images / seconds);
	return ct__print_json(j, false);
}

static enum ct_status run_local(const struct ct_cli *cli, int64_t default_steps,
				enum ct_status (*fn)(struct ct_session *, int64_t))
{
	struct ct_config *c = NULL;
	struct ct_session s = {0};
	int64_t steps;
	CT_TRY(ct_cli_number("--steps", cli->steps, default_steps, 1, 1000000, &steps));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_session_create(c, NULL, true, &s);
	if (st == CT_OK)
		st = fn(&s, steps);
	ct_session_destroy(&s, st < 0);
	ct_config_destroy(c);
	return st;
}

enum ct_status ct_cmd_bench_step(const struct ct_cli *cli)
{
	return run_local(cli, 200, bench_step);
}

enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli)
{
	return run_local(cli, 2000, bench_loader);
}
