/* Which nodes are computed together at level 1.
 *
 *     training     norm [+ sum] [+ ReLU]    layer + ReLU            sum + ReLU
 *     evaluation   norm [+ sum] [+ ReLU]    layer [+ norm] [+ sum] [+ ReLU]    sum + ReLU
 *
 * A node joins a group only if it is the only user of the value before it. In evaluation, the norm after a layer is
 * folded into the weights of the layer (kernels/fold.cu). */
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/compile/op.h"

static bool shares_value(const struct cuda_program *p, const struct ct_node *node)
{
	const enum cuda_place place = ct__cuda_op(node->op)->place;

	return place == CUDA_INPUT_VALUE || (!cuda_is_training(p) && place == CUDA_INPUT_IN_EVAL);
}

static void describe_value(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	struct cuda_value *v = &p->values[id];

	*v = (struct cuda_value){.root = id, .user = CUDA_NONE, .buffer = CUDA_NONE};
	v->needs_gradient = ct_graph_trains(p->base.graph, id) || (id == 0 && p->base.net->opts.input_gradient) ||
			    (node->in[0] >= 0 && p->values[node->in[0]].needs_gradient) ||
			    (node->in[1] >= 0 && p->values[node->in[1]].needs_gradient);
	v->gradient = (struct cuda_gradient){.buffer = CUDA_NONE, .second = CUDA_NONE};
	if (shares_value(p, node)) {
		v->root = p->values[node->in[0]].root;
		return;
	}
	v->shape = ct__cuda_stored_shape(p->base.graph, id);
	v->cp = cuda_pad(v->shape.c, p->type);
	for (int i = 0; i < 2 && node->in[i] >= 0; i++) {
		struct cuda_value *in = ct__cuda_value(p, node->in[i]);

		in->users++;
		in->user = id;
	}
}

/* Returns the group that computes the value of `node` if it can be extended by the only user of this value. */
static struct cuda_group *open_group(const struct cuda_program *p, int node)
{
	const struct cuda_value *v = ct__cuda_value(p, node);
	struct cuda_group *g = &p->groups[v->root];
	const bool known = g->layer != CUDA_NONE || g->norm != CUDA_NONE || g->add != CUDA_NONE;

	return cuda_level(p) > 0 && v->users == 1 && known ? g : NULL;
}

/* Ends the group `from` in node `last`. */
static void extend(struct cuda_program *p, const struct cuda_group *from, int last)
{
	struct cuda_group g = *from;
	const int members[] = {g.layer, g.norm, g.add};

	g.last = last;
	p->groups[last] = g;
	for (size_t i = 0; i < CT_ARRAY_LEN(members); i++) {
		if (members[i] != CUDA_NONE)
			p->groups[members[i]].last = last;
	}
}

void ct__cuda_join_layer(struct cuda_program *p, int id)
{
	p->groups[id].layer = id;
}

void ct__cuda_join_norm(struct cuda_program *p, int id)
{
	const struct cuda_group *from = cuda_is_training(p) ? NULL : open_group(p, cuda_node(p, id)->in[0]);

	if (from && from->layer != CUDA_NONE && from->norm == CUDA_NONE && from->relu == CUDA_NONE)
		extend(p, from, id);
	p->groups[id].norm = id;
}

/* Whether a sum can end the group: a norm or, in evaluation, a layer. */
static bool takes_sum(const struct cuda_program *p, const struct cuda_group *g)
{
	return g && g->add == CUDA_NONE && g->relu == CUDA_NONE &&
	       (cuda_is_training(p) ? g->layer == CUDA_NONE : g->layer != CUDA_NONE || g->norm != CUDA_NONE);
}

/* If both addends are possible, the later one is computed with the sum, when the other one exists. */
void ct__cuda_join_add(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_group *from = NULL;
	int residual = CUDA_NONE;

	for (int i = 0; i < 2; i++) {
		const struct cuda_group *g = open_group(p, node->in[i]);

		if (!takes_sum(p, g) || (from && from->last > g->last))
			continue;
		from = g;
		residual = p->values[node->in[1 - i]].root;
	}
	if (from)
		extend(p, from, id);
	p->groups[id].add = id;
	p->groups[id].residual = residual;
}

void ct__cuda_join_relu(struct cuda_program *p, int id)
{
	const struct cuda_group *from = open_group(p, cuda_node(p, id)->in[0]);

	if (from && from->relu == CUDA_NONE)
		extend(p, from, id);
	p->groups[id].relu = id;
}

void ct__cuda_fuse(struct cuda_program *p)
{
	const int n = ct_graph_n_nodes(p->base.graph);

	for (int id = 0; id < n; id++) {
		describe_value(p, id);
		p->groups[id] = (struct cuda_group){.last = id,
						    .layer = CUDA_NONE,
						    .norm = CUDA_NONE,
						    .add = CUDA_NONE,
						    .relu = CUDA_NONE,
						    .residual = CUDA_NONE};
	}
	for (int id = 0; id < n; id++) {
		const struct cuda_op *op = ct__cuda_op(cuda_node(p, id)->op);

		if (op->join)
			op->join(p, id);
	}
}
