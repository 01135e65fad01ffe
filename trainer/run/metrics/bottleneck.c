/* The causes are tested in a fixed order, because one of them can look like another. Other programs come first: a peer
 * without a CPU looks like slow communication. Then the largest of three shares of the step time decides, if it
 * exceeds its limit: waiting for data, waiting for the slowest rank, and communication. The communication share is
 * taken from the rank that waited least, since the wait of any other rank includes waiting for that one. If even this
 * wait is longer than the sum of the gradients can take on a working system, the cause is not communication, but
 * something that delays the ranks in turn. If no share is large, the run is bound by compute. */
#include "trainer/run/metrics/bottleneck.h"

#include <math.h>

#include "base/mem.h"

/* Waiting is reported if it takes at least these shares of the step time. */
#define DATA_SHARE 0.05
#define COMM_SHARE 0.10
#define SLOW_SHARE 0.10
/* The same limits for the time that a rank waited for a CPU, and for the share of the host's CPU time that other
 * programs used. */
#define QUEUED_SHARE 0.10
#define OTHERS_SHARE 0.10
/* What the sum of the gradients takes at most on a working system: bytes per second and seconds per bucket, within a
 * host and over a slow network. Longer waiting has another cause. */
#define HOST_BANDWIDTH 0.5e9
#define HOST_LATENCY 0.5e-3
#define NETWORK_BANDWIDTH 50e6
#define NETWORK_LATENCY 5e-3
/* The share of waiting time that a suggestion should reach. */
#define GOAL_SHARE 0.05
#define WORTHWHILE 1.1 /* minimum speedup for which a change is suggested */
#define RESERVE 1.1    /* loader threads are suggested for this multiple of the average load */

struct shares {
	int starved;            /* rank that waited longest for data */
	int slow;               /* rank that computed longest */
	int last;               /* rank that waited least for others, and therefore only for communication */
	double data, comm, lag; /* shares of the step time: data wait of `starved`, communication, waiting for `slow` */
	double mean_compute;    /* seconds; mean over all ranks except `slow` */
	double images_per_sec;  /* of all ranks */
};

const char *ct_bottleneck_name(enum ct_bottleneck b)
{
	static const char *const names[] = {"compute", "data", "communication", "rank", "other programs", "waiting"};

	return names[b];
}

static struct shares measure(const struct ct_bottleneck_facts *f)
{
	const struct ct_rank_times *r = f->ranks;
	struct shares s = {0};
	double images = 0, compute = 0;

	for (int i = 0; i < f->world; i++) {
		s.starved = r[i].data_s > r[s.starved].data_s ? i : s.starved;
		s.slow = r[i].compute_s > r[s.slow].compute_s ? i : s.slow;
		s.last = r[i].exposed_s < r[s.last].exposed_s ? i : s.last;
		images += r[i].images;
		compute += r[i].compute_s;
	}
	double whole = r[s.last].step_s;
	s.data = r[s.starved].data_s / r[s.starved].step_s;
	s.comm = f->world > 1 ? r[s.last].exposed_s / whole : 0;
	s.mean_compute = f->world > 1 ? (compute - r[s.slow].compute_s) / (f->world - 1) : compute;
	s.lag = (r[s.slow].compute_s - s.mean_compute) / whole;
	s.images_per_sec = images / whole;
	return s;
}

/* Returns the images per second that the rank's CPUs could load and compute if neither part ever waited. */
static double shared_limit(const struct ct_bottleneck_facts *f, const struct ct_rank_times *r)
{
	double compute = f->compute_threads * r->compute_s / r->images, load = r->loader_s / r->loader_images;

	return f->cpus / (compute + load);
}

static void add_remedy(const struct ct_bottleneck_facts *f, const struct ct_rank_times *r, double could, int need,
		       struct ct_str *out)
{
	const char *less =
		f->encoded ? "smaller or seekable files (`ctrain data pack`), data.decode=fast or less augmentation"
			   : "less augmentation";
	double now = r->images / r->step_s, limit = fmin(could, shared_limit(f, r));

