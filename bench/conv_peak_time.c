#include "bench/conv_peak.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "bench/fma_peak.h"
#include "nn/onednn/winograd/winograd.h"

const char *conv_peak_pass_name(int pass)
{
	static const char *const names[N_PASSES] = {"forward", "backward_data", "backward_weights"};

	return names[pass];
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of the best run, after one that warms up. */
static enum ct_status best_of(struct bench *b, enum ct_status (*run)(void *), void *arg, double *best)
{
	const int64_t enough = ct_now_ns() + b->rounds * 20 * CT_MS, begin = ct_now_ns();
	const double cpu = cpu_seconds();

	for (int64_t i = -1; i < b->rounds || ct_now_ns() < enough; i++) {
		int64_t start = ct_now_ns();

		CT_TRY(run(arg));
		double s = (double)(ct_now_ns() - start) * 1e-9;
		if (i >= 0 && (i == 0 || s < *best))
			*best = s;
	}
	b->wall += (double)(ct_now_ns() - begin) * 1e-9;
	b->cpu += cpu_seconds() - cpu;
	return CT_OK;
}

/* Values that keep the multipliers busy as real ones do. */
static void *filled(size_t bytes, bool bf16)
{
	void *p = ct_calloc_aligned(64, bytes);

	for (size_t i = 0; p && !bf16 && i < bytes / sizeof(float); i++)
		((float *)p)[i] = (float)(i % 13) * 0.01f - 0.06f;
	for (size_t i = 0; p && bf16 && i < bytes / 2; i++)
		((uint16_t *)p)[i] = (uint16_t)((i % 2 ? 0x3c00 : 0xbc00) + i % 13 * 8);
	return p;
}

struct direct {
	ct_dnnl *dnnl;
	ct_dnnl_call *call;
};

static enum ct_status run_direct(void *arg)
{
	const struct direct *d = arg;

	return ct__dnnl_call_run(d->dnnl, d->call);
}

static enum ct_status time_prim(struct bench *b, const ct_dnnl_prim *prim, double *s)
{
	struct ct_dnnl_bind binds[CT_DNNL_N_ARGS];
	struct direct d = {.dnnl = b->dnnl};
	const ct_dnnl_desc *desc;
	int n = 0;
	enum ct_status st = CT_OK;

	for (int arg = 0; arg < CT_DNNL_N_ARGS && st == CT_OK; arg++) {
		const size_t bytes = ct__dnnl_prim_bytes(prim, (enum ct_dnnl_arg)arg);

		if (bytes == 0)
			continue;
		st = ct__dnnl_prim_desc(b->dnnl, prim, (enum ct_dnnl_arg)arg, &desc);
		binds[n].arg = (enum ct_dnnl_arg)arg;
		binds[n].ptr = filled(bytes, st == CT_OK && ct__dnnl_desc_type(desc) == CT_DNNL_BF16);
		st = st == CT_OK && !binds[n++].ptr ? CT_NOMEM : st;
	}
	if (st == CT_OK)
		st = ct__dnnl_call_create(b->dnnl, prim, binds, n, &d.call);
	if (st == CT_OK)
		st = best_of(b, run_direct, &d, s);
	ct__dnnl_call_destroy(d.call);
	while (n-- > 0)
		ct_free_aligned(binds[n].ptr);
	return st;
}

static enum ct_status direct_spec(struct bench *b, const struct layer *l, int pass, struct ct_dnnl_spec *s)
{
	const enum ct_dnnl_type type = b->bf16 ? CT_DNNL_BF16 : CT_DNNL_F32;
	const enum ct_dnnl_type weights = pass == BACKWARD_WEIGHTS ? CT_DNNL_F32 : type;
	const int g = l->groups, k = l->out.c, c = l->in.c, n = (int)b->batch;
	const int x[4] = {n, c, l->in.h, l->in.w}, y[4] = {n, k, l->out.h, l->out.w};
	const int grouped[5] = {g, k / g, c / g, l->win.r, l->win.s}, dense[4] = {k, c, l->win.r, l->win.s};

	*s = (struct ct_dnnl_spec){.op = CT_DNNL_CONV_FORWARD + pass,
				   .stride = {l->win.stride_h, l->win.stride_w},
				   .pad = {l->win.pad_h, l->win.pad_w},
				   .dilation = {l->win.dilation_h, l->win.dilation_w}};
	CT_TRY(ct__dnnl_any_of(b->dnnl, type, 4, x, &s->src));
	CT_TRY(ct__dnnl_any_of(b->dnnl, weights, g > 1 ? 5 : 4, g > 1 ? grouped : dense, &s->weights));
	if (l->bias && pass != BACKWARD_DATA)
		CT_TRY(ct__dnnl_plain(b->dnnl, 1, &k, &s->bias));
	return ct__dnnl_any_of(b->dnnl, type, 4, y, &s->dst);
}

static enum ct_status measure_direct(struct bench *b, struct layer *l, int pass)
{
	struct ct_dnnl_spec forward, spec;
	const ct_dnnl_prim *hint, *prim;

	CT_TRY(direct_spec(b, l, FORWARD, &forward));
	CT_TRY(ct__dnnl_prim_get(b->dnnl, &forward, &hint));
	CT_TRY(direct_spec(b, l, pass, &spec));
	spec.forward = pass == FORWARD ? NULL : hint;
	CT_TRY(ct__dnnl_prim_get(b->dnnl, &spec, &prim));
	if (!hint || !prim)
		return CT_FAIL(CT_UNSUPPORTED, "oneDNN has no %s of %s", conv_peak_pass_name(pass), l->name);
	snprintf(l->passes[pass].impl, sizeof(l->passes[pass].impl), "%s", ct__dnnl_prim_impl(prim));
	return time_prim(b, prim, &l->passes[pass].s[DIRECT]);
}

static bool winograd_shape(const struct bench *b, const struct layer *l, struct ct_winograd_shape *s)
{
	const struct ct_window *w = &l->win;

	*s = (struct ct_winograd_shape){.n = (int)b->batch,
					.c = l->in.c,
					.k = l->out.c,
					.h = l->in.h,
					.w = l->in.w,
					.pad_h = w->pad_h,
					.pad_w = w->pad_w,
					.taps = w->r,
					.bf16 = b->bf16};
	return l->groups == 1 && w->r == w->s && w->stride_h == 1 && w->stride_w == 1 && w->dilation_h == 1 &&
	       w->dilation_w == 1 && ct__winograd_usable(s);
}

struct winograd {
	struct ct_winograd op;
	int pass;
};

static enum ct_status run_winograd(void *arg)
{
	const struct winograd *w = arg;

	if (w->pass == FORWARD)
		ct__winograd_forward(&w->op);
	else if (w->pass == BACKWARD_DATA)
		ct__winograd_backward_data(&w->op);
	else
		ct__winograd_backward_weights(&w->op);
	return CT_OK;
}

static enum ct_status measure_winograd(struct bench *b, struct layer *l, int pass)
{
	struct winograd w = {.pass = pass};

	if (!winograd_shape(b, l, &w.op.shape))
		return CT_OK;
	static const enum ct_conv_pass passes[N_PASSES] = {CT_CONV_FORWARD, CT_CONV_BACKWARD_DATA,
							   CT_CONV_BACKWARD_WEIGHTS};
	const size_t element = b->bf16 ? 2 : sizeof(float), in = (size_t)b->batch * (size_t)l->in.c * (size_t)l->in.h,
		     out = (size_t)b->batch * (size_t)l->out.c * (size_t)l->out.h,
		     weights = (size_t)l->in.c * (size_t)l->out.c * (size_t)(l->win.r * l->win.s);
	void *x = filled(in * (size_t)l->in.w * element, b->bf16),
	     *y = filled(out * (size_t)l->out.w * element, b->bf16);
	void *scratch = ct_calloc_aligned(64, ct__winograd_scratch_bytes(&w.op.shape, passes[pass], (int)b->threads));
	float *filter = filled(weights * sizeof(float), false), *bias = filled((size_t)l->out.c * sizeof(float), false);
	enum ct_status st = x && y && scratch && filter && bias ? CT_OK : CT_NOMEM;

	w.op.threads = (int)b->threads;
	w.op.scratch = scratch;
	w.op.weights = w.op.dw = filter;
	w.op.bias = l->bias ? bias : NULL;
	w.op.db = l->bias ? bias : NULL;
	w.op.x = w.op.dx = x;
	w.op.y = y;
	w.op.dy = y;
	if (st == CT_OK)
		st = best_of(b, run_winograd, &w, &l->passes[pass].s[WINOGRAD]);
	void *const all[] = {x, y, scratch, filter, bias};
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++)
		ct_free_aligned(all[i]);
	return st;
}

