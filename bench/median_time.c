#include "bench/median_time.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define WARMUP 5
#define PROBES 3
#define MIN_ITERATIONS 5
#define MAX_ITERATIONS 2000
#define BUDGET_US 200000.0

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median_time_us(const struct library *l)
{
	double us[MAX_ITERATIONS], start;
	int iterations;

	for (int i = 0; i < WARMUP; i++)
		l->once(l->user);
	start = now_us();
	for (int i = 0; i < PROBES; i++)
		l->once(l->user);
	iterations = (int)(BUDGET_US / (l->largest(l->user, now_us() - start) / PROBES + 1e-3));
	iterations = iterations < MIN_ITERATIONS ? MIN_ITERATIONS : iterations;
	iterations = iterations > MAX_ITERATIONS ? MAX_ITERATIONS : iterations;
	for (int i = 0; i < iterations; i++) {
		start = now_us();
		l->once(l->user);
		us[i] = now_us() - start;
	}
	qsort(us, (size_t)iterations, sizeof(*us), rising);
	return l->largest(l->user, us[iterations / 2]);
}
