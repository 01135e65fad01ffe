/* Where values and gradients are stored. The value of an element-wise operation is written over its input if this is
 * the only user, if the backward pass of the group that computes the input does not read it, and if both have the same
 * size. The gradient of a value is the buffer of its first part. If the tasks of the value's group can read two parts,
 * the second one is kept, and further ones are added to it; otherwise each is added by a kernel. A buffer that is also
 * the gradient of another value (both addends of a sum have the same) is never written in place. At level 0, every
 * result of a node has its own memory. */
#include "nn/cuda/compile/compile.h"

struct cuda_value *ct__cuda_value(const struct cuda_program *p, int node)
{
	return &p->values[p->values[node].root];
}

size_t ct__cuda_value_rows(const struct cuda_program *p, const struct cuda_value *v)
{
	return (size_t)p->base.n * (size_t)v->shape.h * (size_t)v->shape.w;
}

size_t ct__cuda_value_elems(const struct cuda_program *p, const struct cuda_value *v)
{
	return ct__cuda_value_rows(p, v) * (size_t)v->cp;
}

static size_t value_bytes(const struct cuda_program *p, const struct cuda_value *v)
{
	return ct__cuda_value_elems(p, v) * ct_dtype_bytes(p->type);
}

enum ct_status ct__cuda_partial_sums(struct cuda_program *p, const struct cuda_value *v, int *buffer)
{
	const size_t blocks = (size_t)ct__k_sum_blocks(ct__cuda_value_rows(p, v), v->cp, p->type);

	return ct__cuda_buffer(p, blocks * 2 * (size_t)v->cp * sizeof(double), buffer);
}

float *ct__cuda_param(const struct cuda_program *p, int param)
{
	const ct_net *net = p->base.net;

	return ct_arena_at(net->params, net->slices[net->slice_of[param]].offset);
}

enum ct_status ct__cuda_new_value(struct cuda_program *p, int node)
{
	struct cuda_value *v = &p->values[node];

	return ct__cuda_buffer(p, value_bytes(p, v), &v->buffer);
}

/* Whether the backward pass of the group that computes v reads v: the mask of a ReLU. A norm stores the mask or
 * computes it again. */
static bool backward_reads(const struct cuda_program *p, const struct cuda_value *v)
{
	const struct cuda_group *g = cuda_group(p, v->root);

	return cuda_is_training(p) && g->relu != CUDA_NONE && g->norm == CUDA_NONE;
}

enum ct_status ct__cuda_own_value(struct cuda_program *p, int node, int in)
{
	struct cuda_value *from = ct__cuda_value(p, in), *v = &p->values[node];

	if (cuda_level(p) == 0 || from->users > 1 || backward_reads(p, from) ||
	    value_bytes(p, from) != value_bytes(p, v))
		return ct__cuda_new_value(p, node);
	v->buffer = from->buffer;
	from->overwritten = true;
	return CT_OK;
}

bool ct__cuda_needs_gradient(const struct cuda_program *p, int node)
{
	return p->values[node].needs_gradient;
}

enum ct_status ct__cuda_new_gradient(struct cuda_program *p, int node, int *buffer)
{
	return ct__cuda_buffer(p, value_bytes(p, ct__cuda_value(p, node)), buffer);
}

enum ct_status ct__cuda_own_gradient(struct cuda_program *p, struct cuda_value *v, int *buffer)
{
	struct cuda_gradient *g = &v->gradient;

	if (cuda_level(p) == 0 || (g->shared && (g->second == CUDA_NONE || g->second_shared)))
		return ct__cuda_new_gradient(p, v->root, buffer);
	*buffer = g->shared ? g->second : g->buffer;
	g->gone = true;
	return CT_OK;
}

/* Whether the tasks of the group read two gradients. All of its kernels do, but convolutions do not. */
static bool reads_two(const struct cuda_program *p, const struct cuda_value *v)
{
	const struct cuda_group *g = cuda_group(p, v->root);

	return cuda_level(p) > 0 && (g->norm != CUDA_NONE || g->relu != CUDA_NONE);
}

/* Adds a part to a gradient. The sum is written over one of the two, or to a new buffer if both are shared. */
static enum ct_status add_part(struct cuda_program *p, int user, int node, int part, bool part_shared, int *gradient,
			       bool *shared)
{
	struct cuda_task *t;
	int sum = *shared ? part : *gradient;

	if (*shared && part_shared)
		CT_TRY(ct__cuda_new_gradient(p, node, &sum));
	CT_TRY(ct__cuda_task(p, user, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){
		.op = CT__K_ADD, .n = ct__cuda_value_elems(p, ct__cuda_value(p, node)), .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, *gradient));
	CT_TRY(ct__cuda_refer(p, &t->map.b, part));
	*gradient = sum;
	*shared = false;
	return ct__cuda_refer(p, &t->map.y, sum);
}

enum ct_status ct__cuda_give_gradient(struct cuda_program *p, int user, int node, int buffer, bool shared)
{
	struct cuda_value *v = ct__cuda_value(p, node);
	struct cuda_gradient *g = &v->gradient;

	if (!ct__cuda_needs_gradient(p, node))
		return CT_OK;
	if (g->buffer == CUDA_NONE) {
		g->buffer = buffer;
		g->shared = shared;
		return CT_OK;
	}
	if (!reads_two(p, v))
		return add_part(p, user, node, buffer, shared, &g->buffer, &g->shared);
	if (g->second != CUDA_NONE)
		return add_part(p, user, node, buffer, shared, &g->second, &g->second_shared);
	g->second = buffer;
	g->second_shared = shared;
	return CT_OK;
}
