/* How [0, n) is divided depends only on the parameters; which thread runs a range does not matter. So both
 * implementations may have fewer threads than requested, and then give several ranges to a thread: OpenMP for example
 * in a nested loop, the other one beyond 64 threads. A range whose thread cannot be started runs on the calling thread,
 * and a single range never leaves it, so nothing can fail. */
#include "base/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

struct loop {
	int64_t n, ranges;
	ct_range_fn run;
	void *arg;
};

static int64_t cut(const struct loop *l, int64_t i)
{
	/* n * i / ranges, without overflow. */
	return l->n / l->ranges * i + l->n % l->ranges * i / l->ranges;
}

static void run_range(const struct loop *l, int64_t i)
{
	l->run(l->arg, cut(l, i), cut(l, i + 1));
}

#ifdef _OPENMP

/* The team always has all threads: with fewer, libgomp would end the others, and the next loop would start them again.
 * If OpenMP provides a smaller team than requested (in a nested loop, or because of a system limit), each thread runs
 * several ranges. */
static void run_ranges(const struct loop *l, int threads)
{
#pragma omp parallel num_threads(threads)
	for (int64_t i = omp_get_thread_num(); i < l->ranges; i += omp_get_num_threads())
		run_range(l, i);
}

void ct_parallel_use_threads(int threads)
{
	omp_set_num_threads(threads > 1 ? threads : 1);
}

/* A system limit may have made the team smaller. A thread that cannot be bound goes on with the CPUs of the process. */
void ct_parallel_pin(int threads, const struct ct_cpu_set *cpus)
{
#pragma omp parallel num_threads(threads)
	if (omp_get_thread_num() > 0)
		(void)pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus[omp_get_thread_num()].part);
}

#else

#define MAX_STARTED 64

struct worker {
	const struct loop *loop;
	int64_t first, step;
	struct ct_thread thread;
};

static void *work(void *arg)
{
	const struct worker *w = arg;

	for (int64_t i = w->first; i < w->loop->ranges; i += w->step)
		run_range(w->loop, i);
	return NULL;
}

static void run_ranges(const struct loop *l, int threads)
{
	struct worker workers[MAX_STARTED];
	const int n = threads < MAX_STARTED ? threads : MAX_STARTED;

	for (int i = 1; i < n; i++) {
		workers[i] = (struct worker){.loop = l, .first = i, .step = n};
		if (i < l->ranges && ct_thread_start(&workers[i].thread, "compute", work, &workers[i]) < 0)
			work(&workers[i]); /* the thread could not be started: run its ranges here */
	}
	workers[0] = (struct worker){.loop = l, .first = 0, .step = n};
	work(&workers[0]);
	for (int i = 1; i < n; i++)
		ct_thread_join(&workers[i].thread);
}

void ct_parallel_use_threads(int threads)
{
	(void)threads;
}

void ct_parallel_pin(int threads, const struct ct_cpu_set *cpus)
{
	(void)threads;
	(void)cpus;
}

#endif

void ct_parallel_for(int threads, int64_t n, int64_t grain, ct_range_fn run, void *arg)
{
	int64_t ranges = n / (grain > 1 ? grain : 1);

	if (n <= 0)
		return;
	if (ranges <= 1 || threads <= 1) {
		run(arg, 0, n);
		return;
	}
	ranges = ranges < threads ? ranges : threads;
	run_ranges(&(struct loop){.n = n, .ranges = ranges, .run = run, .arg = arg}, threads);
}
