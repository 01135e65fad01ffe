#include "base/parallel.h"
#include "nn/onednn/kernels/lanes.h"
#include "nn/onednn/kernels/select.h"

struct rows {
	size_t vectors;
	bool bf16;
	const void *x;
	const float *factor;
	void *y;
};

static void scale_range(void *arg, int64_t begin, int64_t end)
{
	const struct rows *r = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		for (size_t j = (size_t)i * r->vectors; j < (size_t)(i + 1) * r->vectors; j++)
			ct_vec_store(r->y, j, ct_vec_load(r->x, j, r->bf16) * r->factor[i], r->bf16);
	}
}

void CT_WITH_LANES(ct__norm_scale_rows)(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor,
					void *y)
{
	struct rows r = {elems / CT_LANES, bf16, x, factor, y};

	ct_parallel_for(threads, n, 1, scale_range, &r);
}
