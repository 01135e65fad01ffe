#include "trainer/run/metrics/cpu_use.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

/* The first line of /proc/stat contains the ticks of user, nice, system, idle, iowait, irq, softirq and steal. */
static double host_seconds(void)
{
	unsigned long long v[8] = {0};
	long ticks = sysconf(_SC_CLK_TCK);
	FILE *f = fopen("/proc/stat", "re");
	int n = 0;

	if (!f)
		return 0;
	n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
		   &v[7]);
	(void)fclose(f);
	return n < 4 || ticks <= 0 ? 0 : (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)ticks;
}

/* The file contains "RUNNING WAITING SLICES" of the main thread, in nanoseconds. */
static double queued_seconds(void)
{
	unsigned long long running = 0, waiting = 0;
	FILE *f = fopen("/proc/self/schedstat", "re");
	int n = 0;

	if (!f)
		return 0;
	n = fscanf(f, "%llu %llu", &running, &waiting);
	(void)fclose(f);
	return n == 2 ? (double)waiting * 1e-9 : 0;
}

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + 1e-6 * (double)t->tv_usec;
}

void ct_cpu_use_now(struct ct_cpu_use *out)
{
	struct rusage own = {0};

	(void)getrusage(RUSAGE_SELF, &own);
	*out = (struct ct_cpu_use){.wall_s = (double)ct_now_ns() * 1e-9,
				   .queued_s = queued_seconds(),
				   .own_s = seconds(&own.ru_utime) + seconds(&own.ru_stime),
				   .host_s = host_seconds()};
}

void ct_cpu_use_since(struct ct_cpu_use *last, struct ct_rank_times *r)
{
	struct ct_cpu_use now;

	ct_cpu_use_now(&now);
	r->wall_s = now.wall_s - last->wall_s;
	r->queued_s = now.queued_s - last->queued_s;
	r->own_s = now.own_s - last->own_s;
	r->host_s = now.host_s - last->host_s;
	*last = now;
}

uint64_t ct_memory_use_now(void)
{
	unsigned long long total, resident = 0;
	const long page = sysconf(_SC_PAGESIZE);
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &total, &resident) != 2)
		resident = 0;
	(void)fclose(f);
	return page > 0 ? (uint64_t)resident * (uint64_t)page : 0;
}