	if (f->compute_threads + need <= f->cpus)
		ct_str_addf(out, "data.workers=%d would be enough", need);
	else if (limit > now * WORTHWHILE)
		ct_str_addf(out, "data.workers=%d would give up to %.0f images/s, because %d CPU%s must do both",
			    need < f->cpus ? need : f->cpus, limit, f->cpus, ct_plural(f->cpus));
	else
		ct_str_addf(out, "the %d CPU%s are already saturated by loading and compute: try %s", f->cpus,
			    ct_plural(f->cpus), less);
}

static void report_data(const struct ct_bottleneck_facts *f, const struct shares *s, struct ct_str *out)
{
	const struct ct_rank_times *r = &f->ranks[s->starved];
	double could = r->images / fmax(r->step_s - r->data_s, 1e-9);
	const char *doing = f->loader_threads == 0 ? "loading batches between steps" : "waiting for batches";

	if (f->world > 1)
		ct_str_addf(out, "bound by data: rank %d spent %.0f %% of its time %s", s->starved, 100 * s->data,
			    doing);
	else
		ct_str_addf(out, "bound by data: %.0f %% of the time was spent %s", 100 * s->data, doing);
	if (r->loader_s <= 0 || r->loader_images <= 0 || r->images <= 0)
		return;
	double each = r->loader_images / r->loader_s;
	int need = (int)fmin(ceil(could / each * RESERVE), 1e6);
	need = need > f->loader_threads ? need : f->loader_threads + 1;
	ct_str_addf(out, "; a thread loads %.0f images/s, there %s %d thread%s, and training could use %.0f images/s: ",
		    each, f->loader_threads == 1 ? "is" : "are", f->loader_threads, ct_plural(f->loader_threads),
		    could);
	add_remedy(f, r, could, need, out);
}

static void report_comm(const struct ct_bottleneck_facts *f, const struct shares *s, struct ct_str *out)
{
	/* The traffic of a step does not depend on the batch size. */
	double more = s->comm * (1 - GOAL_SHARE) / (GOAL_SHARE * (1 - s->comm));
	double ms = 1e3 * f->ranks[s->last].exposed_s / (double)f->steps;

	ct_str_addf(
		out,
		"bound by communication: all ranks spent %.0f %% of the time (%.1f ms per step) waiting for gradients; "
		"to get below %.0f %%: batch.per_rank=%.0f instead of %u, or train.accumulate=%.0f",
		100 * s->comm, ms, 100 * GOAL_SHARE, ceil(f->per_rank * more), f->per_rank, ceil(more));
}

/* Returns the seconds of a step that the sum of the gradients can explain; infinite if unknown. */
static double longest_reduction(const struct ct_bottleneck_facts *f)
{
	if (f->reduced_bytes <= 0)
		return INFINITY;
	return f->one_host ? f->reduced_bytes / HOST_BANDWIDTH + f->n_buckets * HOST_LATENCY
			   : f->reduced_bytes / NETWORK_BANDWIDTH + f->n_buckets * NETWORK_LATENCY;
}

static void report_waiting(const struct ct_bottleneck_facts *f, const struct shares *s, struct ct_str *out)
{
	char bytes[CT_BYTES_TEXT];

	ct_str_addf(
		out,
		"bound by waiting: all ranks spent %.0f %% of the time (%.1f ms per step) waiting for each other, but to sum their "
		"gradients (%s) takes less than %.1f ms; something delays the ranks in turn, such as other programs or containers on "
		"these CPUs, or a slow network file system",
		100 * s->comm, 1e3 * f->ranks[s->last].exposed_s / (double)f->steps,
		ct_bytes_text((uint64_t)f->reduced_bytes, bytes), 1e3 * longest_reduction(f));
}

static void report_rank(const struct ct_bottleneck_facts *f, const struct shares *s, struct ct_str *out)
{
	double k = 1e3 / (double)f->steps;

	ct_str_addf(
		out,
		"bound by rank %d: it computes for %.1f ms per step, but the others only for %.1f ms, and they wait %.0f %% of the time; "
		"if it were as fast as the others, training would process %.0f images/s instead of %.0f",
		s->slow, f->ranks[s->slow].compute_s * k, s->mean_compute * k, 100 * s->lag,
		s->images_per_sec / fmax(1 - s->lag, 1e-9), s->images_per_sec);
}

