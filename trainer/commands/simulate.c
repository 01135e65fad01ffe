#include "trainer/commands/simulate_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "trainer/commands/print_impl.h"
#include "trainer/commands/step_bench_impl.h"
#include "trainer/loop/session_data.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/simulate.h"

#define GOOD_EFFICIENCY 0.8
#define DEFAULT_STEPS 50

static const char *const algorithms[] = {
	[CT_SIM_RING] = "ring", [CT_SIM_TREE] = "tree", [CT_SIM_FASTEST] = "fastest", [CT_SIM_HIER] = "hier"};

struct simulation {
	struct ct_config *cfg;
	struct ct_sim_work work;
	struct ct_bucket_slice *slices;
	double *ready;
	struct ct_sim_cluster cluster; /* without the numbers of nodes and devices */
	struct ct_sim_shape shapes[CT_SIM_MAX_SHAPES];
	struct ct_sim_result results[CT_SIM_MAX_SHAPES];
	int n_shapes, low; /* low: the first shape with a low efficiency, or n_shapes */
	struct ct_sim_change changes[CT_SIM_CHANGES];
	int advised; /* the shape to which the changes apply; -1: none */
};

/* ---- the step of one rank */

/* Copies the gradient slices, and computes when they become final from the costs of the nodes in the backward pass. */
static enum ct_status set_slices(struct simulation *m, const ct_net *net, const double *costs)
{
	const ct_graph *g = ct_net_graph(net);
	double total = 0;

	m->work.n_slices = ct_net_n_slices(net);
	CT_TRY_ALLOC(m->slices = CT_NEW_ARRAY(struct ct_bucket_slice, (size_t)m->work.n_slices));
	CT_TRY_ALLOC(m->ready = CT_NEW_ARRAY(double, (size_t)m->work.n_slices));
	m->work.slices = m->slices;
	m->work.ready = m->ready;
	for (int i = ct_graph_n_nodes(g) - 1; i >= 0; i--) {
		total += costs[i];
		for (int k = 0; k < m->work.n_slices; k++) {
			const struct ct_slice *s = ct_net_slice(net, k);

			m->slices[k] = (struct ct_bucket_slice){s->offset, s->n, s->dtype};
			if (ct_graph_param(g, s->param)->node == i)
				m->ready[k] = total;
		}
	}
	for (int k = 0; k < m->work.n_slices; k++)
		m->ready[k] = total > 0 ? m->ready[k] / total : 1;
	return CT_OK;
}

static enum ct_status set_measured_slices(struct simulation *m, const struct ct_session *s)
{
	const int n = ct_graph_n_nodes(s->graph);
	double forward, *costs;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(costs = CT_NEW_ARRAY(double, (size_t)n));
	for (int i = 0; i < n && st == CT_OK; i++)
		st = ct_program_times(s->full, i, &forward, &costs[i]);
	if (st == CT_OK)
		st = set_slices(m, s->net, costs);
	ct_free(costs);
	return st;
}

static void set_batch(struct simulation *m, const struct ct_run_plan *p)
{
	m->work.accumulate = (int)p->accumulate;
	m->work.images = p->per_rank;
}

static enum ct_status measure(struct simulation *m, int64_t steps)
{
	struct ct_session s = {0};
	struct ct__step_bench b;
	enum ct_status st;

	CT_TRY_GOTO(ct_session_create(m->cfg, NULL, true, &s), st, out);
	CT_TRY_GOTO(ct__step_bench(&s, steps, &b), st, out);
	set_batch(m, &s.plan);
	m->work.backward_s = b.backward_ms * 1e-3 / m->work.accumulate;
	m->work.optim_s = b.optim_ms * 1e-3;
	m->work.forward_s = fmax(0, b.step_ms - b.backward_ms - b.optim_ms) * 1e-3 / m->work.accumulate;
	st = set_measured_slices(m, &s);
out:
	ct_session_destroy(&s, st < 0);
	return st;
}

/* Builds the graph and the net, but no program, so that the batch may be too large for this host. */
static enum ct_status describe_net(struct simulation *m, const struct ct_dataset_info *info)
{
	struct ct_run_plan plan;
	ct_graph *graph = NULL;
	ct_device *device = NULL;
	ct_engine *engine = NULL;
	ct_net *net = NULL;
	double *flops = NULL;
	enum ct_status st;

