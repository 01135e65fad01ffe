/* `ctrain plan`: prints what a training run would do and what it needs, without training. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "trainer/plan/assume.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/host_binding.h"
#include "trainer/plan/net_plans.h"
#include "trainer/plan/precision.h"
#include "trainer/plan/run_plan.h"
#include "trainer/run/loop/resume.h"
#include "trainer/run/pipeline/pass_schedule.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/estimate/plan_buckets.h"
#include "trainer/tools/estimate/plan_time.h"
#include "trainer/tools/estimate/planned.h"
#include "trainer/tools/estimate/simulate_command.h"

static size_t states_bytes(const struct planned *p)
{
	return p->memory.params * (size_t)ct_optim_n_states(&p->plan.optim);
}

static uint64_t host_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

/* Prints the ranks of each node; of many nodes, only the first and the last ones. */
static void print_nodes(const struct ct_config *c, const struct ct_ranks *r)
{
	int *first = r->n_nodes > 1 ? ct_plan_first_ranks(c, r) : NULL;

	for (int k = 0; first && k < r->n_nodes; k++) {
		if (k == 4 && r->n_nodes > 8) {
			printf("  ...\n");
			k = r->n_nodes - 2;
		}
		const int last = first[k + 1] - 1;
		printf("  node %-4d  rank%s %d", k, last == first[k] ? "" : "s", first[k]);
		if (last > first[k])
			printf(" to %d", last);
		printf("%s\n", k == r->node ? " (this node)" : "");
	}
	ct_free(first);
}

/* Prints which CPUs the ranks of this node are bound to, or why they are not. */
static enum ct_status print_binding(const struct ct_config *c, const struct ct_ranks *r)
{
	struct ct_host_binding host;
	struct ct_str text = {0};

	CT_TRY(ct_host_binding_open(c, r->local, false, &host));
	ct_host_binding_lines(&host, r->first, &text);
	ct_host_binding_close(&host);
	const enum ct_status st = ct_str_status(&text);
	printf("%s", ct_str_text(&text));
	ct_str_release(&text);
	return st;
}

/* Prints the mean and the standard deviation that are in effect, and whether they are defaults. */
static void print_normalization(const struct ct_config *c, const struct ct_run_plan *r)
{
	if (r->net.input != CT_INPUT_U8_NHWC)
		return;
	printf("normalize    mean");
	for (int i = 0; i < r->input.c; i++)
		printf(" %g", (double)r->net.mean[i]);
	printf(", standard deviation");
	for (int i = 0; i < r->input.c; i++)
		printf(" %g", (double)r->net.std[i]);
	printf(" (%s)\n", c->data.mean.n > 0      ? "data.mean, data.std"
			  : ct_plan_is_encoded(c) ? "of ImageNet, because data.mean is not set"
						  : "default of the data set");
}

/* Returns what processes the samples of plan.per_rank. */
static const char *share_name(const struct planned *p)
{
	return p->stages.n > 1 ? "replica" : "rank";
}

static enum ct_status print_run(const struct ct_config *c, const struct planned *p)
{
	const struct ct_run_plan *r = &p->plan;
	struct ct_device_info di = {0};
	struct ct_plan_devices devices = {0};
	const char *note = ct_plan_precision_note(c);
	char cpus[128], plan[96], *dir = ct_plan_run_dir(c);

