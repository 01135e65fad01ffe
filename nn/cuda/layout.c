/* A parameter is [k][c][plane] in the logical layout and [kp][plane][cp] in the arena. pack sets the padding to zero,
 * and everything relies on it: kernels and cuDNN compute with the padded channels, too. A linear layer after an image
 * reads the image as it is stored, so the columns of its weights are permuted accordingly. If a convolution with groups
 * is computed without groups, each weight is moved to the input channels of its group, and the others are zero and stay
 * zero, because kernels/groups.cu clears their gradients. */
#include "nn/cuda/layout.h"

#include <string.h>

#include "nn/cuda/compile/op.h"

/* A parameter as [k][c][plane] in the logical layout and [kp][plane][cp] in the engine's. A linear layer has the plane
 * of its input. */
struct dims {
	size_t k, c, plane, kp, cp;
	size_t group_k; /* output channels of a group, if the groups are in a dense weight; else 0 */
};

static struct dims dims_of(const ct_net *net, int param)
{
	const struct ct_param *p = ct_graph_param(net->graph, param);
	const struct ct_node *node = ct_graph_node(net->graph, p->node);
	const enum ct_dtype t = cuda_type(net->opts.precision);
	const size_t k = (size_t)p->dims[0], kp = (size_t)cuda_pad(p->dims[0], t);

	if (p->kind != CT_PARAM_WEIGHT)
		return (struct dims){k, 1, 1, kp, 1, 0};
	if (node->op == CT_OP_LINEAR) {
		const struct ct_shape in = ct__cuda_stored_shape(net->graph, node->in[0]);

		return (struct dims){k, (size_t)in.c, (size_t)in.h * (size_t)in.w, kp, (size_t)cuda_pad(in.c, t), 0};
	}
	const size_t c = (size_t)p->dims[1], plane = (size_t)p->dims[2] * (size_t)p->dims[3];
	if (cuda_is_dense(net->graph, p->node, t))
		return (struct dims){
			k, c, plane, kp, (size_t)cuda_pad(p->dims[1] * node->groups, t), k / (size_t)node->groups};
	return (struct dims){k, c, plane, kp, node->groups > 1 ? c : (size_t)cuda_pad(p->dims[1], t), 0};
}

/* The element of the arena that has element (k, c, i) of the logical layout. */
static size_t element_at(const struct dims *d, size_t k, size_t c, size_t i)
{
	const size_t first = d->group_k ? k / d->group_k * d->c : 0;

	return (k * d->plane + i) * d->cp + first + c;
}

enum ct_status ct__cuda_count_elems(ct_net *net)
{
	for (int i = 0; i < ct_graph_n_params(net->graph); i++) {
		const struct dims d = dims_of(net, i);

		net->elems[i] = d.kp * d.plane * d.cp;
	}
	return CT_OK;
}

enum ct_status ct__cuda_pack(const ct_net *net, int param, const float *logical, float *slice)
{
	const struct dims d = dims_of(net, param);

	memset(slice, 0, d.kp * d.plane * d.cp * sizeof(*slice));
	for (size_t k = 0; k < d.k; k++)
		for (size_t c = 0; c < d.c; c++)
			for (size_t i = 0; i < d.plane; i++)
				slice[element_at(&d, k, c, i)] = logical[(k * d.c + c) * d.plane + i];
	return CT_OK;
}

enum ct_status ct__cuda_unpack(const ct_net *net, int param, const float *slice, float *logical)
{
	const struct dims d = dims_of(net, param);

	for (size_t k = 0; k < d.k; k++)
		for (size_t c = 0; c < d.c; c++)
			for (size_t i = 0; i < d.plane; i++)
				logical[(k * d.c + c) * d.plane + i] = slice[element_at(&d, k, c, i)];
	return CT_OK;
}
