/* A bucket is complete when the last of its gradients is, so its share of the backward pass is the largest one of its
 * slices. The lines are in the order in which the buckets are reduced. If the run measures all-reduces to choose the
 * cap, the buckets shown are those of the default, and the output says so. */
#include "trainer/tools/estimate/plan_buckets.h"

#include <math.h>
#include <stdio.h>

enum { ALL_MAX = 24, SHOWN_FIRST = 12, SHOWN_LAST = 8 };

struct bucket_facts {
	size_t bytes, params;
	double done;              /* share of the backward pass after which the gradients of the bucket are complete */
	const char *first, *last; /* names of parameters */
};

static double mib(size_t bytes)
{
	return (double)bytes / (1 << 20);
}

static struct bucket_facts facts_of(const struct planned_buckets *p, int i)
{
	const struct ct_bucket *b = &p->buckets[i];
	struct bucket_facts f = {.bytes = b->n * ct_dtype_bytes(b->dtype)};

	for (int k = 0; k < b->n_slices; k++) {
		const int slice = b->first_slice + k;
		const struct ct_param *param = ct_graph_param(ct_net_graph(p->net), ct_net_slice(p->net, slice)->param);

		f.params += param->n;
		f.done = fmax(f.done, p->ready[slice]);
		f.first = k == 0 ? param->name : f.first;
		f.last = param->name;
	}
	return f;
}

/* dist.bucket_mib as in the config; its value in bytes is truncated. */
static double cap_mib(const struct ct_config *c)
{
	return c->dist.bucket_mib > 0 ? c->dist.bucket_mib : mib(ct_plan_bucket_bytes(c));
}

/* Returns whether the run measures all-reduces (trainer/run/session/bucket_probe.h). */
static bool is_measured(const struct planned_buckets *p)
{
	return p->cfg->dist.bucket_mib == CT_CFG_AUTO && p->reduced && p->cfg->launch.pipeline == 1;
}

/* Returns who determines the size of the buckets. */
static const char *chosen_by(const struct planned_buckets *p)
{
	return is_measured(p) ? "start" : p->cfg->dist.bucket_mib > 0 ? "config" : "default";
}

static void print_skipped(const struct planned_buckets *p, int from, int to)
{
	size_t least = SIZE_MAX, most = 0;

	for (int i = from; i < to; i++) {
		const size_t bytes = p->buckets[i].n * ct_dtype_bytes(p->buckets[i].dtype);

		least = bytes < least ? bytes : least;
		most = bytes > most ? bytes : most;
	}
	printf("  ...   %d buckets of %.3f to %.3f MiB (--json shows all)\n", to - from, mib(least), mib(most));
}

void ct_plan_print_buckets(const struct planned_buckets *p)
{
	const struct ct_config *c = p->cfg;
	size_t total = 0;

	printf("buckets      %d, reduced in this order (first cap %g MiB, cap %g MiB)%s\n", p->n,
	       c->dist.first_bucket_mib, cap_mib(c),
	       is_measured(p) ? "; dist.bucket_mib=auto: the cap is chosen at start" : "");
	printf("  %-4s %10s %-4s %12s %10s  %s\n", "", "MiB", "type", "parameters", "complete", "tensors");
	for (int i = 0; i < p->n; i++) {
		const struct bucket_facts f = facts_of(p, i);

		total += f.bytes;
		if (p->n > ALL_MAX && i == SHOWN_FIRST)
			print_skipped(p, SHOWN_FIRST, p->n - SHOWN_LAST);
		if (p->n > ALL_MAX && i >= SHOWN_FIRST && i < p->n - SHOWN_LAST)
			continue;
		printf("  %-4d %10.3f %-4s %12zu %8.1f %%  %d: %s ... %s\n", i, mib(f.bytes),
		       ct_dtype_name(p->buckets[i].dtype), f.params, 100 * f.done, p->buckets[i].n_slices, f.first,
		       f.last);
	}
	printf("             complete: share of the backward pass (by FLOPs) after which the bucket is posted\n");
	printf("traffic      %.3f MiB of gradients per step and rank\n", p->reduced ? mib(total) : 0.0);
}

ct_json *ct_plan_buckets_json(const struct planned_buckets *p)
{
	ct_json *j = ct_json_object(), *list = ct_json_array();
	size_t total = 0;

	ct_json_set_f64(j, "first_cap_mib", p->cfg->dist.first_bucket_mib);
	ct_json_set_f64(j, "cap_mib", cap_mib(p->cfg));
	ct_json_set_str(j, "cap_from", chosen_by(p));
	for (int i = 0; i < p->n; i++) {
		const struct bucket_facts f = facts_of(p, i);
		ct_json *one = ct_json_object();

		total += f.bytes;
		ct_json_set_i64(one, "bytes", (int64_t)f.bytes);
		ct_json_set_str(one, "type", ct_dtype_name(p->buckets[i].dtype));
		ct_json_set_i64(one, "params", (int64_t)f.params);
		ct_json_set_f64(one, "complete", f.done);
		ct_json_set_i64(one, "tensors", p->buckets[i].n_slices);
		ct_json_set_str(one, "first", f.first);
		ct_json_set_str(one, "last", f.last);
		ct_json_push(list, one);
	}
	ct_json_set_i64(j, "traffic_bytes", p->reduced ? (int64_t)total : 0);
	ct_json_set(j, "list", list);
	return j;
}