	CT_TRY(ct_run_plan_make(m->cfg, 1, info, NULL, &plan));
	set_batch(m, &plan);
	CT_TRY(ct_plan_graph(m->cfg, info, plan.input, &graph));
	CT_TRY_GOTO(ct_plan_device_open(m->cfg, 0, &device), st, out);
	CT_TRY_GOTO(ct_engine_open(m->cfg->train.engine, device, 1, &engine), st, out);
	CT_TRY_GOTO(ct_net_create(engine, graph, &plan.net, &net), st, out);
	CT_TRY_GOTO(ct__backward_flops(graph, &flops), st, out);
	st = set_slices(m, net, flops);
out:
	ct_free(flops);
	ct_net_destroy(net);
	ct_engine_close(engine);
	ct_device_close(device);
	ct_graph_destroy(graph);
	return st;
}

static enum ct_status describe(struct simulation *m)
{
	struct ct_data_opening data;
	ct_dataset *train = NULL, *val = NULL;

	CT_TRY(ct_data_opening_start(&data, m->cfg, false, true));
	CT_TRY(ct_data_opening_finish(&data, &train, &val));
	const enum ct_status st = describe_net(m, ct_dataset_info(train));
	ct_dataset_close(val);
	ct_dataset_close(train);
	return st;
}

static enum ct_status parse_step_ms(const char *text, struct ct_sim_work *w)
{
	double ms[3];
	int len = 0;

	if (sscanf(text, "%15lf,%15lf,%15lf%n", &ms[0], &ms[1], &ms[2], &len) != 3 || text[len] || !(ms[0] >= 0) ||
	    !(ms[1] >= 0) || !(ms[2] >= 0) || !isfinite(ms[0] + ms[1] + ms[2]) || ms[0] + ms[1] + ms[2] <= 0)
		return CT_FAIL(
			CT_USAGE,
			"--step-ms %.60s: expected the milliseconds of the forward pass, the backward pass and the "
			"update, such as 12.5,24,0.8",
			text);
	w->forward_s = ms[0] * 1e-3;
	w->backward_s = ms[1] * 1e-3;
	w->optim_s = ms[2] * 1e-3;
	return CT_OK;
}

/* The batch of a rank stays the same in all shapes. */
static enum ct_status fix_batch(struct ct_config *c)
{
	struct ct_ranks ranks;

	CT_TRY(ct_plan_ranks(c, &ranks));
	CT_TRY(ct_plan_check_batch(c, (uint32_t)ranks.world));
	if (c->batch.global > 0) {
		c->batch.per_rank = c->batch.global / (ranks.world * c->train.accumulate);
		c->batch.global = 0;
	}
	return CT_OK;
}

static enum ct_status find_work(struct simulation *m, const struct ct_cli *cli)
{
	int64_t steps;

	m->work.first_cap_bytes = (size_t)(m->cfg->dist.first_bucket_mib * (1 << 20));
	m->work.cap_bytes = ct_plan_bucket_bytes(m->cfg);
	CT_TRY(ct_cli_number("--steps", cli->steps, DEFAULT_STEPS, 1, 1000000, &steps));
	CT_TRY(fix_batch(m->cfg));
	return cli->step_ms ? describe(m) : measure(m, steps);
}

/* ---- the cluster */

static enum ct_status find_algorithm(struct simulation *m, const char *name)
{
	const char *backend = m->cfg->dist.backend;
	enum ct_sim_algorithm *a = &m->cluster.algorithm;

	/* Links of GPUs have the fixed latency of NCCL. */
	const bool nccl = m->cluster.intra.base_s + m->cluster.inter.base_s > 0 && strcmp(backend, "auto") == 0;

	*a = CT_SIM_HIER;
	if (nccl || strcmp(backend, "nccl") == 0)
		*a = CT_SIM_FASTEST;
	else if (strcmp(backend, "gloo") == 0 || strcmp(backend, "mpi") == 0)
		*a = CT_SIM_RING;
	if (!name)
		return CT_OK;
	for (size_t i = 0; i < CT_ARRAY_LEN(algorithms); i++) {
		if (strcmp(algorithms[i], name) == 0) {
			*a = (enum ct_sim_algorithm)i;
			return CT_OK;
		}
	}
	return CT_FAIL(CT_USAGE, "--allreduce %.40s is not one of ring, tree, fastest, hier", name);
}

static enum ct_status find_link(const char *option, const char *text, bool needed, const char *what,
				struct ct_sim_link *out)
{
	struct ct_str names = {0};
	const struct ct_sim_link *link;

