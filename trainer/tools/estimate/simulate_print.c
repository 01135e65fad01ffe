/* The table begins with what the prediction assumes; JSON has the same rows and changes. The time of the training is
 * shown only if the number of steps is known, which it is not if the size of the images changes. */
#include "trainer/tools/estimate/simulate_print.h"

#include "base/json.h"
#include "trainer/run/metrics/console.h"
#include "trainer/tools/cli/print.h"

const char *ct_simulate_algorithm(enum ct_sim_algorithm a)
{
	static const char *const names[] = {
		[CT_SIM_RING] = "ring", [CT_SIM_TREE] = "tree", [CT_SIM_FASTEST] = "fastest", [CT_SIM_HIER] = "hier"};

	return names[a];
}

static void add_buckets(const struct ct__simulation *m, struct ct_str *out)
{
	const struct ct_config *c = m->cfg;
	const double cap =
		c->dist.bucket_mib > 0 ? c->dist.bucket_mib : (double)m->work[CT__SIM_FULL].cap_bytes / (1 << 20);

	ct_str_addf(out, "buckets      first cap %g MiB, cap %g MiB", c->dist.first_bucket_mib, cap);
	if (c->dist.bucket_mib == CT_CFG_AUTO)
		ct_str_addf(out, " (dist.bucket_mib=auto is chosen when training starts; %g MiB is assumed)", cap);
	ct_str_add(out, "\n");
}

static void add_step(const struct ct__simulation *m, struct ct_str *out)
{
	const struct ct_sim_work *w = &m->work[CT__SIM_FULL];
	const bool measured = m->measured_ms > 0;
	const struct ct_sim_link *intra = &m->cluster.intra, *inter = &m->cluster.inter;
	int nodes = 1, devices = 1;

	for (int i = 0; i < m->n_shapes; i++) {
		nodes = nodes > m->shapes[i].nodes ? nodes : m->shapes[i].nodes;
		devices = devices > m->shapes[i].devices ? devices : m->shapes[i].devices;
	}
	ct_str_addf(out, "step         forward %.3f ms, backward %.3f ms, update %.3f ms (%s)\n", w->forward_s * 1e3,
		    w->backward_s * 1e3, w->optim_s * 1e3,
		    measured ? "measured on one rank here" : "as given by --step-ms");
	ct_str_addf(out, "batch        %g image%s per rank and step", w->images, ct_plural((int64_t)w->images));
	if (m->global_batch > 0)
		ct_str_addf(out, " (batch.global=%lld over the %d rank%s of this config)", (long long)m->global_batch,
			    m->divided_by, ct_plural(m->divided_by));
	if (w->accumulate > 1)
		ct_str_addf(out, ", as %d micro-batches", w->accumulate);
	ct_str_addf(out, "\ngradients    become final %s\n",
		    measured ? "as measured" : "in proportion to the floating-point operations");
	add_buckets(m, out);
	if (devices > 1)
		ct_str_addf(out, "within node  %s: %.2f us, %.3f GB/s\n", intra->name, intra->ring_s * 1e6,
			    intra->bytes_per_s * 1e-9);
	if (nodes > 1)
		ct_str_addf(out, "across       %s: %.2f us, %.3f GB/s\n", inter->name, inter->ring_s * 1e6,
			    inter->bytes_per_s * 1e-9);
	ct_str_addf(out, "all-reduce   %s\n\n", ct_simulate_algorithm(m->cluster.algorithm));
}

/* Returns the value of dist.reduce_dtype. */
static const char *type_name(const struct ct__simulation *m, int i)
{
	return m->types[i] == CT_F32 ? "fp32" : m->types[i] == CT_F16 ? "fp16" : "bf16";
}

enum ct_status ct_simulate_print_table(const struct ct__simulation *m)
{
	struct ct_str out = {0};

	add_step(m, &out);
	ct_str_addf(&out, "%14s %7s %14s %10s %10s %11s %13s %11s %12s\n", "nodes x devices", "ranks", "buckets",
		    "step ms", "comm ms", "exposed ms", "images/s", "efficiency", "training");
	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_shape *s = &m->shapes[i];
		const struct ct_sim_result *r = &m->results[i];
		char training[16] = "-";

