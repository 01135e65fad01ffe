/* Values are drawn in the logical layout and then imported, so they do not depend on the layouts of an engine. Each
 * parameter has its own stream of random numbers, which is identified by the hash of its name. Therefore its values
 * stay the same when other layers are added or removed, and a stage of a pipeline gets the values of the complete
 * model. Running statistics are stored in the logical layout in every engine, so they are written without an import. */
#include "nn/engine_impl.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

static void fill_constant(float *x, size_t n, float value)
{
	for (size_t i = 0; i < n; i++)
		x[i] = value;
}

static void fill_uniform(struct ct_rng *r, float *x, size_t n, float bound)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (2.0f * ct_rng_uniform(r) - 1.0f) * bound;
}

static void fill_normal(struct ct_rng *r, float *x, size_t n, float std)
{
	for (size_t i = 0; i < n; i++)
		x[i] = std * ct_rng_normal(r);
}

/* PYTORCH: reset_parameters of torch.nn.Linear and Conv2d uses kaiming_uniform(a = sqrt(5)), which is
 * U(+-1/sqrt(fan_in)). KAIMING: convolutions use fan_out (He et al. 2015), as in torchvision's ResNets, which keep
 * PyTorch's default for linear layers. */
static void fill(const struct ct_param *p, const struct ct_node *node, enum ct_init init, struct ct_rng *r, float *x)
{
	bool kaiming = init == CT_INIT_KAIMING && node->op == CT_OP_CONV2D;

	switch (p->kind) {
	case CT_PARAM_WEIGHT:
		if (kaiming)
			fill_normal(r, x, p->n, (float)sqrt(2.0 / p->fan_out));
		else
			fill_uniform(r, x, p->n, (float)(1.0 / sqrt((double)p->fan_in)));
		break;
	case CT_PARAM_BIAS:
		if (kaiming)
			fill_constant(x, p->n, 0.0f);
		else
			fill_uniform(r, x, p->n, (float)(1.0 / sqrt((double)p->fan_in)));
		break;
	case CT_PARAM_BN_WEIGHT:
		fill_constant(x, p->n, node->zero_gamma ? 0.0f : 1.0f);
		break;
	case CT_PARAM_RUNNING_VAR:
		fill_constant(x, p->n, 1.0f);
		break;
	case CT_PARAM_BN_BIAS:
	case CT_PARAM_RUNNING_MEAN:
		fill_constant(x, p->n, 0.0f);
		break;
	}
}

static enum ct_status init_params(ct_net *net, enum ct_init init, uint64_t seed, float *logical)
{
	const ct_graph *g = net->graph;
	enum ct_status st;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(net->params, CT_MIRROR_WRITE, net->engine->stream, &m));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);
		uint64_t key = ct_hash64(p->name, strlen(p->name));
		struct ct_rng r;

		ct_rng_init(&r, seed, CT_RNG_INIT, (uint32_t)key, (uint32_t)(key >> 32));
		fill(p, ct_graph_node(g, p->node), init, &r, logical);
		CT_TRY_GOTO(ct_net_import(net, &m, i, logical), st, fail);
	}
	return ct_mirror_close(&m);
fail:
	ct_mirror_drop(&m);
	return st;
}

static enum ct_status init_buffers(ct_net *net, enum ct_init init)
{
	const ct_graph *g = net->graph;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(net->buffers, CT_MIRROR_WRITE, net->engine->stream, &m));
	for (int i = 0; i < ct_graph_n_buffers(g); i++) {
		const struct ct_param *p = ct_graph_buffer(g, i);

		fill(p, ct_graph_node(g, p->node), init, NULL, (float *)m.data + net->buffer_offset[i]);
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
	CT_TRY_ALLOC(logical = CT_NEW_ARRAY(float, largest));
	enum ct_status st = init_params(net, init, seed, logical);
	ct_free(logical);
	CT_TRY(st);
	return init_buffers(net, init);
}