	if (ct_device_info(p->device, &di) < 0 || ct_plan_devices(c, &devices) < 0)
		ct_error_clear();
	ct_cpu_list(cpus, sizeof(cpus));
	printf("run          %s\n", dir ? dir : "?");
	ct_free(dir);
	printf("ranks        %d on %d node%s, %d here; threads per rank %d, for loading %d\n", p->ranks.world,
	       p->ranks.n_nodes, ct_plural(p->ranks.n_nodes), p->ranks.local, ct_plan_threads(c, p->ranks.local),
	       ct_plan_loader_threads(c, p->train_info, p->ranks.local));
	print_nodes(c, &p->ranks);
	printf("device       %s: %s, CPUs %s\n", di.kind, di.name, cpus);
	if (devices.skipped[0])
		printf("skipped      %s\n", devices.skipped);
	CT_TRY(print_binding(c, &p->ranks));
	printf("engine       %s\n", ct_engine_version(p->engine));
	printf("precision    %s%s%s%s\n", ct_precision_name(r->net.precision), note ? " (" : "", note ? note : "",
	       note ? ")" : "");
	if (r->net.plan) {
		ct_plan_net_text(r->net.plan, p->graph, plan, sizeof(plan));
		printf("net plan     %s (%s)\n", plan,
		       c->train.plan[0] ? "train.plan"
					: "suggested by the engine; a measured or resumed run may have another one");
	}
	for (int i = 0; i < p->ranks.local && devices.n > 0; i++)
		printf("  rank %-4d  %s %d\n", p->ranks.first + i, di.kind, devices.index[i % devices.n]);
	const char *share = share_name(p);
	printf("batch        %u global = %u per %s x %u %s%s", r->global_batch, r->per_rank, share, r->world, share,
	       ct_plural(r->world));
	if (r->accumulate > 1)
		printf(", as %u micro-batches of %u", r->accumulate, r->micro_rows);
	printf("\ndata         %s%s: %u training samples [%d,%d,%d], %u evaluation samples",
	       p->train ? "" : "assumed, ", ct_config_choice(c, "data.name"), r->train.n, r->input.c, r->input.h,
	       r->input.w, r->has_val ? r->val.n : 0);
	if (r->has_val && (r->val_input.h != r->input.h || r->val_input.w != r->input.w))
		printf(" [%d,%d,%d]", r->val_input.c, r->val_input.h, r->val_input.w);
	for (int i = 1; i < r->n_sizes; i++)
		printf(", from epoch %u on %dx%d", r->sizes[i].epoch + 1, r->sizes[i].w, r->sizes[i].h);
	printf("\n");
	print_normalization(c, r);
	printf("steps        %llu an epoch, %llu in all (%u epoch%s)\n", (unsigned long long)r->steps_per_epoch,
	       (unsigned long long)r->total_steps, r->epochs, ct_plural(r->epochs));
	if (c->optim.lr_rule == CT_CFG_LR_RULE_LINEAR)
		printf("lr           %g = %g x %u / %lld (linear rule), schedule %s", r->lr, c->optim.lr,
		       r->global_batch, (long long)c->optim.lr_base_batch, ct_config_choice(c, "schedule.name"));
	else
		printf("lr           %g, schedule %s", r->lr, ct_config_choice(c, "schedule.name"));
	if (r->schedule.warmup_steps > 0)
		printf(", warm-up %llu steps", (unsigned long long)r->schedule.warmup_steps);
	printf("; first step %g, last %g\n", ct_schedule_lr(&r->schedule, 0),
	       ct_schedule_lr(&r->schedule, r->total_steps - 1));
	return CT_OK;
}

static void print_model(const struct ct_config *c, const struct planned *p)
{
	double flops = ct_graph_flops(p->graph);

	printf("model        %s: %zu parameters in %d tensors\n", ct_config_choice(c, "model.name"),
	       ct_graph_n_elems(p->graph), ct_graph_n_params(p->graph));
	printf("flops        %.3f MFLOP forward per sample, about %.2f GFLOP per training step and %s\n", flops * 1e-6,
	       3 * flops * p->plan.per_rank * 1e-9, share_name(p));
	int name = 5, kind = 4; /* widths of the columns */
	for (int i = 0; i < ct_graph_n_nodes(p->graph); i++) {
		name = (int)fmax(name, (double)strlen(ct_graph_node(p->graph, i)->name));
		kind = (int)fmax(kind, (double)strlen(ct_op_name(ct_graph_node(p->graph, i)->op)));
	}
	printf("  %-*s %-*s %-18s %14s %12s\n", name, "layer", kind, "kind", "output [C,H,W]", "parameters", "MFLOP");
	for (int i = 0; i < ct_graph_n_nodes(p->graph); i++) {
		const struct ct_node *n = ct_graph_node(p->graph, i);
		size_t params = 0;
		char shape[48];

		if (n->weight >= 0)
			params += ct_graph_param(p->graph, n->weight)->n;
		if (n->bias >= 0)
			params += ct_graph_param(p->graph, n->bias)->n;
		snprintf(shape, sizeof(shape), "[%d,%d,%d]", n->shape.c, n->shape.h, n->shape.w);
		printf("  %-*s %-*s %-18s %14zu %12.3f\n", name, n->name, kind, ct_op_name(n->op), shape, params,
		       ct_graph_node_flops(p->graph, i) * 1e-6);
	}
	printf("  %-*s %-*s %-18s %14zu %12.3f\n", name, "all", kind, "", "", ct_graph_n_elems(p->graph), flops * 1e-6);
}

