/* The step of one rank is measured, or given by the user; everything else about it (slices, types, batch) comes from a
 * plan and from nets that are created without programs, so the model may be too large for this host. The batch of a
 * rank stays the same in all shapes (weak scaling), so batch.global is first divided among the ranks that the config
 * would start here.
 *
 * There are two nets, with gradients in fp32 and in 16 bits, because dist.reduce_dtype=auto depends on the number of
 * ranks; each shape uses the one that it would have. Changes are simulated for the first shape that does not scale
 * well. */
#include "trainer/tools/estimate/simulate_command.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "dist/comm/kind.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/ready.h"
#include "trainer/run/session/session_data.h"
#include "trainer/tools/bench/step_bench.h"
#include "trainer/tools/estimate/plan_time.h"
#include "trainer/tools/estimate/simulate.h"
#include "trainer/tools/estimate/simulate_print.h"

/* ---- the step of one rank */

/* Copies the gradient slices of a net, and computes when they become final. */
static enum ct_status set_slices(struct ct__simulation *m, int which, const ct_net *net)
{
	struct ct_sim_work *w = &m->work[which];

	w->n_slices = ct_net_n_trained(net);
	CT_TRY_ALLOC(m->slices[which] = CT_NEW_ARRAY(struct ct_bucket_slice, (size_t)w->n_slices));
	CT_TRY_ALLOC(m->ready[which] = CT_NEW_ARRAY(double, (size_t)w->n_slices));
	w->slices = m->slices[which];
	w->ready = m->ready[which];
	ct_plan_ready(net, m->costs, m->ready[which]);
	for (int k = 0; k < w->n_slices; k++) {
		const struct ct_slice *s = ct_net_slice(net, k);

		m->slices[which][k] = (struct ct_bucket_slice){s->offset, s->n, s->dtype};
	}
	return CT_OK;
}

static enum ct_status measure_costs(struct ct__simulation *m, const struct ct_session *s)
{
	const int n = ct_graph_n_nodes(s->model.graph);
	double forward;

	CT_TRY_ALLOC(m->costs = CT_NEW_ARRAY(double, (size_t)n));
	for (int i = 0; i < n; i++)
		CT_TRY(ct_program_times(s->model.full, i, &forward, &m->costs[i]));
	return CT_OK;
}

/* Measures the step of one rank. */
static enum ct_status measure(struct ct__simulation *m, int64_t steps, struct ct_sim_work *w)
{
	struct ct_session s = {0};
	struct ct_step_bench b;
	enum ct_status st;

	CT_TRY_GOTO(ct_session_create(m->cfg, NULL, true, &s), st, out);
	CT_TRY_GOTO(ct_step_bench(&s, steps, NULL, &b), st, out);
	m->measured_ms = b.step_ms;
	w->backward_s = b.backward_ms * 1e-3 / s.plan.accumulate;
	w->optim_s = b.optim_ms * 1e-3;
	w->forward_s = fmax(0, b.step_ms - b.backward_ms - b.optim_ms) * 1e-3 / s.plan.accumulate;
	st = measure_costs(m, &s);
out:
	ct_session_destroy(&s, st < 0);
	return st;
}

static enum ct_status describe_net(struct ct__simulation *m, int which, ct_engine *engine, const ct_graph *graph,
				   const struct ct_net_opts *opts)
{
	ct_net *net = NULL;

	CT_TRY(ct_net_create(engine, graph, opts, &net));
	const enum ct_status st = set_slices(m, which, net);
	ct_net_destroy(net);
	return st;
}

/* Finds the type of each shape: dist.reduce_dtype=auto depends on the number of ranks. Returns the type of the net with
 * gradients of 16 bits, of which there is one even if no shape uses it, as a change to be simulated. */
static enum ct_dtype find_types(struct ct__simulation *m, const ct_device *device, struct ct_run_plan *plan)
{
	enum ct_dtype half = CT_BF16;

	for (int i = 0; i < m->n_shapes; i++) {
		plan->world = (uint32_t)(m->shapes[i].nodes * m->shapes[i].devices);
		ct_run_plan_reduce(m->cfg, device, plan);
		m->types[i] = plan->net.reduce_type;
		half = m->types[i] == CT_F32 ? half : m->types[i];
	}
	return half;
}

static enum ct_status describe_nets(struct ct__simulation *m, struct ct_run_plan *plan, const ct_graph *graph)
{
	ct_device *device = NULL;
	ct_engine *engine = NULL;
	enum ct_dtype half;
	enum ct_status st;