	if (text)
		return ct_sim_link_parse(option, text, out);
	if (!needed)
		return CT_OK;
	for (size_t i = 0; (link = ct_sim_link_at(i)) != NULL; i++)
		ct_str_addf(&names, "%s%s", i > 0 ? ", " : "", link->name);
	(void)CT_FAIL(CT_USAGE,
		      "--simulate needs the link %s: %s NAME, or ALPHA_US,GBPS as measured by `ctrain bench comm`",
		      what, option);
	ct_error_hint("the names are %s; docs/SCALING.md describes them", ct_str_text(&names));
	ct_str_release(&names);
	return CT_USAGE;
}

static enum ct_status find_cluster(struct simulation *m, const struct ct_cli *cli)
{
	bool nodes = false, devices = false;

	CT_TRY(ct_sim_shapes_parse("--simulate", cli->simulate, m->shapes, &m->n_shapes));
	for (int i = 0; i < m->n_shapes; i++) {
		nodes = nodes || m->shapes[i].nodes > 1;
		devices = devices || m->shapes[i].devices > 1;
	}
	CT_TRY(find_link("--link-intra", cli->link_intra, devices, "within a node", &m->cluster.intra));
	CT_TRY(find_link("--link-inter", cli->link_inter, nodes, "between nodes", &m->cluster.inter));
	return find_algorithm(m, cli->allreduce);
}

static struct ct_sim_cluster cluster_at(const struct simulation *m, int i)
{
	struct ct_sim_cluster c = m->cluster;

	c.nodes = m->shapes[i].nodes;
	c.devices = m->shapes[i].devices;
	return c;
}

/* Simulates all shapes, and the changes for the first one with a low efficiency, else for the last one. */
static enum ct_status run(struct simulation *m)
{
	m->low = m->n_shapes;
	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_cluster c = cluster_at(m, i);

		CT_TRY(ct_sim_step(&m->work, &c, &m->results[i]));
		if (m->results[i].efficiency < GOOD_EFFICIENCY && m->low == m->n_shapes)
			m->low = i;
	}
	m->advised = m->low < m->n_shapes ? m->low : m->n_shapes - 1;
	const struct ct_sim_cluster c = cluster_at(m, m->advised);
	if (c.nodes * c.devices == 1) {
		m->advised = -1;
		return CT_OK;
	}
	return ct_sim_changes(&m->work, &c, m->changes);
}

/* ---- output */

static void add_step(const struct simulation *m, bool measured, struct ct_str *out)
{
	const struct ct_sim_work *w = &m->work;
	const struct ct_sim_link *intra = &m->cluster.intra, *inter = &m->cluster.inter;

	ct_str_addf(out, "step         forward %.3f ms, backward %.3f ms, update %.3f ms (%s)\n", w->forward_s * 1e3,
		    w->backward_s * 1e3, w->optim_s * 1e3,
		    measured ? "measured on one rank here" : "as given by --step-ms");
	ct_str_addf(out, "batch        %g images per rank and step", w->images);
	if (w->accumulate > 1)
		ct_str_addf(out, ", as %d micro-batches", w->accumulate);
	ct_str_addf(out, "\nbuckets      %d; gradients become final %s\n", m->results[0].n_buckets,
		    measured ? "as measured" : "in proportion to the floating-point operations");
	if (intra->bytes_per_s > 0)
		ct_str_addf(out, "within node  %s: %.2f us, %.3f GB/s\n", intra->name, intra->ring_s * 1e6,
			    intra->bytes_per_s * 1e-9);
	if (inter->bytes_per_s > 0)
		ct_str_addf(out, "across       %s: %.2f us, %.3f GB/s\n", inter->name, inter->ring_s * 1e6,
			    inter->bytes_per_s * 1e-9);
	ct_str_addf(out, "all-reduce   %s\n\n", algorithms[m->cluster.algorithm]);
}

static enum ct_status print_table(const struct simulation *m, bool measured)
{
	struct ct_str out = {0};

	add_step(m, measured, &out);
	ct_str_addf(&out, "%14s %7s %10s %10s %11s %13s %11s\n", "nodes x devices", "ranks", "step ms", "comm ms",
		    "exposed ms", "images/s", "efficiency");
	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_shape *s = &m->shapes[i];
		const struct ct_sim_result *r = &m->results[i];

