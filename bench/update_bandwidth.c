/* The lower bound that memory bandwidth sets for an optimizer step: the time of a plain loop with the memory traffic of
 * SGD with momentum (reads weights, gradients and momentum, writes weights and momentum: 20 bytes per parameter).
 *
 * usage: update_bandwidth [PARAMETERS]   default: 25557032, the parameters of ResNet-50 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "base/thread.h"

struct arrays {
	float *weights, *gradients, *momentum;
};

static void update(void *arg, int64_t begin, int64_t end)
{
	const struct arrays *a = arg;
	float *restrict w = a->weights, *restrict m = a->momentum;
	const float *restrict g = a->gradients;

	for (int64_t i = begin; i < end; i++) {
		float d = g[i] + 1e-4f * w[i];

		m[i] = 0.9f * m[i] + d;
		w[i] -= 0.1f * m[i];
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of 25 passes, in seconds. */
static double measure(const struct arrays *a, int64_t n, int threads)
{
	enum { PASSES = 25 };
	double seconds[PASSES];

	for (int i = 0; i < PASSES; i++) {
		int64_t t0 = ct_now_ns();

		ct_parallel_for(threads, n, 1 << 16, update, (void *)a);
		seconds[i] = (double)(ct_now_ns() - t0) * 1e-9;
	}
	qsort(seconds, PASSES, sizeof(seconds[0]), compare);
	return seconds[PASSES / 2];
}

int main(int argc, char **argv)
{
	int64_t n = argc > 1 ? strtoll(argv[1], NULL, 10) : 25557032;
	struct arrays a;

	if (argc > 2 || n <= 0) {
		fprintf(stderr, "usage: update_bandwidth [PARAMETERS]\n");
		return 2;
	}
	a.weights = CT_NEW_ARRAY(float, (size_t)n);
	a.gradients = CT_NEW_ARRAY(float, (size_t)n);
	a.momentum = CT_NEW_ARRAY(float, (size_t)n);
	if (!a.weights || !a.gradients || !a.momentum) {
		fprintf(stderr, "update_bandwidth: out of memory\n");
		return 1;
	}
	for (int threads = 1; threads <= ct_cpu_count(); threads *= 2) {
		double s = measure(&a, n, threads);

		printf("%2d threads: %7.2f ms, %6.1f GB/s\n", threads, s * 1e3, (double)n * 20 / s * 1e-9);
	}
	ct_free(a.momentum);
	ct_free(a.gradients);
	ct_free(a.weights);
	return 0;
}