	if (!m->costs)
		CT_TRY(ct_plan_backward_flops(graph, &m->costs));
	CT_TRY(ct_plan_device_open(m->cfg, 0, &device));
	CT_TRY_GOTO(ct_engine_open(m->cfg->train.engine, device, 1, &engine), st, out);
	half = find_types(m, device, plan);
	plan->net.reduce_type = CT_F32;
	CT_TRY_GOTO(describe_net(m, CT__SIM_FULL, engine, graph, &plan->net), st, out);
	plan->net.reduce_type = half;
	st = describe_net(m, CT__SIM_HALF, engine, graph, &plan->net);
out:
	ct_engine_close(engine);
	ct_device_close(device);
	return st;
}

/* The batch of a rank is fixed, so more ranks need fewer steps. The steps differ if the size of the images changes. */
static void count_steps(struct ct__simulation *m, const struct ct_dataset_info *info)
{
	for (int i = 0; i < m->n_shapes; i++) {
		const uint32_t world = (uint32_t)(m->shapes[i].nodes * m->shapes[i].devices);
		struct ct_run_plan plan;

		if (ct_run_plan_make(m->cfg, world, info, NULL, &plan) < 0)
			ct_error_clear(); /* training refuses this number of ranks */
		else if (plan.n_sizes <= 1)
			m->steps[i] = plan.total_steps;
	}
}

/* Builds the graph and nets, but no program, so that the batch may be too large for this host. Sets everything of the
 * work but the times. */
static enum ct_status describe_model(struct ct__simulation *m, const struct ct_dataset_info *info)
{
	struct ct_run_plan plan;
	struct ct_sim_work *w = &m->work[CT__SIM_FULL];
	ct_graph *graph = NULL;

	CT_TRY(ct_run_plan_make(m->cfg, 1, info, NULL, &plan));
	count_steps(m, info);
	w->accumulate = (int)plan.accumulate;
	w->images = plan.per_rank;
	w->first_cap_bytes = (size_t)(m->cfg->dist.first_bucket_mib * (1 << 20));
	w->cap_bytes = ct_plan_bucket_bytes(m->cfg);
	m->work[CT__SIM_HALF] = *w;
	CT_TRY(ct_plan_graph(m->cfg, info, plan.input, &graph));
	const enum ct_status st = describe_nets(m, &plan, graph);
	ct_graph_destroy(graph);
	return st;
}

static enum ct_status describe(struct ct__simulation *m)
{
	struct ct_data_opening data;
	ct_dataset *train = NULL, *val = NULL;

	CT_TRY(ct_data_opening_start(&data, m->cfg, false, true));
	CT_TRY(ct_data_opening_finish(&data, &train, &val));
	const enum ct_status st = describe_model(m, ct_dataset_info(train));
	ct_dataset_close(val);
	ct_dataset_close(train);
	return st;
}

static enum ct_status parse_step_ms(const char *text, struct ct_sim_work *w)
{
	double ms[3];

	CT_TRY(ct_parse_step_ms(text, ms));
	w->forward_s = ms[0] * 1e-3;
	w->backward_s = ms[1] * 1e-3;
	w->optim_s = ms[2] * 1e-3;
	return CT_OK;
}

/* The batch of a rank stays the same in all shapes. batch.global is divided among the ranks that this config would
 * start on this machine. */
static enum ct_status fix_batch(struct ct__simulation *m)
{
	struct ct_config *c = m->cfg;
	struct ct_ranks ranks;

	if (c->launch.pipeline > 1) {
		CT_FAIL(CT_UNSUPPORTED, "--simulate does not model launch.pipeline=%lld",
			(long long)c->launch.pipeline);
		return ct_error_hint("use launch.pipeline=1");
	}
	CT_TRY(ct_plan_ranks(c, &ranks));
	CT_TRY(ct_plan_check_batch(c, (uint32_t)ranks.world));
	if (c->batch.global > 0) {
		m->global_batch = c->batch.global;
		m->divided_by = ranks.world;
		c->batch.per_rank = c->batch.global / (ranks.world * c->train.accumulate);
		c->batch.global = 0;
	}
	return CT_OK;
}

static enum ct_status find_work(struct ct__simulation *m, const char *step_ms, int64_t steps)
{
	struct ct_sim_work *w = &m->work[CT__SIM_FULL];

	CT_TRY(fix_batch(m));
	CT_TRY(step_ms ? parse_step_ms(step_ms, w) : measure(m, steps, w));
	return describe(m);
}

