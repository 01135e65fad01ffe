/* `ctrain plan`: prints what a training run would do and what it needs, without training. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "trainer/commands/plan_buckets_impl.h"
#include "trainer/commands/print_impl.h"
#include "trainer/commands/simulate_impl.h"
#include "trainer/loop/session_data.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/ready.h"
#include "trainer/plan/run_plan.h"

struct planned {
	struct ct_ranks ranks;
	struct ct_run_plan plan;
	ct_dataset *train, *val;
	ct_graph *graph, *size_graph, *val_graph;
	ct_device *device;
	ct_engine *engine;
	ct_net *net;
	ct_program *program, *eval;
	struct ct_bucket *buckets;
	int n_buckets;
	double *ready; /* [n_slices] of the gradients, from ct_plan_ready */
	struct ct_net_memory memory;
	bool estimated; /* memory is estimated from smaller batches, because the host has too little memory for these */
};

/* Returns the largest input size of all epochs, which determines the memory. */
static struct ct_shape largest_input(const struct ct_run_plan *r)
{
	struct ct_shape most = r->input;
	for (int i = 0; i < r->n_sizes; i++) {
		if (r->sizes[i].h * r->sizes[i].w > most.h * most.w) {
			most.h = r->sizes[i].h;
			most.w = r->sizes[i].w;
		}
	}
	return most;
}

static void release_net(struct planned *p)
{
	ct_program_destroy(p->eval);
	ct_program_destroy(p->program);
	ct_net_destroy(p->net);
	p->eval = p->program = NULL;
	p->net = NULL;
}

/* Compiles the net and its programs for these batch sizes. Replaces those of an earlier call. */
static enum ct_status compile(struct planned *p, uint32_t rows, uint32_t eval_rows)
{
	release_net(p);
	CT_TRY(ct_net_create(p->engine, p->graph, &p->plan.net, &p->net));
	CT_TRY(ct_program_create_for(p->net, p->size_graph, (int)rows, CT_TRAIN, &p->program));
	if (p->val)
		CT_TRY(ct_program_create_for(p->net, p->val_graph, (int)eval_rows, CT_EVAL, &p->eval));
	ct_net_memory(p->net, &p->memory);
	return CT_OK;
}

/* Extrapolates linearly from a and b, for batches of n and 2 n, to a batch of `factor` * n. */
static size_t extend(size_t a, size_t b, double factor)
{
	double v = (double)a + ((double)b - (double)a) * (factor - 1);

	return v < (double)a ? a : v > (double)(SIZE_MAX / 4) ? SIZE_MAX / 4 : (size_t)v;
}

/* Activations and workspace grow linearly with the batch size. If a batch does not fit into the memory of this host,
 * they are extrapolated from batches of n and 2 n samples, where n applies to the larger of the training and evaluation
 * batches. */
static enum ct_status estimate_memory(struct planned *p, uint32_t n)
{
	const uint32_t rows = p->plan.micro_rows, eval_rows = p->val ? p->plan.eval_rows : 1;
	const uint32_t most = rows > eval_rows ? rows : eval_rows, cut = most > n ? most / n : 1;
	const uint32_t r = rows > cut ? rows / cut : 1, e = eval_rows > cut ? eval_rows / cut : 1;
	const double factor = fmax((double)rows / r, (double)eval_rows / e);
	struct ct_net_memory one;

	CT_TRY(compile(p, r, e));
	one = p->memory;
	CT_TRY(compile(p, 2 * r, 2 * e));
	p->memory.activations = extend(one.activations, p->memory.activations, factor);
	p->memory.activations_unplanned = extend(one.activations_unplanned, p->memory.activations_unplanned, factor);
	p->memory.workspace = extend(one.workspace, p->memory.workspace, factor);
	p->estimated = true;
	return CT_OK;
}

static enum ct_status find_memory(struct planned *p)
{
	enum ct_status st = compile(p, p->plan.micro_rows, p->plan.eval_rows);