/* The cut, and which part of the work each stage has. */
static void print_stages(const struct planned *p)
{
	const struct ct_stages *s = &p->stages;
	const double all = ct_graph_flops(p->graph);

	if (s->n == 1)
		return;
	printf("pipeline     %d ranks = %d replica%s x %d stages; %u micro-batch%s; a stage waits for %.0f %% of a step if all "
	       "stages take the same time\n",
	       p->ranks.world, s->n_replicas, ct_plural(s->n_replicas), s->n, p->plan.accumulate,
	       p->plan.accumulate == 1 ? "" : "es", 100 * ct_pipe_bubble(s->n, (int)p->plan.accumulate));
	for (int k = 0; k < s->n; k++) {
		double flops = 0;

		for (int i = p->first[k]; i < p->first[k + 1]; i++)
			flops += ct_graph_node_flops(p->graph, i);
		const int in_flight = ct_pipe_in_flight(s->n, k, (int)p->plan.accumulate);
		printf("  stage %-3d  %s ... %s: %.1f %% of the FLOPs; up to %d micro-batch%s in flight; rank", k,
		       ct_graph_node(p->graph, p->first[k])->name, ct_graph_node(p->graph, p->first[k + 1] - 1)->name,
		       100 * flops / all, in_flight, in_flight == 1 ? "" : "es");
		for (int i = 0; i < s->n_replicas; i++)
			printf("%s%d", i > 0 ? ", " : s->n_replicas > 1 ? "s " : " ", i * s->n + k);
		printf("\n");
	}
}

static void print_memory(const struct planned *p, int stage, size_t states, size_t ema)
{
	const struct ct_net_memory *m = &p->memory;
	const int ranks_here = p->ranks.local / p->stages.n > 0 ? p->ranks.local / p->stages.n : 1;
	/* Rank 0 keeps a copy of everything that a checkpoint contains, also of the other stages. */
	const double own = (double)m->params + (double)m->buffers + (double)states + (double)ema;
	const double share = (double)ct_graph_n_elems(ct_net_graph(p->net)) / (double)ct_graph_n_elems(p->graph);
	const double copy = stage == 0 ? own / share : 0;
	uint64_t data = p->train_info->bytes + (p->val_info ? p->val_info->bytes : 0), host;
	double bytes = (double)m->params + (double)m->grads + (double)states + (double)ema + (double)m->buffers +
		       (double)m->activations + (double)m->workspace + (double)data;
	/* Uses the same unit in the entire line, so that the numbers can be compared. */
	bool large = bytes >= 10.0 * (1 << 30);
	double k = large ? 1.0 / (1 << 30) : 1.0 / (1 << 20);
	char need[CT_BYTES_TEXT], have[CT_BYTES_TEXT];

	if (p->stages.n > 1)
		printf("memory       stage %-3d ", stage);
	else
		printf("memory       per rank ");
	printf("%s%.1f %s: parameters %.2f, gradients %.2f, optimizer %.2f, EMA %.2f, activations %.2f (%.2f without "
	       "the memory plan), workspace %.2f, data %.1f\n",
	       p->estimated ? "about " : "", bytes * k, large ? "GiB" : "MiB", (double)m->params * k,
	       (double)m->grads * k, (double)states * k, (double)ema * k, (double)m->activations * k,
	       (double)m->activations_unplanned * k, (double)m->workspace * k, (double)data * k);
	if (stage == 0)
		printf("             rank 0 also: copy of the last checkpoint %.2f %s\n", copy * k,
		       large ? "GiB" : "MiB");
	host = host_bytes();
	bytes = bytes * ranks_here + (p->ranks.first == 0 ? copy : 0);
	if (host > 0 && bytes > (double)host)
		printf("             %d rank%s here need%s %s, this host has %s: use a smaller batch (or train.accumulate), a smaller "
		       "model, or fewer ranks\n",
		       ranks_here, ct_plural(ranks_here), ranks_here == 1 ? "s" : "",
		       ct_bytes_text((uint64_t)bytes, need), ct_bytes_text(host, have));
}

