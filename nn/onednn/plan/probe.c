/* The convolution has 1x1 kernels and enough channels to be limited by arithmetic, and its tensors fit in a
 * second-level cache. The fastest of many short repetitions counts, because whatever else runs on the machine only
 * makes them slower. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "nn/onednn/plan/onednn_plan.h"

enum { ROWS = 1, CHANNELS = 256, SIZE = 14, BUDGET_NS = 4000000 };

struct probe {
	ct_dnnl *dnnl;
	const ct_dnnl_prim *prim;
	ct_dnnl_call *call;
	void *memory[4];
};

static enum ct_status describe(struct probe *p, enum ct_dnnl_type type)
{
	const int image[4] = {ROWS, CHANNELS, SIZE, SIZE}, weights[4] = {CHANNELS, CHANNELS, 1, 1};
	struct ct_dnnl_spec spec = {.op = CT_DNNL_CONV_FORWARD, .stride = {1, 1}, .dilation = {1, 1}};

	if (type == CT_DNNL_BF16)
		CT_TRY(ct__dnnl_nhwc_of(p->dnnl, type, image, &spec.src));
	else
		CT_TRY(ct__dnnl_any_of(p->dnnl, type, 4, image, &spec.src));
	spec.dst = spec.src;
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, 4, weights, &spec.weights));
	return ct__dnnl_prim_get(p->dnnl, &spec, &p->prim);
}

static enum ct_status bind(struct probe *p)
{
	static const enum ct_dnnl_arg args[4] = {CT_DNNL_SRC, CT_DNNL_WEIGHTS, CT_DNNL_DST, CT_DNNL_SCRATCHPAD};
	struct ct_dnnl_bind binds[4];
	int n = 0;

	for (int i = 0; i < 4; i++) {
		const size_t bytes = ct__dnnl_prim_bytes(p->prim, args[i]);

		if (!bytes)
			continue;
		CT_TRY_ALLOC(p->memory[i] = ct_calloc_aligned(64, bytes));
		binds[n++] = (struct ct_dnnl_bind){args[i], p->memory[i]};
	}
	return ct__dnnl_call_create(p->dnnl, p->prim, binds, n, &p->call);
}

static enum ct_status measure(struct probe *p, double *rate)
{
	const double work = 2.0 * ROWS * SIZE * SIZE * CHANNELS * CHANNELS;
	const int64_t end = ct_now_ns() + BUDGET_NS;
	int64_t best = 0;

	do {
		const int64_t start = ct_now_ns();

		CT_TRY(ct__dnnl_call_run(p->dnnl, p->call));
		const int64_t ns = ct_now_ns() - start;
		best = best == 0 || ns < best ? ns : best;
	} while (ct_now_ns() < end);
	*rate = work / ((double)(best > 0 ? best : 1) * 1e-9);
	return CT_OK;
}

static enum ct_status probe_type(ct_dnnl *c, enum ct_dnnl_type type, double *rate)
{
	struct probe p = {.dnnl = c};
	enum ct_status st = describe(&p, type);

	*rate = 0;
	if (st == CT_OK && p.prim)
		st = bind(&p);
	if (st == CT_OK && p.prim)
		st = measure(&p, rate);
	ct__dnnl_call_destroy(p.call);
	for (int i = 0; i < 4; i++)
		ct_free_aligned(p.memory[i]);
	return st;
}

enum ct_status ct__onednn_probe(ct_dnnl *c, struct ct__conv_rates *out)
{
	ct_parallel_use_threads(1);
	CT_TRY(probe_type(c, CT_DNNL_F32, &out->fp32));
	return probe_type(c, CT_DNNL_BF16, &out->bf16);
}
