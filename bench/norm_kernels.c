/* Measures the normalization kernels on the tensors of ResNet-18 for CIFAR (batch 128) and ResNet-50 (batch 16). The
 * rate is the minimum number of bytes to be moved (each tensor read or written once) per second, compared with a memcpy
 * of the same size. The best of ROUNDS runs counts. Prints one line per tensor on standard output.
 *
 *   build/release/bench/norm_kernels [THREADS [ROUNDS [ISA]]]    ISA: as train.isa */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu/features.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "nn/onednn/kernels/norm_kernels.h"

static const struct {
	const char *name;
	int n, channels, plane;
} tensors[] = {
	{"resnet18-cifar 64x32x32", 128, 64, 1024}, {"resnet18-cifar 128x16x16", 128, 128, 256},
	{"resnet18-cifar 256x8x8", 128, 256, 64},   {"resnet18-cifar 512x4x4", 128, 512, 16},
	{"resnet50 64x112x112", 16, 64, 12544},     {"resnet50 64x56x56", 16, 64, 3136},
	{"resnet50 256x56x56", 16, 256, 3136},      {"resnet50 512x28x28", 16, 512, 784},
	{"resnet50 1024x14x14", 16, 1024, 196},     {"resnet50 2048x7x7", 16, 2048, 49},
};

struct copy {
	char *to;
	const char *from;
	size_t part;
};

static void copy_range(void *arg, int64_t begin, int64_t end)
{
	const struct copy *c = arg;

	memcpy(c->to + (size_t)begin * c->part, c->from + (size_t)begin * c->part, (size_t)(end - begin) * c->part);
}

enum { FORWARD, FORWARD_JOIN, BACKWARD, BACKWARD_JOIN, COPY, N_KINDS };
/* Tensors moved: x and y; residual, too; x, dy and dx; the residual's gradient, too; from and to. */
static const int moved[N_KINDS] = {2, 3, 3, 4, 2};

static void run(struct ct_norm p, const struct copy *copy, int rows, int kind)
{
	void *mask = p.mask;
	const void *residual = p.residual;
	void *dresidual = p.dresidual;

	p.residual = NULL;
	p.mask = NULL;
	p.dresidual = NULL;
	switch (kind) {
	case FORWARD_JOIN:
		p.residual = residual;
		p.mask = mask;
		/* fall through */
	case FORWARD:
		ct__norm_forward(&p);
		break;
	case BACKWARD_JOIN:
		p.mask = mask;
		p.dresidual = dresidual;
		p.dx = (void *)(uintptr_t)p.x;
		/* fall through */
	case BACKWARD:
		ct__norm_backward(&p);
		break;
	default:
		ct_parallel_for(p.threads, rows, 1, copy_range, (void *)(uintptr_t)copy);
	}
}

static int measure(int t, int threads, int rounds, bool bf16)
{
	const int n = tensors[t].n, channels = tensors[t].channels;
	const size_t elems = (size_t)n * (size_t)channels * (size_t)tensors[t].plane, bytes = elems * (bf16 ? 2 : 4);
	float *scale = CT_NEW_ARRAY(float, 6 * (size_t)channels);
	void *x = ct_calloc_aligned(64, bytes), *y = ct_calloc_aligned(64, bytes), *r = ct_calloc_aligned(64, bytes);
	struct ct_norm p = {.n = n,
			    .channels = channels,
			    .plane = tensors[t].plane,
			    .bf16 = bf16,
			    .relu = true,
			    .eps = 1e-5f,
			    .threads = threads,
			    .x = x,
			    .residual = r,
			    .y = y,
			    .dy = y,
			    .dx = y,
			    .dresidual = y,
			    .partials = ct_calloc_aligned(64, ct__norm_scratch_bytes(n, channels)),
			    .mask = ct_calloc_aligned(64, ct__norm_mask_bytes(n, channels, tensors[t].plane))};
	struct copy copy = {y, x, bytes / (size_t)n};
	double best[N_KINDS] = {0};

	if (!scale || !x || !y || !r || !p.partials || !p.mask)
		return 1;
	/* Pages that were never written are all the same page. */
	memset(x, 0, bytes);
	memset(r, 0, bytes);
	p.gamma = scale;
	p.beta = scale + channels;
	p.mean = scale + 2 * channels;
	p.variance = scale + 3 * channels;
	p.dgamma = scale + 4 * channels;
	p.dbeta = scale + 5 * channels;
	for (int round = 0; round < rounds; round++) {
		for (int kind = 0; kind < N_KINDS; kind++) {
			int64_t start = ct_now_ns();

			run(p, &copy, n, kind);
			double rate = (double)moved[kind] * (double)bytes / (double)(ct_now_ns() - start);
			best[kind] = rate > best[kind] ? rate : best[kind];
		}
	}
	printf("%-25s %-4s %6.1f MB  forward %5.1f  with join %5.1f  backward %5.1f  with join %5.1f  memcpy %5.1f GB/s\n",
	       tensors[t].name, bf16 ? "bf16" : "fp32", (double)bytes * 1e-6, best[FORWARD], best[FORWARD_JOIN],
	       best[BACKWARD], best[BACKWARD_JOIN], best[COPY]);
	void *const all[] = {x, y, r, p.partials, p.mask};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		ct_free_aligned(all[i]);
	ct_free(scale);
	return 0;
}

int main(int argc, char **argv)
{
	const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1,
		  rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 10;
	const int isa = argc > 3 ? ct_isa_find(argv[3]) : CT_ISA_AUTO;

	if (isa < 0 || ct_cpu_set_limit((enum ct_isa)isa) < 0 || !ct__norm_usable(false) || threads < 1 || rounds < 1) {
		fputs("usage: norm_kernels [THREADS [ROUNDS [ISA]]], on a processor with AVX2\n", stderr);
		return 2;
	}
	for (size_t t = 0; t < sizeof(tensors) / sizeof(*tensors); t++) {
		if (measure((int)t, threads, rounds, false))
			return 1;
		if (ct__norm_usable(true) && measure((int)t, threads, rounds, true))
			return 1;
	}
	return 0;
}
