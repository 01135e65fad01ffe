/* The formulas of simulate.h, one function for each algorithm. A cluster with one device per node, or one node, lacks
 * one kind of link; its terms are omitted, so the link may be unset. The step uses the same division into buckets, and
 * the same simulation of their order, as the choice of the bucket size at the start of a run (dist/bucket_size.h). A
 * change is simulated by changing a copy of the work or of the cluster; its gain is relative to the images per second
 * without it. */
#include "trainer/tools/estimate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dist/bucket_size.h"

#define TREE_BANDWIDTH 0.92 /* NCCL, src/graph/tuning.cc */

static double ring(const struct ct_sim_cluster *c, double bytes)
{
	const double n = c->nodes, m = c->devices, ranks = n * m;
	double speed = INFINITY, base_s = 0;

	if (m > 1) {
		speed = c->intra.bytes_per_s;
		base_s = c->intra.base_s;
	}
	if (n > 1) {
		speed = fmin(speed, c->inter.bytes_per_s);
		base_s = fmax(base_s, c->inter.base_s);
	}
	return base_s + 2 * n * (m - 1) * c->intra.ring_s + 2 * (n - 1) * c->inter.ring_s +
	       2 * (ranks - 1) / ranks * bytes / speed;
}

static double tree(const struct ct_sim_cluster *c, double bytes)
{
	double speed = INFINITY, base_s = 0, hops_s = 0;

	if (c->devices > 1) {
		speed = c->intra.bytes_per_s;
		base_s = c->intra.base_s;
		hops_s = (c->devices - 1) * c->intra.tree_s;
	}
	if (c->nodes > 1) {
		speed = fmin(speed, c->inter.bytes_per_s);
		base_s = fmax(base_s, c->inter.base_s);
		hops_s += ceil(log2(c->nodes)) * c->inter.tree_s;
	}
	return base_s + 2 * hops_s + 2 * bytes / (TREE_BANDWIDTH * speed);
}

static double hier(const struct ct_sim_cluster *c, double bytes)
{
	struct ct_sim_cluster leaders = *c;
	const double within_s = c->intra.base_s + c->intra.ring_s + bytes / c->intra.bytes_per_s;

	leaders.devices = 1;
	if (c->nodes == 1)
		return ring(c, bytes);
	return ring(&leaders, bytes) + (c->devices > 1 ? 2 * within_s : 0);
}

double ct_sim_allreduce(const struct ct_sim_cluster *c, double bytes)
{
	if (c->nodes * c->devices == 1)
		return 0;
	switch (c->algorithm) {
	case CT_SIM_RING:
		return ring(c, bytes);
	case CT_SIM_TREE:
		return tree(c, bytes);
	case CT_SIM_HIER:
		return hier(c, bytes);
	case CT_SIM_FASTEST:
		break;
	}
	return fmin(ring(c, bytes), tree(c, bytes));
}

static double bucket_cost(const void *cluster, const struct ct_bucket *b)
{
	return ct_sim_allreduce(cluster, (double)(b->n * ct_dtype_bytes(b->dtype)));
}

enum ct_status ct_sim_step(const struct ct_sim_work *w, const struct ct_sim_cluster *c, struct ct_sim_result *out)
{
	const int ranks = c->nodes * c->devices;
	const double compute_s = w->accumulate * (w->forward_s + w->backward_s);
	struct ct_bucket *buckets;

	*out = (struct ct_sim_result){0};
	CT_TRY(ct_bucket_plan(w->slices, w->n_slices, w->first_cap_bytes, w->cap_bytes, &buckets, &out->n_buckets));
	for (int i = 0; i < out->n_buckets; i++)
		out->comm_s += bucket_cost(c, &buckets[i]);
	const double end_s = ct_bucket_end(buckets, out->n_buckets, w->ready, w->backward_s, bucket_cost, c);
	ct_free(buckets);
	out->exposed_s = fmax(0, end_s - w->backward_s);
	out->step_s = compute_s + out->exposed_s + w->optim_s;
	out->images_per_s = ranks * w->images / out->step_s;
	out->efficiency = (compute_s + w->optim_s) / out->step_s;
	return CT_OK;
}

