/* A stand-in library with a single function, for tests: c[i] = 2 a[i] + b[i]. The function declares what it reads and
 * writes, as the functions of the stand-ins for cuDNN and NCCL do. */
#ifndef CT_TESTS_SOFT_GPU_LIBRARY_H
#define CT_TESTS_SOFT_GPU_LIBRARY_H

#include "tests/soft_gpu/soft_gpu.h"

struct mix_args {
	int *c;
	const int *a, *b;
	int n;
	int *workspace; /* [n], written and then read; NULL: not used */
	int *not_ready; /* in host memory: number of times that the work reports cudaErrorNotReady; NULL: never */
};

static inline cudaError_t run_mix(void *p)
{
	const struct mix_args *m = p;

	if (m->not_ready && *m->not_ready > 0) {
		--*m->not_ready;
		return cudaErrorNotReady;
	}
	for (int i = 0; i < m->n; i++) {
		int twice = (int)(2u * (unsigned)m->a[i]); /* wraps */

		if (m->workspace) {
			m->workspace[i] = twice;
			twice = m->workspace[i];
		}
		m->c[i] = (int)((unsigned)twice + (unsigned)m->b[i]);
	}
	return cudaSuccess;
}

static inline cudaError_t library_mix(const struct mix_args *m, cudaStream_t s)
{
	size_t bytes = sizeof(int) * (size_t)m->n;
	struct soft_range ranges[] = {{m->c, bytes, true},
				      {m->a, bytes, false},
				      {m->b, bytes, false},
				      {m->workspace, m->workspace ? bytes : 0, true}};
	struct soft_work w = {.name = "library_mix",
			      .run = run_mix,
			      .args = m,
			      .args_bytes = sizeof(*m),
			      .ranges = ranges,
			      .n_ranges = 4};
	int e = soft_gpu_call("library_mix");

	return e ? (cudaError_t)e : soft_gpu_post(s, &w);
}

#endif