static struct planned_buckets buckets_of(const struct ct_config *c, const struct planned *p)
{
	return (struct planned_buckets){.cfg = c,
					.net = p->net,
					.ready = p->ready,
					.buckets = p->buckets,
					.n = p->n_buckets,
					.reduced = p->stages.n_replicas > 1};
}

static enum ct_status print_origins(const struct ct_config *c)
{
	struct ct_str text = {0};

	CT_TRY(ct_config_dump_set(c, &text));
	printf("config       without defaults, which `ctrain config dump --origins` shows\n");
	return ct_print_indented(&text);
}

static ct_json *plan_json(const struct ct_config *c, const struct planned *p, const struct planned_buckets *buckets,
			  const struct ct_plan_time *time)
{
	const struct ct_run_plan *r = &p->plan;
	const struct ct_net_memory *m = &p->memory;
	ct_json *j = ct_json_object(), *memory = ct_json_object();
	char text[96];

	ct_json_set_i64(j, "world_size", p->ranks.world);
	ct_json_set_i64(j, "nodes", p->ranks.n_nodes);
	ct_json_set_str(j, "engine", ct_engine_version(p->engine));
	ct_json_set_str(j, "precision", ct_precision_name(r->net.precision));
	if (r->net.plan) {
		ct_plan_net_text(r->net.plan, p->graph, text, sizeof(text));
		ct_json_set_str(j, "net_plan", text);
	}
	ct_json_set_i64(j, "global_batch", r->global_batch);
	ct_json_set_i64(j, "per_rank", r->per_rank);
	ct_json_set_i64(j, "accumulate", r->accumulate);
	ct_json_set_i64(j, "steps_per_epoch", (int64_t)r->steps_per_epoch);
	ct_json_set_i64(j, "total_steps", (int64_t)r->total_steps);
	ct_json_set(j, "time", ct_plan_time_json(time));
	ct_json_set_f64(j, "lr", r->lr);
	ct_json_set_str(j, "model", ct_config_choice(c, "model.name"));
	ct_json_set_i64(j, "params", (int64_t)ct_graph_n_elems(p->graph));
	ct_json_set_f64(j, "forward_flops", ct_graph_flops(p->graph));
	/* With a pipeline, the memory and the buckets are those of the first stage. */
	ct_json_set_i64(j, "stages", c->launch.pipeline);
	ct_json_set_bool(memory, "estimated", p->estimated);
	ct_json_set_i64(memory, "params", (int64_t)m->params);
	ct_json_set_i64(memory, "gradients", (int64_t)m->grads);
	ct_json_set_i64(memory, "optimizer", (int64_t)states_bytes(p));
	ct_json_set_i64(memory, "activations", (int64_t)m->activations);
	ct_json_set_i64(memory, "workspace", (int64_t)m->workspace);
	ct_json_set(j, "memory_bytes", memory);
	ct_json_set(j, "buckets", ct_plan_buckets_json(buckets));
	return j;
}

