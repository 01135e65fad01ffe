/* Measures the rate of oneDNN's own sgemm for the matrix products of one training step of the 784-512-256-10 MLP at
 * batch size 64, executed back to back, and for a large square matrix product. The result is the reference for `ctrain
 * bench step bench/configs/mlp.yaml`. Prints one JSON object on standard output.
 *
 *   OMP_NUM_THREADS=1 build/release/bench/onednn_gemm [ROUNDS] */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 64, N_LAYERS = 3, LARGE = 1024 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static float *filled(size_t n)
{
	float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);

	for (size_t i = 0; p && i < n; i++)
		p[i] = (float)(i % 13) * 0.01f;
	return p;
}

/* y = x w^T, dx = dy w (not for the first layer), dw = dy^T x of each layer; returns the operations done. */
static double step_products(float *const x[], float *const w[], float *const dx[], float *const dw[], const int width[])
{
	double flop = 0;

	for (int i = 0; i < N_LAYERS; i++) {
		int c = width[i], k = width[i + 1];

		dnnl_sgemm('N', 'T', BATCH, k, c, 1, x[i], c, w[i], c, 0, x[i + 1], k);
		dnnl_sgemm('T', 'N', k, c, BATCH, 1, dx[i + 1], k, x[i], c, 0, dw[i], c);
		if (i > 0)
			dnnl_sgemm('N', 'N', BATCH, c, k, 1, dx[i + 1], k, w[i], c, 0, dx[i], c);
		flop += 2.0 * BATCH * c * k * (i > 0 ? 3 : 2);
	}
	return flop;
}

int main(int argc, char **argv)
{
	static const int width[N_LAYERS + 1] = {784, 512, 256, 10};
	int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 500;
	float *x[N_LAYERS + 1], *dx[N_LAYERS + 1], *w[N_LAYERS], *dw[N_LAYERS];
	float *a = filled(LARGE * LARGE), *b = filled(LARGE * LARGE), *c = filled(LARGE * LARGE);
	double *step = calloc((size_t)(rounds > 0 ? rounds : 1), sizeof(*step)), *large = calloc(20, sizeof(*large)),
	       flop = 0;

	if (rounds < 1 || !step || !large || !a || !b || !c)
		return 1;
	for (int i = 0; i <= N_LAYERS; i++) {
		x[i] = filled((size_t)BATCH * (size_t)width[i]);
		dx[i] = filled((size_t)BATCH * (size_t)width[i]);
	}
	for (int i = 0; i < N_LAYERS; i++) {
		w[i] = filled((size_t)width[i] * (size_t)width[i + 1]);
		dw[i] = filled((size_t)width[i] * (size_t)width[i + 1]);
	}
	for (int r = -20; r < rounds; r++) {
		double t = now();

		flop = step_products(x, w, dx, dw, width);
		if (r >= 0)
			step[r] = now() - t;
	}
	for (int r = -2; r < 20; r++) {
		double t = now();

		dnnl_sgemm('N', 'N', LARGE, LARGE, LARGE, 1, a, LARGE, b, LARGE, 0, c, LARGE);
		if (r >= 0)
			large[r] = now() - t;
	}
	qsort(step, (size_t)rounds, sizeof(*step), compare);
	qsort(large, 20, sizeof(*large), compare);
	printf("{\"bench\":\"onednn_gemm\",\"step_products_ms\":%.4f,\"step_products_gflops\":%.1f,\"large_gflops\":%.1f}\n",
	       step[rounds / 2] * 1e3, flop / step[rounds / 2] * 1e-9, 2.0 * LARGE * LARGE * LARGE / large[10] * 1e-9);
	return 0;
}