static void report_compute(const struct ct_bottleneck_facts *f, const struct shares *s, struct ct_str *out)
{
	const struct ct_rank_times *r = &f->ranks[s->last];

	ct_str_addf(out, "bound by compute: %.0f %% of the time, data %.1f %%", 100 * r->compute_s / r->step_s,
		    100 * s->data);
	if (f->world > 1)
		ct_str_addf(out, ", communication %.1f %%", 100 * s->comm);
	if (f->flops > 0)
		ct_str_addf(out, "; %.0f GFLOP/s on each rank", 3e-9 * f->flops * r->images / r->step_s);
	if (r->loader_s > 0 && f->loader_threads > 0)
		ct_str_addf(out, "; loading is not a bottleneck (%.1f times as fast as training)",
			    r->loader_images / r->loader_s * f->loader_threads / (r->images / r->step_s));
}

/* Returns the rank that waited longest for a CPU while other programs used the CPUs of its host, or -1 if no rank
 * waited long enough to report it. *used is the share of these CPUs that other programs used. A peer without a CPU
 * looks like slow communication, so this is checked first. */
static int others_rank(const struct ct_bottleneck_facts *f, double *used)
{
	int worst = -1;
	double most = QUEUED_SHARE;

	for (int i = 0; i < f->world && f->local_world > 0 && f->host_cpus > 0; i++) {
		const struct ct_rank_times *r = &f->ranks[i];
		double queued = r->wall_s > 0 ? r->queued_s / r->wall_s : 0;
		/* Assumes that all ranks of a host use the same CPU time, because it is not known here which rank is on
		 * which host. */
		double share = r->wall_s > 0 ? (r->host_s - r->own_s * f->local_world) / (r->wall_s * f->host_cpus) : 0;

		if (queued >= most && share >= OTHERS_SHARE) {
			worst = i;
			most = queued;
			*used = share;
		}
	}
	return worst;
}

static void report_others(const struct ct_bottleneck_facts *f, int rank, double used, struct ct_str *out)
{
	const struct ct_rank_times *r = &f->ranks[rank];

	ct_str_addf(
		out,
		"bound by other programs: they used %.0f %% of the %d CPU%s%s; rank %d was ready to run, but had no CPU, "
		"for %.0f %% of the time; end these programs, or reserve CPUs for ctrain (taskset, a Slurm job)",
		100 * fmin(used, 1), f->host_cpus, ct_plural(f->host_cpus),
		f->world > f->local_world ? " of its host" : "", rank, 100 * r->queued_s / r->wall_s);
}

enum ct_bottleneck ct_bottleneck_report(const struct ct_bottleneck_facts *f, struct ct_str *out)
{
	if (f->steps == 0 || f->world < 1 || f->ranks[0].step_s <= 0)
		return CT_BOTTLENECK_COMPUTE;
	struct shares s = measure(f);
	double others;
	if (others_rank(f, &others) >= 0) {
		report_others(f, others_rank(f, &others), others, out);
		return CT_BOTTLENECK_OTHERS;
	}
	if (s.data >= DATA_SHARE && s.data >= s.comm && s.data >= s.lag) {
		report_data(f, &s, out);
		return CT_BOTTLENECK_DATA;
	}
	if (s.lag >= SLOW_SHARE && s.lag >= s.comm) {
		report_rank(f, &s, out);
		return CT_BOTTLENECK_RANK;
	}
	if (s.comm >= COMM_SHARE && f->ranks[s.last].exposed_s / (double)f->steps > longest_reduction(f)) {
		report_waiting(f, &s, out);
		return CT_BOTTLENECK_WAITING;
	}
	if (s.comm >= COMM_SHARE) {
		report_comm(f, &s, out);
		return CT_BOTTLENECK_COMM;
	}
	report_compute(f, &s, out);
	return CT_BOTTLENECK_COMPUTE;
}
