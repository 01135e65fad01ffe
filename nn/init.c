/* Values are drawn in the logical layout and then imported, so they do not depend on the layouts of an engine. Each
 * parameter has its own stream of random numbers, which is identified by the hash of its name. Therefore its values
 * stay the same when other layers are added or removed, and a stage of a pipeline gets the values of the complete
 * model. The streams are counter-based: threads share the values of a parameter, and their number changes none of them.
 * Running statistics are stored in the logical layout in every engine, so they are written without an import. */
#include "nn/engine_impl.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/parallel.h"
#include "base/random/normal.h"

#define GRAIN 16384 /* values that justify a thread */

/* What a parameter is filled with. */
struct fill {
	float *x;
	float scale; /* of the random numbers, or the constant */
	enum { CONSTANT, UNIFORM, NORMAL } kind;
	struct ct_rng rng; /* at the beginning of its stream */
};

static void fill_range(void *arg, int64_t begin, int64_t end)
{
	const struct fill *f = arg;
	const int64_t n = end - begin;
	struct ct_rng r = f->rng;
	float *x = f->x + begin;

	switch (f->kind) {
	case CONSTANT:
		for (int64_t i = 0; i < n; i++)
			x[i] = f->scale;
		break;
	case UNIFORM:
		ct_rng_seek(&r, (uint64_t)begin);
		for (int64_t i = 0; i < n; i++)
			x[i] = (2.0f * ct_rng_uniform(&r) - 1.0f) * f->scale;
		break;
	case NORMAL:
		ct_rng_seek(&r, 2 * (uint64_t)begin);
		ct_rng_normals(&r, x, (size_t)n);
		for (int64_t i = 0; i < n; i++)
			x[i] *= f->scale;
		break;
	}
}

/* PYTORCH: reset_parameters of torch.nn.Linear and Conv2d uses kaiming_uniform(a = sqrt(5)), which is
 * U(+-1/sqrt(fan_in)). KAIMING: convolutions use fan_out (He et al. 2015), as in torchvision's ResNets, which keep
 * PyTorch's default for linear layers. */
static void choose(const struct ct_param *p, const struct ct_node *node, enum ct_init init, struct fill *f)
{
	bool kaiming = init == CT_INIT_KAIMING && node->op == CT_OP_CONV2D;

	f->kind = CONSTANT;
	f->scale = 0;
	switch (p->kind) {
	case CT_PARAM_WEIGHT:
	case CT_PARAM_BIAS:
		if (!kaiming) {
			f->kind = UNIFORM;
			f->scale = (float)(1.0 / sqrt((double)p->fan_in));
		} else if (p->kind == CT_PARAM_WEIGHT) {
			f->kind = NORMAL;
			f->scale = (float)sqrt(2.0 / p->fan_out);
		}
		break;
	case CT_PARAM_BN_WEIGHT:
		f->scale = node->zero_gamma ? 0.0f : 1.0f;
		break;
	case CT_PARAM_RUNNING_VAR:
		f->scale = 1;
		break;
	case CT_PARAM_BN_BIAS:
	case CT_PARAM_RUNNING_MEAN:
		break;
	}
}

static void fill(const ct_net *net, const struct ct_param *p, enum ct_init init, uint64_t seed, float *x)
{
	const uint64_t key = ct_hash64(p->name, strlen(p->name));
	struct fill f = {.x = x};

	choose(p, ct_graph_node(net->graph, p->node), init, &f);
	ct_rng_init(&f.rng, seed, CT_RNG_INIT, (uint32_t)key, (uint32_t)(key >> 32));
	ct_parallel_for(net->engine->threads, (int64_t)p->n, GRAIN, fill_range, &f);
}

static enum ct_status init_params(ct_net *net, enum ct_init init, uint64_t seed, float *logical)
{
	const ct_graph *g = net->graph;
	enum ct_status st;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(net->params, CT_MIRROR_WRITE, net->engine->stream, &m));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		fill(net, ct_graph_param(g, i), init, seed, logical);
		CT_TRY_GOTO(ct_net_import(net, &m, i, logical), st, fail);
	}
	return ct_mirror_close(&m);
fail:
	ct_mirror_drop(&m);
	return st;
}

static enum ct_status init_buffers(ct_net *net, enum ct_init init, uint64_t seed)
{
	const ct_graph *g = net->graph;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(net->buffers, CT_MIRROR_WRITE, net->engine->stream, &m));
	for (int i = 0; i < ct_graph_n_buffers(g); i++) {
		fill(net, ct_graph_buffer(g, i), init, seed, (float *)m.data + net->buffer_offset[i]);
	}
	return ct_mirror_close(&m);
}

enum ct_status ct_net_init(ct_net *net, enum ct_init init, uint64_t seed)
{
	const ct_graph *g = net->graph;
	size_t largest = 1;
	float *logical;

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		size_t n = ct_graph_param(g, i)->n;

		largest = n > largest ? n : largest;
	}
	CT_TRY_ALLOC(logical = ct_calloc_aligned(64, largest * sizeof(*logical)));
	enum ct_status st = init_params(net, init, seed, logical);
	ct_free_aligned(logical);
	CT_TRY(st);
	return init_buffers(net, init, seed);
}
