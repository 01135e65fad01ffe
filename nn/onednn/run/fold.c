#include "nn/onednn/run/run_impl.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"

#define CHUNKS 16

struct chunks {
	const float *x;
	size_t n;
	uint64_t hash[CHUNKS];
};

/* Four independent chains hide the latency of the multiplications. */
static uint64_t hash_range(const float *x, size_t n)
{
	uint64_t h[4] = {1, 2, 3, 4}, w[4];
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		memcpy(w, x + i, sizeof(w));
		for (int k = 0; k < 4; k++)
			h[k] = (h[k] ^ w[k]) * 0x9e3779b97f4a7c15u + (h[k] >> 29);
	}
	for (; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, x + i, sizeof(bits));
		h[0] = (h[0] ^ bits) * 0x9e3779b97f4a7c15u + (h[0] >> 29);
	}
	for (int k = 1; k < 4; k++)
		h[0] = (h[0] ^ h[k]) * 0x9e3779b97f4a7c15u + (h[0] >> 29);
	return h[0];
}

static void hash_chunks(void *arg, int64_t begin, int64_t end)
{
	struct chunks *c = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		const size_t from = c->n * (size_t)i / CHUNKS, to = c->n * (size_t)(i + 1) / CHUNKS;
		c->hash[i] = hash_range(c->x + from, to - from);
	}
}

static uint64_t hash_of(const float *x, size_t n, int threads)
{
	struct chunks c = {.x = x, .n = x ? n : 0};

	ct_parallel_for(threads, CHUNKS, 1, hash_chunks, &c);
	return hash_range((const float *)(const void *)c.hash, CHUNKS * sizeof(uint64_t) / sizeof(float));
}

static void check(struct onednn_program *p, const struct onednn_task *t)
{
	const ct_net *net = p->base.net;
	const struct ct_node *conv = ct__onednn_node(p, t->node);
	struct onednn_value *v = &p->values[t->node];
	uint64_t hash = hash_of(t->ptr[ONEDNN_FOLD_WEIGHTS], net->elems[conv->weight], net->engine->threads);

	for (int i = ONEDNN_FOLD_BIAS; i <= ONEDNN_FOLD_VARIANCE; i++)
		hash = hash * 0x9e3779b97f4a7c15u ^ hash_range(t->ptr[i], t->ptr[i] ? (size_t)conv->shape.c : 0);
	v->fold.stale = !v->fold.made || hash != v->fold.hash;
	v->fold.made = true;
	v->fold.hash = hash;
}

struct fold {
	const struct onednn_task *t;
	float eps;
	size_t row;
};

static void fold_rows(void *arg, int64_t begin, int64_t end)
{
	const struct fold *f = arg;
	float *const *at = f->t->ptr;

	for (int k = (int)begin; k < (int)end; k++) {
		const float scale = at[ONEDNN_FOLD_GAMMA][k] / sqrtf(at[ONEDNN_FOLD_VARIANCE][k] + f->eps);
		const float *w = at[ONEDNN_FOLD_WEIGHTS] + (size_t)k * f->row;
		float *out = at[ONEDNN_FOLD_WEIGHTS_OUT] + (size_t)k * f->row;
		for (size_t i = 0; i < f->row; i++)
			out[i] = w[i] * scale;
		at[ONEDNN_FOLD_BIAS_OUT][k] =
			at[ONEDNN_FOLD_BETA][k] +
			((at[ONEDNN_FOLD_BIAS] ? at[ONEDNN_FOLD_BIAS][k] : 0.0f) - at[ONEDNN_FOLD_MEAN][k]) * scale;
	}
}

void ct__onednn_run_fold(struct onednn_program *p, const struct onednn_task *t)
{
	const int k = ct__onednn_node(p, t->node)->shape.c;
	struct fold f = {.t = t, .eps = ct__onednn_node(p, p->values[t->node].fold.norm)->eps, .row = t->n / (size_t)k};

	if (t->kind == ONEDNN_FOLD_CHECK)
		check(p, t);
	else
		ct_parallel_for(p->base.net->engine->threads, k, 1, fold_rows, &f);
}