static enum ct_status print(const struct ct_config *c, struct planned *p)
{
	print_model(c, p);
	print_stages(p);
	for (int k = 0; k < p->stages.n; k++) {
		if (k > 0)
			CT_TRY(ct_planned_compile_stage(c, p, k));
		print_memory(p, k, states_bytes(p), c->train.ema > 0 ? p->memory.params + p->memory.buffers : 0);
		const struct planned_buckets b = buckets_of(c, p);
		ct_plan_print_buckets(&b);
	}
	return print_origins(c);
}

static enum ct_status plan(const struct ct_cli *cli, const struct ct_assumed *assumed, const struct ct_config *c,
			   struct ct_config *measure, struct planned *p)
{
	const struct ct_plan_options *o = cli->own;
	struct ct_plan_time time;

	CT_TRY(ct_planned_make(c, assumed, p));
	const struct ct__time_request r = {.cfg = c,
					   .plan = &p->plan,
					   .train = p->train_info,
					   .local = p->ranks.local,
					   .world = p->ranks.world,
					   .flops = ct_graph_flops(p->graph),
					   .val_flops = ct_graph_flops(p->val_graph ? p->val_graph : p->graph),
					   .step_ms = o->simulate.step_ms,
					   .measure = measure,
					   .assumed = assumed->train > 0};
	CT_TRY(ct_plan_time(&r, &time));
	if (cli->json) {
		const struct planned_buckets b = buckets_of(c, p);

		return ct_print_json(plan_json(c, p, &b, &time), true);
	}
	CT_TRY(print_run(c, p));
	ct_plan_time_print(&r, &time);
	return print(c, p);
}

/* Fails if an option that needs --simulate is given without it. */
static enum ct_status check_options(const struct ct_cli *cli, const struct ct_plan_options *o)
{
	const char *option = o->simulate.link_intra   ? "--link-intra"
			     : o->simulate.link_inter ? "--link-inter"
			     : o->simulate.allreduce  ? "--allreduce"
			     : cli->steps             ? "--steps"
						      : NULL;

	if (option)
		return CT_FAIL(CT_USAGE, "%s needs --simulate, for example --simulate 1x1..1x8", option);
	return CT_OK;
}

static enum ct_status simulate(const struct ct_cli *cli, const struct ct_plan_options *o)
{
	struct ct_config *c = NULL;
	int64_t steps;

	if (o->assume)
		return CT_FAIL(CT_USAGE, "--assume cannot be used with --simulate");
	if (o->simulate.step_ms && cli->steps)
		return CT_FAIL(CT_USAGE, "--steps cannot be used with --step-ms, which replaces the measurement");
	CT_TRY(ct_cli_number("--steps", cli->steps, CT_SIMULATE_STEPS, 1, 1000000, &steps));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	const enum ct_status st = ct_simulate(&o->simulate, steps, c, cli->json);

	ct_config_destroy(c);
	return st;
}

enum ct_status ct_cmd_plan(const struct ct_cli *cli)
{
	struct ct_config *c = NULL, *measure = NULL;
	struct ct_assumed assumed = {0};
	const struct ct_plan_options *o = cli->own;
	struct planned p = {0};

	if (o->simulate.shapes)
		return simulate(cli, o);
	CT_TRY(check_options(cli, o));
	if (o->assume)
		CT_TRY(ct_assume_parse(o->assume, &assumed));
	enum ct_status st = ct_assume_load(&assumed, cli->args[0], cli->sets, cli->n_sets, &c);
	if (st == CT_OK && !o->no_measure)
		st = ct_assume_load(&assumed, cli->args[0], cli->sets, cli->n_sets, &measure);
	if (st == CT_OK)
		st = ct_resume_settle(c, false);
	if (st == CT_OK)
		st = plan(cli, &assumed, c, measure, &p);
	ct_planned_release(&p);
	ct_config_destroy(measure);
	ct_config_destroy(c);
	return st;
}