/* ---- the cluster */

static enum ct_status find_algorithm(struct ct__simulation *m, const char *name)
{
	const char *backend = m->cfg->dist.backend;
	enum ct_sim_algorithm *a = &m->cluster.algorithm;

	/* Links of GPUs have the fixed latency of NCCL. */
	const bool nccl = m->cluster.intra.base_s + m->cluster.inter.base_s > 0 && strcmp(backend, "auto") == 0;

	*a = CT_SIM_HIER;
	if (nccl || ct_comm_has(backend, CT_COMM_TUNED))
		*a = CT_SIM_FASTEST;
	else if (ct_comm_has(backend, CT_COMM_RING))
		*a = CT_SIM_RING;
	if (!name)
		return CT_OK;
	for (int i = CT_SIM_RING; i <= CT_SIM_HIER; i++) {
		if (strcmp(ct_simulate_algorithm((enum ct_sim_algorithm)i), name) == 0) {
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
	CT_FAIL(CT_USAGE, "--simulate needs the link %s: %s NAME, or ALPHA_US,GBPS as measured by `ctrain bench comm`",
		what, option);
	ct_error_hint("the names are %s; docs/SCALING.md describes them", ct_str_text(&names));
	ct_str_release(&names);
	return CT_USAGE;
}

static enum ct_status find_cluster(struct ct__simulation *m, const struct ct_simulate_options *o)
{
	bool nodes = false, devices = false;

	CT_TRY(ct_sim_shapes_parse("--simulate", o->shapes, m->shapes, &m->n_shapes));
	for (int i = 0; i < m->n_shapes; i++) {
		nodes = nodes || m->shapes[i].nodes > 1;
		devices = devices || m->shapes[i].devices > 1;
	}
	CT_TRY(find_link("--link-intra", o->link_intra, devices, "within a node", &m->cluster.intra));
	CT_TRY(find_link("--link-inter", o->link_inter, nodes, "between nodes", &m->cluster.inter));
	return find_algorithm(m, o->allreduce);
}

static struct ct_sim_cluster cluster_at(const struct ct__simulation *m, int i)
{
	struct ct_sim_cluster c = m->cluster;

	c.nodes = m->shapes[i].nodes;
	c.devices = m->shapes[i].devices;
	return c;
}

static const struct ct_sim_work *work_at(const struct ct__simulation *m, int i)
{
	return &m->work[m->types[i] == CT_F32 ? CT__SIM_FULL : CT__SIM_HALF];
}

/* Simulates all shapes, and the changes for the first one with a low efficiency, else for the last one. */
static enum ct_status run(struct ct__simulation *m)
{
	m->low = m->n_shapes;
	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_cluster c = cluster_at(m, i);

		CT_TRY(ct_sim_step(work_at(m, i), &c, &m->results[i]));
		if (m->results[i].efficiency < CT__SIM_GOOD_EFFICIENCY && m->low == m->n_shapes)
			m->low = i;
	}
	m->advised = m->low < m->n_shapes ? m->low : m->n_shapes - 1;
	const struct ct_sim_cluster c = cluster_at(m, m->advised);
	if (c.nodes * c.devices == 1) {
		m->advised = -1;
		return CT_OK;
	}
	return ct_sim_changes(work_at(m, m->advised), m->types[m->advised] == CT_F32 ? &m->work[CT__SIM_HALF] : NULL,
			      &c, m->changes, &m->n_changes);
}

static enum ct_status simulate(struct ct__simulation *m, const struct ct_simulate_options *o, int64_t steps, bool json)
{
	CT_TRY(find_cluster(m, o));
	CT_TRY(ct_log_configure(m->cfg->log.level));
	CT_TRY(find_work(m, o->step_ms, steps));
	CT_TRY(run(m));
	return json ? ct_simulate_print_json(m) : ct_simulate_print_table(m);
}

enum ct_status ct_simulate(const struct ct_simulate_options *o, int64_t steps, struct ct_config *cfg, bool json)
{
	struct ct__simulation *m;

	CT_TRY_ALLOC(m = CT_NEW(struct ct__simulation));
	m->cfg = cfg;
	const enum ct_status st = simulate(m, o, steps, json);

	for (int i = 0; i < CT__SIM_N_NETS; i++) {
		ct_free(m->ready[i]);
		ct_free(m->slices[i]);
	}
	ct_free(m->costs);
	ct_free(m);
	return st;
}