static enum ct_status measure_layers(struct bench *b)
{
	for (struct layer *l = b->layers; l < b->layers + b->n_layers; l++) {
		const double element = b->bf16 ? 2 : 4, n = (double)b->batch;
		const double in = n * l->in.c * l->in.h * l->in.w, out = n * l->out.c * l->out.h * l->out.w,
			     weights = (double)l->in.c / l->groups * l->out.c * l->win.r * l->win.s;

		for (int pass = 0; pass < N_PASSES; pass++) {
			if (pass == BACKWARD_DATA && !l->needs_data)
				continue;
			l->passes[pass].bytes =
				(in + out) * element + weights * (pass == BACKWARD_WEIGHTS ? 4 : element);
			CT_TRY(measure_direct(b, l, pass));
			CT_TRY(measure_winograd(b, l, pass));
		}
	}
	return CT_OK;
}

/* Before and after the layers; the better counts, as other programs and the clock come and go. */
static void measure_peaks(struct bench *b)
{
	int n = 0;

	for (int64_t threads = 1;; threads = 2 * threads < b->threads ? 2 * threads : b->threads) {
		struct peak *p = &b->peaks[n++];

		p->threads = (int)threads;
		ct_parallel_use_threads((int)threads);
		const double fp32 = fma_peak((int)threads, false), bf16 = fma_peak((int)threads, true);
		p->fp32 = fp32 > p->fp32 ? fp32 : p->fp32;
		p->bf16 = bf16 > p->bf16 ? bf16 : p->bf16;
		if (threads == b->threads)
			break;
	}
	b->n_peaks = n;
}

