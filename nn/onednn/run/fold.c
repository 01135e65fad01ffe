/* Folded weights are valid if they exist and the generations of the parameters and of the running statistics are those
 * from which they were computed. The check comes first and stores the new generations before the weights are computed.
 * If the pass then fails, the program is no longer the one that ran last, and binding marks its folded weights as
 * lost. */
#include "nn/onednn/run/run_impl.h"

#include <math.h>

#include "base/parallel.h"

static void check(struct onednn_program *p, const struct onednn_task *t)
{
	const ct_net *net = p->base.net;
	struct onednn_folding *f = &p->values[t->node].fold;
	const uint64_t params = ct_arena_generation(net->params), buffers = ct_arena_generation(net->buffers);

	f->stale = !f->made || f->params != params || f->buffers != buffers;
	f->made = true;
	f->params = params;
	f->buffers = buffers;
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