	for (uint32_t n = 64; st == CT_NOMEM && n > 0; n /= 4) {
		ct_error_clear();
		st = estimate_memory(p, n);
	}
	return st;
}

static enum ct_status make(const struct ct_config *c, struct planned *p)
{
	struct ct_data_opening data;
	CT_TRY(ct_plan_ranks(c, &p->ranks));
	CT_TRY(ct_data_opening_start(&data, c, false, false));
	CT_TRY(ct_data_opening_finish(&data, &p->train, &p->val));
	const struct ct_dataset_info *ti = ct_dataset_info(p->train);
	CT_TRY(ct_run_plan_make(c, (uint32_t)p->ranks.world, ti, p->val ? ct_dataset_info(p->val) : NULL, &p->plan));
	p->plan.net.autotune = CT_AUTOTUNE_OFF;
	CT_TRY(ct_plan_graph(c, ti, p->plan.input, &p->graph));
	CT_TRY(ct_plan_check_sizes(c, ti, &p->plan, p->graph));
	CT_TRY(ct_plan_device_open(c, 0, &p->device));
	ct_run_plan_reduce(c, p->device, &p->plan);
	CT_TRY(ct_engine_open(c->train.engine, p->device, ct_plan_threads(c, p->ranks.local), &p->engine));
	CT_TRY(ct_plan_check_precision(c, p->engine));
	CT_TRY(ct_plan_graph(c, ti, largest_input(&p->plan), &p->size_graph));
	if (p->val)
		CT_TRY(ct_plan_graph(c, ti, p->plan.val_input, &p->val_graph));
	CT_TRY(find_memory(p));
	CT_TRY(ct_plan_buckets(c, p->net, ct_plan_bucket_bytes(c), &p->buckets, &p->n_buckets));
	return ct_plan_ready_by_flops(p->net, &p->ready);
}

static void release(struct planned *p)
{
	ct_free(p->ready);
	ct_free(p->buckets);
	release_net(p);
	ct_engine_close(p->engine);
	ct_device_close(p->device);
	ct_graph_destroy(p->val_graph);
	ct_graph_destroy(p->size_graph);
	ct_graph_destroy(p->graph);
	ct_dataset_close(p->val);
	ct_dataset_close(p->train);
}

static size_t states_bytes(const struct planned *p)
{
	return p->memory.params * (size_t)ct_optim_n_states(&p->plan.optim);
}

static uint64_t host_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static void print_run(const struct ct_config *c, const struct planned *p)
{
	const struct ct_run_plan *r = &p->plan;
	struct ct_device_info di = {0};
	struct ct_plan_devices devices = {0};
	char cpus[128], *dir = ct_plan_run_dir(c);
	if (ct_device_info(p->device, &di) < 0 || ct_plan_devices(c, &devices) < 0)
		ct_error_clear();
	ct_cpu_list(cpus, sizeof(cpus));
	printf("run          %s\n", dir ? dir : "?");
	ct_free(dir);
	printf("ranks        %d = %d node%s x %d here; threads per rank %d, for loading %d\n", p->ranks.world,
	       p->ranks.n_nodes, ct_plural(p->ranks.n_nodes), p->ranks.local, ct_plan_threads(c, p->ranks.local),
	       ct_plan_loader_threads(c, ct_dataset_info(p->train), p->ranks.local));
	printf("device       %s: %s, CPUs %s\n", di.kind, di.name, cpus);
	if (devices.skipped[0])
		printf("skipped      %s\n", devices.skipped);
	printf("engine       %s\n", ct_engine_version(p->engine));
	for (int i = 0; i < p->ranks.local; i++)
		printf("  rank %-4d  %s %d\n", p->ranks.first + i, di.kind,
		       devices.n > 0 ? devices.index[i % devices.n] : 0);
	printf("batch        %u global = %u per rank x %u ranks", r->global_batch, r->per_rank, r->world);
	if (r->accumulate > 1)
		printf(", as %u micro-batches of %u", r->accumulate, r->micro_rows);
	printf("\ndata         %s: %u training samples [%d,%d,%d], %u evaluation samples",
	       ct_config_choice(c, "data.name"), r->train.n, r->input.c, r->input.h, r->input.w,
	       r->has_val ? r->val.n : 0);
	if (r->has_val && (r->val_input.h != r->input.h || r->val_input.w != r->input.w))
		printf(" [%d,%d,%d]", r->val_input.c, r->val_input.h, r->val_input.w);
	for (int i = 1; i < r->n_sizes; i++)
		printf(", from epoch %u on %dx%d", r->sizes[i].epoch + 1, r->sizes[i].w, r->sizes[i].h);
	printf("\n");
	printf("steps        %llu an epoch, %llu in all (%u epoch%s)\n", (unsigned long long)r->steps_per_epoch,
	       (unsigned long long)r->total_steps, r->epochs, ct_plural(r->epochs));
	if (c->optim.lr_rule == CT_CFG_LR_RULE_LINEAR)
		printf("lr           %g = %g x %u / %lld (linear rule), schedule %s", r->lr, c->optim.lr,
		       r->global_batch, (long long)c->optim.lr_base_batch, ct_config_choice(c, "schedule.name"));
	else
		printf("lr           %g (as given: optim.lr_rule none), schedule %s", r->lr,
		       ct_config_choice(c, "schedule.name"));
	printf(", warm-up %llu steps; first step %g, last %g\n", (unsigned long long)r->schedule.warmup_steps,
	       ct_schedule_lr(&r->schedule, 0), ct_schedule_lr(&r->schedule, r->total_steps - 1));
}