struct copy {
	char *to;
	const char *from;
	int threads;
};

enum { PART = 1 << 16, PARTS = 1 << 10 };

static void copy_range(void *arg, int64_t begin, int64_t end)
{
	const struct copy *c = arg;

	memcpy(c->to + (size_t)begin * PART, c->from + (size_t)begin * PART, (size_t)(end - begin) * PART);
}

static enum ct_status run_copy(void *arg)
{
	const struct copy *c = arg;

	ct_parallel_for(c->threads, PARTS, 1, copy_range, arg);
	return CT_OK;
}

/* Bytes read and written by memcpy */
static enum ct_status measure_memory(struct bench *b)
{
	const size_t bytes = (size_t)PART * PARTS;
	char *to = ct_calloc_aligned(64, bytes), *from = filled(bytes, false);
	struct copy copy = {.to = to, .from = from, .threads = (int)b->threads};
	double s = 0;
	enum ct_status st = to && from ? best_of(b, run_copy, &copy, &s) : CT_NOMEM;

	b->memory = st == CT_OK ? 2 * (double)bytes / s : 0;
	ct_free_aligned(to);
	ct_free_aligned(from);
	return st;
}

enum ct_status conv_peak_measure(struct bench *b)
{
	measure_peaks(b);
	CT_TRY(measure_memory(b));
	CT_TRY(measure_layers(b));
	measure_peaks(b);
	return CT_OK;
}
