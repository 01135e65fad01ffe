/* Rank r of R gets CPUs r*n/R to (r+1)*n/R - 1 of the n CPUs in the order of the topology. These shares are disjoint
 * and contiguous, each has enough CPUs for the threads of its rank, and if the nodes have equally many CPUs and the
 * ranks can be divided evenly among them, no share crosses the border of a node. `core` rounds the shares to complete
 * cores, and binds a rank to its share. `numa` and `auto` bind it to all CPUs of the NUMA node that its share is part
 * of, so that the system can still move threads within a node. Ranks with GPUs divide the CPUs of the NUMA node of
 * their GPU instead, if these are enough for all ranks with GPUs near this node.
 *
 * Binding does harm if other programs use the same CPUs: two jobs that are bound to the same core share it while
 * another core is idle. Whether this will happen cannot be known in advance, so `auto` binds only to NUMA nodes, and
 * only if the threads of the job fill most of the cores. A second job would then find hardly an idle core anyway, and
 * since the ranks use all nodes equally, binding does not make the load uneven. No mode binds if there are more threads
 * than CPUs. */
#include "trainer/plan/binding.h"

#include <stdio.h>

/* Indexes of the CPUs of a topology. */
struct share {
	int first, n;
};

static struct share divide(struct share all, int part, int parts)
{
	const int first = all.n * part / parts;

	return (struct share){.first = all.first + first, .n = all.n * (part + 1) / parts - first};
}

static struct share cpus_of_node(const struct ct_topology *t, int node)
{
	struct share s = {0};

	for (int i = 0; i < t->n; i++) {
		if (t->cpus[i].node != node)
			continue;
		if (s.n++ == 0)
			s.first = i;
	}
	return s;
}

/* The number of ranks with GPUs near this node, of the first n. */
static int count_near(const struct ct_binding_job *job, int node, int n)
{
	int found = 0;

	for (int i = 0; i < n; i++)
		found += job->near[i] == node;
	return found;
}

static bool fits_gpus(const struct ct_binding_job *job)
{
	for (int i = 0; job->near && i < job->ranks; i++) {
		const int near = count_near(job, job->near[i], job->ranks);

		if (near * job->threads > cpus_of_node(job->cpus, job->near[i]).n)
			return false;
	}
	return job->near != NULL;
}

/* The first CPU of the core of CPU i, or of the next core if it is not the first one. */
static int round_to_core(const struct ct_topology *t, int i)
{
	while (i > 0 && i < t->n && t->cpus[i].core == t->cpus[i - 1].core)
		i++;
	return i;
}

static struct share share_of(const struct ct_binding_job *job, int rank)
{
	struct share s = {.n = job->cpus->n};

	if (fits_gpus(job)) {
		const int node = job->near[rank];

		s = divide(cpus_of_node(job->cpus, node), count_near(job, node, rank),
			   count_near(job, node, job->ranks));
	} else {
		s = divide(s, rank, job->ranks);
	}
	if (job->mode != CT_CFG_BIND_CORE)
		return s;
	const int first = round_to_core(job->cpus, s.first);
	return (struct share){.first = first, .n = round_to_core(job->cpus, s.first + s.n) - first};
}

bool ct_binding_is_off(const struct ct_binding_job *job)
{
	return job->mode == CT_CFG_BIND_OFF || (job->mode == CT_CFG_BIND_AUTO && job->ranks < 2);
}

static bool has_narrow_share(const struct ct_binding_job *job)
{
	for (int i = 0; i < job->ranks; i++) {
		if (share_of(job, i).n < job->threads)
			return true;
	}
	return false;
}

void ct_binding_why_none(const struct ct_binding_job *job, char *why, size_t len)
{
	const struct ct_topology *t = job->cpus;
	const int threads = job->ranks * job->threads;

	why[0] = '\0';
	if (ct_binding_is_off(job))
		snprintf(why, len, "%s",
			 job->mode == CT_CFG_BIND_OFF ? "launch.bind is off" : "there is only one rank");
	else if (job->unknown[0])
		snprintf(why, len, "%s", job->unknown);
	else if (job->other_launcher && t->n < job->n_machine)
		snprintf(why, len, "the launcher has already bound this rank to %d of %d CPUs", t->n, job->n_machine);
	else if (threads > t->n)
		snprintf(why, len, "%d rank%s with %d thread%s each, but only %d CPU%s", job->ranks,
			 ct_plural(job->ranks), job->threads, ct_plural(job->threads), t->n, ct_plural(t->n));
	else if (job->mode == CT_CFG_BIND_CORE && has_narrow_share(job))
		snprintf(why, len, "%d core%s cannot be divided among %d ranks with %d thread%s each", t->n_cores,
			 ct_plural(t->n_cores), job->ranks, job->threads, ct_plural(job->threads));
	else if (job->mode != CT_CFG_BIND_CORE && t->n_nodes < 2)
		snprintf(why, len, "all CPUs are in one NUMA node");
	else if (job->mode == CT_CFG_BIND_AUTO && 4 * threads < 3 * t->n_cores)
		snprintf(why, len, "with %d compute thread%s, other programs may use many of the %d cores", threads,
			 ct_plural(threads), t->n_cores);
}

void ct_binding_make(const struct ct_binding_job *job, int local_rank, struct ct_binding *out)
{
	const struct ct_topology *t = job->cpus;

	*out = (struct ct_binding){.node = -1};
	ct_binding_why_none(job, out->why_not, sizeof(out->why_not));
	if (out->why_not[0])
		return;
	struct share s = share_of(job, local_rank);
	const struct ct_topology_cpu *first = &t->cpus[s.first], *last = first + s.n - 1;
	if (first->node == last->node)
		out->node = first->node;
	if (job->mode == CT_CFG_BIND_CORE && !job->near) {
		out->n_threads = job->threads;
		out->first_core = first->core;
		out->n_cores = last->core - first->core + 1;
	} else if (job->mode != CT_CFG_BIND_CORE) {
		if (out->node < 0) {
			snprintf(out->why_not, sizeof(out->why_not), "this rank needs CPUs of several NUMA nodes");
			return;
		}
		s = cpus_of_node(t, out->node);
	}
	for (int i = s.first; i < s.first + s.n; i++)
		ct_cpu_set_add(&out->cpus, t->cpus[i].cpu);
}

/* With fewer threads than cores, they are spread over the cores; with more, neighboring threads share a core. */
struct ct_cpu_set ct_binding_of_thread(const struct ct_binding_job *job, const struct ct_binding *b, int thread)
{
	const int core = b->first_core + b->n_cores * thread / b->n_threads;
	struct ct_cpu_set out = {0};

	for (int i = 0; i < job->cpus->n; i++) {
		if (job->cpus->cpus[i].core == core)
			ct_cpu_set_add(&out, job->cpus->cpus[i].cpu);
	}
	return out;
}

void ct_binding_text(const struct ct_binding *b, char *buf, size_t len)
{
	char list[128], node[32] = "", threads[64] = "";

	if (b->why_not[0]) {
		snprintf(buf, len, "none: %s", b->why_not);
		return;
	}
	ct_cpu_set_text(&b->cpus, list, sizeof(list));
	if (b->node >= 0)
		snprintf(node, sizeof(node), ", NUMA node %d", b->node);
	if (b->n_threads > 0)
		snprintf(threads, sizeof(threads), ", each compute thread on one core");
	snprintf(buf, len, "CPUs %s%s%s", list, node, threads);
}
