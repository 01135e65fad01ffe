/* The report of doctor as text and JSON; declared in trainer/tools/doctor/doctor.h. */
#include "trainer/tools/doctor/doctor.h"
#include "trainer/tools/doctor/facts_json.h"

enum { MATRIX_MAX = 16 };

static void add_node(const struct ct_facts *f, int i, struct ct_str *out)
{
	char memory[CT_BYTES_TEXT];

	if (!f->present) {
		ct_str_addf(out, "node %-3d  has not reported\n", i);
		return;
	}
	ct_str_addf(out, "node %-3d  %s", (int)f->node, f->host);
	if (f->source[0])
		ct_str_addf(out, " (%s)", f->source);
	ct_str_addf(out, ": ctrain %s, %lld rank%s, %lld CPU%s", f->version, (long long)f->ranks, ct_plural(f->ranks),
		    (long long)f->cpus, ct_plural(f->cpus));
	if (f->memory_bytes > 0)
		ct_str_addf(out, ", %s", ct_bytes_text((uint64_t)f->memory_bytes, memory));
	if (f->gpus_visible > 0)
		ct_str_addf(out, ", %lld GPU%s", (long long)f->gpus_visible, ct_plural(f->gpus_visible));
	ct_str_addf(out, "\n%s", f->binding);
}

static void add_matrix(const struct ct_cluster *c, struct ct_str *out)
{
	if (!c->links || c->n > MATRIX_MAX)
		return;
	ct_str_add(out, "MiB/s     ");
	for (int k = 0; k < c->n; k++)
		ct_str_addf(out, " to %-5d", k);
	ct_str_add(out, "\n");
	for (int i = 0; i < c->n; i++) {
		ct_str_addf(out, "from %-4d ", i);
		for (int k = 0; k < c->n; k++) {
			const struct ct_link_facts *l = &c->links[i * c->n + k];

			if (i == k || !l->tried)
				ct_str_addf(out, " %-8s", "-");
			else if (!l->reached)
				ct_str_addf(out, " %-8s", "failed");
			else
				ct_str_addf(out, " %-8.0f", l->mib_per_s);
		}
		ct_str_add(out, "\n");
	}
}

static size_t count_measured(const struct ct_cluster *c)
{
	size_t n = 0;

	for (int i = 0; c->links && i < c->n * c->n; i++)
		n += c->links[i].tried;
	return n;
}

static size_t count_links(const struct ct_cluster *c)
{
	return c->links ? (size_t)c->n * (size_t)(c->n - 1) : 0;
}

/* What the matrix does not show. */
static void add_links(const struct ct_cluster *c, struct ct_str *out)
{
	const size_t measured = count_measured(c), all = count_links(c);

	if (measured < all || c->n > MATRIX_MAX)
		ct_str_addf(out, "%zu of %zu links between nodes were measured (two for each pair of nodes)%s\n",
			    measured, all, c->n > MATRIX_MAX ? "; --json lists them" : "");
}

void ct_doctor_text(const struct ct_doctor *d, struct ct_str *out)
{
	const size_t errors = ct_findings_count(&d->findings, CT_FINDING_ERROR),
		     warnings = ct_findings_count(&d->findings, CT_FINDING_WARNING);

	for (int i = 0; i < d->cluster.n; i++)
		add_node(&d->cluster.nodes[i], i, out);
	add_matrix(&d->cluster, out);
	add_links(&d->cluster, out);
	ct_findings_text(&d->findings, out);
	if (errors + warnings == 0)
		ct_str_addf(out, "no problems found in %.1f s\n", d->seconds);
	else
		ct_str_addf(out, "%zu error%s, %zu warning%s in %.1f s\n", errors, ct_plural((int64_t)errors), warnings,
			    ct_plural((int64_t)warnings), d->seconds);
}

ct_json *ct_doctor_json(const struct ct_doctor *d)
{
	ct_json *j = ct_json_object(), *nodes = ct_json_array(), *links = ct_json_array();

	for (int i = 0; i < d->cluster.n; i++)
		ct_json_push(nodes, ct_facts_json(&d->cluster.nodes[i]));
	for (int i = 0; d->cluster.links && i < d->cluster.n; i++) {
		ct_json *row = ct_json_array();

		for (int k = 0; k < d->cluster.n; k++)
			ct_json_push(row, ct_link_json(&d->cluster.links[i * d->cluster.n + k]));
		ct_json_push(links, row);
	}
	ct_json_set(j, "findings", ct_findings_json(&d->findings));
	ct_json_set_f64(j, "seconds", d->seconds);
	ct_json_set(j, "nodes", nodes);
	ct_json_set(j, "links", links);
	ct_json_set_i64(j, "links_measured", (int64_t)count_measured(&d->cluster));
	ct_json_set_i64(j, "links_total", (int64_t)count_links(&d->cluster));
	return j;
}