		ct_str_addf(&out, "%7d x %-5d %7d %10.3f %10.3f %11.3f %13.1f %9.1f %%\n", s->nodes, s->devices,
			    s->nodes * s->devices, r->step_s * 1e3, r->comm_s * 1e3, r->exposed_s * 1e3,
			    r->images_per_s, r->efficiency * 100);
	}
	if (m->low < m->n_shapes)
		ct_str_addf(&out, "\nThe efficiency falls below %.0f %% at %dx%d.\n", GOOD_EFFICIENCY * 100,
			    m->shapes[m->low].nodes, m->shapes[m->low].devices);
	else
		ct_str_addf(&out, "\nThe efficiency is at least %.0f %% for all of these.\n", GOOD_EFFICIENCY * 100);
	if (m->advised >= 0)
		ct_str_addf(&out, "Predicted change of the images per second at %dx%d:\n", m->shapes[m->advised].nodes,
			    m->shapes[m->advised].devices);
	for (int i = 0; m->advised >= 0 && i < CT_SIM_CHANGES; i++)
		ct_str_addf(&out, "  %+7.1f %%  %s\n", m->changes[i].gain * 100, m->changes[i].setting);
	return ct__print_text(&out);
}

static ct_json *rows_json(const struct simulation *m)
{
	ct_json *rows = ct_json_array();

	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_result *r = &m->results[i];
		ct_json *o = ct_json_object();

		ct_json_set_i64(o, "nodes", m->shapes[i].nodes);
		ct_json_set_i64(o, "devices", m->shapes[i].devices);
		ct_json_set_f64(o, "step_ms", r->step_s * 1e3);
		ct_json_set_f64(o, "comm_ms", r->comm_s * 1e3);
		ct_json_set_f64(o, "exposed_comm_ms", r->exposed_s * 1e3);
		ct_json_set_f64(o, "images_per_sec", r->images_per_s);
		ct_json_set_f64(o, "efficiency", r->efficiency);
		ct_json_push(rows, o);
	}
	return rows;
}

static ct_json *changes_json(const struct simulation *m)
{
	ct_json *changes = ct_json_array();

	for (int i = 0; m->advised >= 0 && i < CT_SIM_CHANGES; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "setting", m->changes[i].setting);
		ct_json_set_f64(o, "gain", m->changes[i].gain);
		ct_json_push(changes, o);
	}
	return changes;
}

static enum ct_status print_json(const struct simulation *m, bool measured)
{
	ct_json *j = ct_json_object();

	ct_json_set_i64(j, "v", 1);
	ct_json_set_bool(j, "measured", measured);
	ct_json_set_f64(j, "forward_ms", m->work.forward_s * 1e3);
	ct_json_set_f64(j, "backward_ms", m->work.backward_s * 1e3);
	ct_json_set_f64(j, "optim_ms", m->work.optim_s * 1e3);
	ct_json_set_f64(j, "images", m->work.images);
	ct_json_set_i64(j, "buckets", m->results[0].n_buckets);
	ct_json_set_str(j, "allreduce", algorithms[m->cluster.algorithm]);
	ct_json_set(j, "rows", rows_json(m));
	ct_json_set_i64(j, "first_inefficient_row", m->low < m->n_shapes ? m->low : -1);
	ct_json_set_i64(j, "changes_row", m->advised);
	ct_json_set(j, "changes", changes_json(m));
	return ct__print_json(j, true);
}

static enum ct_status simulate(struct simulation *m, const struct ct_cli *cli)
{
	if (cli->step_ms)
		CT_TRY(parse_step_ms(cli->step_ms, &m->work));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &m->cfg));
	CT_TRY(find_cluster(m, cli));
	CT_TRY(ct_log_configure(m->cfg->log.level));
	CT_TRY(find_work(m, cli));
	CT_TRY(run(m));
	return cli->json ? print_json(m, !cli->step_ms) : print_table(m, !cli->step_ms);
}

enum ct_status ct__simulate(const struct ct_cli *cli)
{
	struct simulation *m;

	CT_TRY_ALLOC(m = CT_NEW(struct simulation));
	const enum ct_status st = simulate(m, cli);
	ct_free(m->ready);
	ct_free(m->slices);
	ct_config_destroy(m->cfg);
	ct_free(m);
	return st;
}

enum ct_status ct__simulate_check_options(const struct ct_cli *cli)
{
	const char *option = cli->step_ms      ? "--step-ms"
			     : cli->link_intra ? "--link-intra"
			     : cli->link_inter ? "--link-inter"
			     : cli->allreduce  ? "--allreduce"
			     : cli->steps      ? "--steps"
					       : NULL;

	if (option)
		return CT_FAIL(CT_USAGE, "%s needs --simulate, for example --simulate 1x1..1x8", option);
	return CT_OK;
}