static void print_model(const struct ct_config *c, const struct planned *p)
{
	double flops = ct_graph_flops(p->graph);
	printf("model        %s: %zu parameters in %d tensors\n", ct_config_choice(c, "model.name"),
	       ct_graph_n_elems(p->graph), ct_graph_n_params(p->graph));
	printf("flops        %.3f MFLOP forward per sample, about %.2f GFLOP per training step and rank\n",
	       flops * 1e-6, 3 * flops * p->plan.per_rank * 1e-9);
	printf("  %-20s %-18s %14s %12s\n", "layer", "output [C,H,W]", "parameters", "MFLOP");
	for (int i = 0; i < ct_graph_n_nodes(p->graph); i++) {
		const struct ct_node *n = ct_graph_node(p->graph, i);
		size_t params = 0;
		char shape[48];
		if (n->weight >= 0)
			params += ct_graph_param(p->graph, n->weight)->n;
		if (n->bias >= 0)
			params += ct_graph_param(p->graph, n->bias)->n;
		snprintf(shape, sizeof(shape), "[%d,%d,%d]", n->shape.c, n->shape.h, n->shape.w);
		printf("  %-20s %-18s %14zu %12.3f\n", n->name, shape, params, ct_graph_node_flops(p->graph, i) * 1e-6);
	}
}

static void print_memory(const struct planned *p, size_t states, size_t ema)
{
	const struct ct_net_memory *m = &p->memory;
	/* Rank 0 keeps a copy of everything that a checkpoint contains. */
	const double copy = (double)m->params + (double)m->buffers + (double)states + (double)ema;
	uint64_t data = ct_dataset_info(p->train)->bytes + (p->val ? ct_dataset_info(p->val)->bytes : 0), host;
	double bytes = (double)m->params + (double)m->grads + (double)states + (double)ema + (double)m->buffers +
		       (double)m->activations + (double)m->workspace + (double)data;
	/* Uses the same unit in the entire line, so that the numbers can be compared. */
	bool large = bytes >= 10.0 * (1 << 30);
	double k = large ? 1.0 / (1 << 30) : 1.0 / (1 << 20);
	char need[CT_BYTES_TEXT], have[CT_BYTES_TEXT];
	printf("memory       per rank %s%.1f %s: parameters %.2f, gradients %.2f, optimizer %.2f, EMA %.2f, activations %.2f (%.2f without "
	       "the memory plan), workspace %.2f, data %.1f\n",
	       p->estimated ? "about " : "", bytes * k, large ? "GiB" : "MiB", (double)m->params * k,
	       (double)m->grads * k, (double)states * k, (double)ema * k, (double)m->activations * k,
	       (double)m->activations_unplanned * k, (double)m->workspace * k, (double)data * k);
	printf("             rank 0 also: copy of the last checkpoint %.2f %s\n", copy * k, large ? "GiB" : "MiB");
	host = host_bytes();
	bytes = bytes * p->ranks.local + (p->ranks.first == 0 ? copy : 0);
	if (host > 0 && bytes > (double)host)
		printf("             %d rank%s here need%s %s, this host has %s: use a smaller batch (or train.accumulate), a smaller "
		       "model, or fewer ranks\n",
		       p->ranks.local, ct_plural(p->ranks.local), p->ranks.local == 1 ? "s" : "",
		       ct_bytes_text((uint64_t)bytes, need), ct_bytes_text(host, have));
}

