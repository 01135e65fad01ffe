/* Each rank takes the increase of its counters since the last report: phases of its steps, statistics of its loader,
 * and CPU times of the process and the host. One all-gather at the end of an epoch gives all ranks the values of all
 * others, in the order of the ranks; each computes a report, and rank 0 shows its own. Counters are never reset, since
 * the increase is enough, and the threads of the loader go on loading meanwhile. */
#include "trainer/run/loop/epoch_times.h"

#include <unistd.h>

#include "trainer/plan/cpus.h"

enum ct_status ct_epoch_times_init(struct ct_epoch_times *t, struct ct_session *s, ct_stepper *stepper)
{
	*t = (struct ct_epoch_times){.s = s, .stepper = stepper};
	CT_TRY_ALLOC(t->ranks = CT_NEW_ARRAY(struct ct_rank_times, (size_t)s->world.id.world));
	ct_stepper_loader_stats(stepper, &t->stats);
	ct_cpu_use_now(&t->cpu);
	return CT_OK;
}

void ct_epoch_times_release(struct ct_epoch_times *t)
{
	ct_free(t->ranks);
}

/* Returns the bytes of gradients that are summed over all ranks in a step. */
static double reduced_bytes(const struct ct_session_grad *g)
{
	double bytes = 0;

	for (int i = 0; i < g->n_buckets; i++)
		bytes += (double)(g->buckets[i].n * ct_dtype_bytes(g->buckets[i].dtype));
	return bytes;
}

/* Returns the times of this rank in the epoch, and starts to measure the next epoch. */
static struct ct_rank_times take_own(struct ct_epoch_times *t, const struct ct_meter *m)
{
	const struct ct_interval *epoch = &m->epoch;
	const struct ct_step_times *e = &epoch->times;
	struct ct_loader_stats now;

	ct_stepper_loader_stats(t->stepper, &now);
	const struct ct_transform_times *a = &t->stats.times, *b = &now.times;
	int64_t busy = b->read_ns - a->read_ns + b->decode_ns - a->decode_ns + b->resize_ns - a->resize_ns +
		       b->distort_ns - a->distort_ns + now.assemble_ns - t->stats.assemble_ns;
	struct ct_rank_times own = {.step_s = ct_meter_seconds(m, epoch),
				    .data_s = (double)e->data_ns * 1e-9,
				    .compute_s = (double)(e->forward_ns + e->backward_ns + e->optim_ns) * 1e-9,
				    .exposed_s = (double)e->exposed_ns * 1e-9,
				    .loader_s = (double)busy * 1e-9,
				    .loader_images = (double)(b->images - a->images),
				    .damaged =
					    ct_session_counts_samples(t->s) ? (double)(b->warnings - a->warnings) : 0,
				    .images = (double)epoch->own};
	t->stats = now;
	ct_cpu_use_since(&t->cpu, &own);
	return own;
}

enum ct_status ct_epoch_times_report(struct ct_epoch_times *t, const struct ct_meter *m, const char **bound,
				     struct ct_str *out)
{
	struct ct_session *s = t->s;
	struct ct_rank_times own = take_own(t, m);
	ct_work *w = NULL;

	CT_TRY(ct_comm_allgather(s->comm, &own, t->ranks, CT_RANK_TIMES_N, CT_F64, &w));
	CT_TRY(ct_work_wait(w));
	t->damaged = 0;
	for (int i = 0; i < s->world.id.world; i++)
		t->damaged += (uint64_t)t->ranks[i].damaged;
	int local = ct_session_local_world(s);
	struct ct_bottleneck_facts f = {.ranks = t->ranks,
					.world = s->world.id.world,
					.steps = m->epoch.steps,
					.per_rank = s->plan.per_rank,
					.loader_threads = t->stats.n_threads,
					.compute_threads = ct_plan_threads(s->cfg, local),
					.cpus = ct_plan_cpus(local),
					.local_world = local,
					.host_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN),
					.flops = ct_graph_flops(ct_session_train_graph(&s->model)),
					.encoded = s->plan.encoded,
					.reduced_bytes = reduced_bytes(&s->grad),
					.n_buckets = s->grad.n_buckets,
					.one_host = s->world.id.n_nodes == 1};
	*bound = ct_bottleneck_name(ct_bottleneck_report(&f, out));
	return ct_str_status(out);
}