		if (m->steps[i] > 0)
			ct_console_span((double)m->steps[i] * r->step_s, training, sizeof(training));
		ct_str_addf(&out, "%6d x %-5d %7d %6d of %s %10.3f %10.3f %11.3f %13.1f %9.1f %% %12s\n", s->nodes,
			    s->devices, s->nodes * s->devices, r->n_buckets, type_name(m, i), r->step_s * 1e3,
			    r->comm_s * 1e3, r->exposed_s * 1e3, r->images_per_s, r->efficiency * 100, training);
	}
	if (m->low < m->n_shapes)
		ct_str_addf(&out, "\nThe efficiency falls below %.0f %% at %dx%d.\n", CT__SIM_GOOD_EFFICIENCY * 100,
			    m->shapes[m->low].nodes, m->shapes[m->low].devices);
	else
		ct_str_addf(&out, "\nThe efficiency is at least %.0f %% for all of these.\n",
			    CT__SIM_GOOD_EFFICIENCY * 100);
	if (m->advised >= 0)
		ct_str_addf(&out, "Predicted change of the images per second at %dx%d:\n", m->shapes[m->advised].nodes,
			    m->shapes[m->advised].devices);
	for (int i = 0; i < m->n_changes; i++)
		ct_str_addf(&out, "  %+7.1f %%  %s\n", m->changes[i].gain * 100, m->changes[i].setting);
	return ct_print_text(&out);
}

static ct_json *rows_json(const struct ct__simulation *m)
{
	ct_json *rows = ct_json_array();

	for (int i = 0; i < m->n_shapes; i++) {
		const struct ct_sim_result *r = &m->results[i];
		ct_json *o = ct_json_object();

		ct_json_set_i64(o, "nodes", m->shapes[i].nodes);
		ct_json_set_i64(o, "devices", m->shapes[i].devices);
		ct_json_set_str(o, "reduce_dtype", type_name(m, i));
		ct_json_set_i64(o, "buckets", r->n_buckets);
		ct_json_set_f64(o, "step_ms", r->step_s * 1e3);
		ct_json_set_f64(o, "comm_ms", r->comm_s * 1e3);
		ct_json_set_f64(o, "exposed_comm_ms", r->exposed_s * 1e3);
		ct_json_set_f64(o, "images_per_sec", r->images_per_s);
		ct_json_set_f64(o, "efficiency", r->efficiency);
		if (m->steps[i] > 0) {
			ct_json_set_i64(o, "total_steps", (int64_t)m->steps[i]);
			ct_json_set_f64(o, "training_seconds", (double)m->steps[i] * r->step_s);
		}
		ct_json_push(rows, o);
	}
	return rows;
}

static ct_json *changes_json(const struct ct__simulation *m)
{
	ct_json *changes = ct_json_array();

	for (int i = 0; i < m->n_changes; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "setting", m->changes[i].setting);
		ct_json_set_f64(o, "gain", m->changes[i].gain);
		ct_json_push(changes, o);
	}
	return changes;
}

enum ct_status ct_simulate_print_json(const struct ct__simulation *m)
{
	const struct ct_sim_work *w = &m->work[CT__SIM_FULL];
	const bool measured = m->measured_ms > 0;
	ct_json *j = ct_json_object();

	ct_json_set_i64(j, "v", 1);
	ct_json_set_bool(j, "measured", measured);
	if (measured)
		ct_json_set_f64(j, "measured_step_ms", m->measured_ms);
	ct_json_set_f64(j, "forward_ms", w->forward_s * 1e3);
	ct_json_set_f64(j, "backward_ms", w->backward_s * 1e3);
	ct_json_set_f64(j, "optim_ms", w->optim_s * 1e3);
	ct_json_set_f64(j, "images", w->images);
	ct_json_set_str(j, "allreduce", ct_simulate_algorithm(m->cluster.algorithm));
	ct_json_set(j, "rows", rows_json(m));
	ct_json_set_i64(j, "first_inefficient_row", m->low < m->n_shapes ? m->low : -1);
	ct_json_set_i64(j, "changes_row", m->advised);
	ct_json_set(j, "changes", changes_json(m));
	return ct_print_json(j, true);
}