static enum ct_status print_origins(const struct ct_config *c)
{
	struct ct_str text = {0};
	CT_TRY(ct_config_dump(c, true, &text));
	printf("config\n");
	for (const char *p = ct_str_text(&text); *p;) {
		size_t n = strcspn(p, "\n");
		printf("  %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	ct_str_release(&text);
	return CT_OK;
}

static ct_json *plan_json(const struct ct_config *c, const struct planned *p, const struct planned_buckets *buckets)
{
	const struct ct_run_plan *r = &p->plan;
	const struct ct_net_memory *m = &p->memory;
	ct_json *j = ct_json_object(), *memory = ct_json_object();

	ct_json_set_i64(j, "world_size", p->ranks.world);
	ct_json_set_i64(j, "nodes", p->ranks.n_nodes);
	ct_json_set_str(j, "engine", ct_engine_version(p->engine));
	ct_json_set_i64(j, "global_batch", r->global_batch);
	ct_json_set_i64(j, "per_rank", r->per_rank);
	ct_json_set_i64(j, "accumulate", r->accumulate);
	ct_json_set_i64(j, "steps_per_epoch", (int64_t)r->steps_per_epoch);
	ct_json_set_i64(j, "total_steps", (int64_t)r->total_steps);
	ct_json_set_f64(j, "lr", r->lr);
	ct_json_set_str(j, "model", ct_config_choice(c, "model.name"));
	ct_json_set_i64(j, "params", (int64_t)ct_graph_n_elems(p->graph));
	ct_json_set_f64(j, "forward_flops", ct_graph_flops(p->graph));
	ct_json_set_bool(memory, "estimated", p->estimated);
	ct_json_set_i64(memory, "params", (int64_t)m->params);
	ct_json_set_i64(memory, "gradients", (int64_t)m->grads);
	ct_json_set_i64(memory, "optimizer", (int64_t)states_bytes(p));
	ct_json_set_i64(memory, "activations", (int64_t)m->activations);
	ct_json_set_i64(memory, "workspace", (int64_t)m->workspace);
	ct_json_set(j, "memory_bytes", memory);
	ct_json_set(j, "buckets", ct__plan_buckets_json(buckets));
	return j;
}

enum ct_status ct_cmd_plan(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	struct planned p = {0};

	if (cli->simulate)
		return ct__simulate(cli);
	CT_TRY(ct__simulate_check_options(cli));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = make(c, &p);
	const struct planned_buckets buckets = {
		.cfg = c, .net = p.net, .ready = p.ready, .buckets = p.buckets, .n = p.n_buckets, .reduced = p.ranks.world > 1};
	if (st == CT_OK && cli->json) {
		st = ct__print_json(plan_json(c, &p, &buckets), true);
	} else if (st == CT_OK) {
		print_run(c, &p);
		print_model(c, &p);
		print_memory(&p, states_bytes(&p),
			     c->train.ema > 0 ? p.memory.params + p.memory.buffers : 0);
		ct__plan_print_buckets(&buckets);
		st = print_origins(c);
	}
	release(&p);
	ct_config_destroy(c);
	return st;
}