/* ---- changes */

/* Simulates a changed work or cluster. If it has more images per second, relative to `before`, than *gain says, stores
 * the new gain and sets *better. */
static enum ct_status try_change(const struct ct_sim_work *w, const struct ct_sim_cluster *c, double before,
				 double *gain, bool *better)
{
	struct ct_sim_result r;

	CT_TRY(ct_sim_step(w, c, &r));
	*better = r.images_per_s / before - 1 > *gain;
	if (*better)
		*gain = r.images_per_s / before - 1;
	return CT_OK;
}

static enum ct_status try_buckets(const struct ct_sim_work *w, const struct ct_sim_cluster *c, double before,
				  struct ct_sim_change *out)
{
	static const int mib[] = {1, 2, 4, 8, 16, 25, 50, 100};
	struct ct_sim_work other = *w;
	bool better;

	snprintf(out->setting, sizeof(out->setting), "dist.bucket_mib=%g", (double)w->cap_bytes / (1 << 20));
	out->gain = 0;
	for (size_t i = 0; i < CT_ARRAY_LEN(mib); i++) {
		other.cap_bytes = (size_t)mib[i] << 20;
		CT_TRY(try_change(&other, c, before, &out->gain, &better));
		if (better)
			snprintf(out->setting, sizeof(out->setting), "dist.bucket_mib=%d", mib[i]);
	}
	return CT_OK;
}

static int by_gain(const void *a, const void *b)
{
	const double x = ((const struct ct_sim_change *)a)->gain, y = ((const struct ct_sim_change *)b)->gain;

	return (x < y) - (x > y);
}

/* Adds a change to out [*n]. */
static enum ct_status add_change(const struct ct_sim_work *w, const struct ct_sim_cluster *c, double before,
				 const char *setting, struct ct_sim_change *out, int *n)
{
	bool better;

	snprintf(out[*n].setting, sizeof(out[*n].setting), "%s", setting);
	out[*n].gain = -INFINITY;
	return try_change(w, c, before, &out[(*n)++].gain, &better);
}

enum ct_status ct_sim_changes(const struct ct_sim_work *w, const struct ct_sim_work *half,
			      const struct ct_sim_cluster *c, struct ct_sim_change out[CT_SIM_CHANGES], int *n)
{
	struct ct_sim_work batch = *w, accumulate = *w;
	struct ct_sim_cluster fast = *c;
	struct ct_sim_link *link = c->nodes > 1 ? &fast.inter : &fast.intra;
	struct ct_sim_result now;
	char setting[80];

	batch.forward_s *= 2;
	batch.backward_s *= 2;
	batch.images *= 2;
	accumulate.accumulate *= 2;
	accumulate.images *= 2;
	link->bytes_per_s *= 2;
	*n = 0;
	CT_TRY(ct_sim_step(w, c, &now));
	snprintf(setting, sizeof(setting), "batch.per_rank=%g", batch.images / w->accumulate);
	CT_TRY(add_change(&batch, c, now.images_per_s, setting, out, n));
	snprintf(setting, sizeof(setting), "train.accumulate=%d", accumulate.accumulate);
	CT_TRY(add_change(&accumulate, c, now.images_per_s, setting, out, n));
	snprintf(setting, sizeof(setting), "%s of twice the bandwidth", link->name);
	CT_TRY(add_change(w, &fast, now.images_per_s, setting, out, n));
	if (half)
		CT_TRY(add_change(half, c, now.images_per_s, "dist.reduce_dtype=bf16", out, n));
	CT_TRY(try_buckets(w, c, now.images_per_s, &out[*n]));
	++*n;
	qsort(out, (size_t)*n, sizeof(*out), by_gain);
	return CT_OK;
}
