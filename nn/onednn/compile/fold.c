/* First, the graph alone shows which norms and sums follow a convolution. When the convolution is lowered and layouts
 * are known, the best primitive decides whether the norm, the sum and the ReLU become part of it. The sum is computed
 * in place: the residual must have been computed before, and all its other users must have read it, because it is lost.
 *
 * Folded weights are buffers that are live during the entire program, so that the next batch can use them again. A
 * check task comes before the tasks that compute them, which run only if it finds the weights stale (run/fold.c). All
 * tasks that are appended between the check and the end of the folding must have when_stale set. */
#include "nn/onednn/compile/fold.h"

#include "nn/onednn/compile/emit.h"

/* Dropout and drop path change nothing in evaluation. */
static bool is_nothing(const struct onednn_program *p, int id)
{
	const enum ct_op op = ct__onednn_node(p, id)->op;

	return op == CT_OP_DROPOUT || op == CT_OP_DROP_PATH;
}

static int user_of(const struct onednn_program *p, int id)
{
	int user = p->values[id].fusion.user;

	while (user >= 0 && is_nothing(p, user))
		user = p->values[user].fusion.user;
	return user;
}

static int source_of(const struct onednn_program *p, int id)
{
	while (is_nothing(p, id))
		id = ct__onednn_node(p, id)->in[0];
	return id;
}

/* Returns whether the convolution `conv` may add its result to the value `other` in place. The value must exist by
 * then, and all its other users must have read it. Flattened values are excluded: they share memory with an image, and
 * this function does not see the users of the image. */
static bool may_overwrite(const struct onednn_program *p, int other, int add, int conv)
{
	if (other >= conv || other == 0 || ct__onednn_node(p, other)->op == CT_OP_FLATTEN)
		return false;
	for (int id = other + 1; id < ct_graph_n_nodes(p->base.graph); id++) {
		const struct ct_node *n = ct__onednn_node(p, id);

		for (int i = 0; i < 2; i++) {
			if (n->in[i] < 0 || id == add || is_nothing(p, id) || source_of(p, n->in[i]) != other)
				continue;
			if (id >= conv || n->op == CT_OP_FLATTEN)
				return false;
		}
	}
	return true;
}

static void plan_sum(struct onednn_program *p, int conv, int norm)
{
	const int add = user_of(p, norm);

	if (add < 0 || ct__onednn_node(p, add)->op != CT_OP_ADD)
		return;
	const struct ct_node *node = ct__onednn_node(p, add);
	const int a = source_of(p, node->in[0]), b = source_of(p, node->in[1]), other = a == norm ? b : a;
	if (a == b || !may_overwrite(p, other, add, conv))
		return;
	p->values[conv].fold.sum = add;
	p->values[conv].fold.residual = other;
}

void ct__onednn_plan_folding(struct onednn_program *p)
{
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph) && p->base.mode == CT_EVAL; id++) {
		struct onednn_value *v = &p->values[id];

		if (ct__onednn_node(p, id)->op != CT_OP_CONV2D || v->fusion.user < 0 ||
		    ct__onednn_node(p, v->fusion.user)->op != CT_OP_BATCH_NORM)
			continue;
		v->fold.norm = v->fusion.user;
		plan_sum(p, id, v->fusion.user);
	}
}

void ct__onednn_absorb(struct onednn_program *p, int conv)
{
	struct onednn_value *v = &p->values[conv];
	const int last = v->fold.sum >= 0 ? v->fold.sum : v->fold.norm;

	v->fusion.relu = p->values[last].fusion.relu;
	v->fold.last = last;
	p->values[v->fold.norm].fold.absorbed = true;
	p->values[last].fold.absorbed = true;
}

static const ct_dnnl_desc *residual_desc(const struct onednn_program *p, int conv)
{
	return p->values[p->values[p->values[conv].fold.residual].layout.root].layout.desc;
}

/* The result of a linear layer has two dimensions; a convolution cannot write to it. */
static bool residual_is_image(const struct onednn_program *p, int conv)
{
	return ct__dnnl_desc_ndims(residual_desc(p, conv)) == 4;
}

enum ct_status ct__onednn_choose_folded(struct onednn_program *p, int conv, const struct ct_dnnl_spec *wanted,
					const ct_dnnl_desc *any_src, const ct_dnnl_desc *any_weights,
					const ct_dnnl_prim **best)
{
	struct onednn_value *v = &p->values[conv];
	const ct_dnnl_prim *prim;
	const ct_dnnl_desc *bias;
	bool with_sum = false;

	*best = NULL;
	if (v->fold.sum >= 0 && !residual_is_image(p, conv))
		v->fold.sum = -1;
	CT_TRY(ct__dnnl_plain(p->dnnl, 1, &ct__onednn_node(p, conv)->shape.c, &bias));
	for (int i = v->fold.sum >= 0 ? 0 : 2; i < 4; i++) {
		struct ct_dnnl_spec spec = *wanted;

		spec.weights = any_weights;
		spec.bias = bias;
		spec.sum = i < 2;
		spec.relu = p->values[spec.sum ? v->fold.sum : v->fold.norm].fusion.relu >= 0;
		if (spec.sum)
			spec.dst = residual_desc(p, conv);
		if (i % 2)
			spec.src = any_src;
		CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, &prim));
		if (!prim || (*best && ct__dnnl_prim_rank(prim) <= ct__dnnl_prim_rank(*best)))
			continue;
		*best = prim;
		with_sum = spec.sum;
	}
	v->fold.sum = with_sum ? v->fold.sum : -1;
	if (*best)
		ct__onednn_absorb(p, conv);
	else
		v->fold.norm = -1;
	return CT_OK;
}

/* The sum is written to the memory of the residual. */
static void take_residual(struct onednn_program *p, int conv)
{
	struct onednn_value *from = &p->values[p->values[p->values[conv].fold.residual].layout.root];
	struct onednn_value *to = &p->values[ct__onednn_owner(p, conv)];

	to->layout.buffer = from->layout.buffer;
	from->layout.overwritten = true;
}

enum ct_status ct__onednn_own_folded(struct onednn_program *p, int conv, const ct_dnnl_desc *desc)
{
	CT_TRY(ct__onednn_own_result(p, conv, desc));
	if (p->values[conv].fold.sum >= 0)
		take_residual(p, conv);
	return CT_OK;
}

static void keep(struct onednn_program *p, int buffer)
{
	p->buffers[buffer].first = 0;
	p->buffers[buffer].last = INT32_MAX - 1;
}

static void source_args(struct onednn_program *p, struct onednn_task *t, struct onednn_ref weights)
{
	const struct ct_node *conv = ct__onednn_node(p, t->node),
			     *norm = ct__onednn_node(p, p->values[t->node].fold.norm);

	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, weights);
	ct__onednn_arg(p, t, CT_DNNL_BIAS,
		       conv->bias >= 0 ? (struct onednn_ref){ONEDNN_PARAM, conv->bias}
				       : (struct onednn_ref){ONEDNN_NOTHING, 0});
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, norm->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, norm->bias});
	ct__onednn_arg(p, t, CT_DNNL_MEAN, (struct onednn_ref){ONEDNN_RUNNING, norm->mean});
	ct__onednn_arg(p, t, CT_DNNL_VARIANCE, (struct onednn_ref){ONEDNN_RUNNING, norm->var});
}

enum ct_status ct__onednn_fold(struct onednn_program *p, int conv, const ct_dnnl_desc *arena, const ct_dnnl_desc *want,
			       struct onednn_ref *weights, struct onednn_ref *bias)
{
	const struct onednn_ref source = {ONEDNN_PARAM, ct__onednn_node(p, conv)->weight};
	const int first = p->n_tasks + 1;
	const ct_dnnl_desc *plain;
	struct onednn_ref at;
	struct onednn_task *t;
	int scaled, shift;

	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(arena), ct__dnnl_desc_dims(arena), &plain));
	CT_TRY(ct__onednn_task(p, ONEDNN_FOLD_CHECK, conv, &t));
	source_args(p, t, source);
	CT_TRY(ct__onednn_relayout(p, conv, source, arena, plain, &at));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &scaled));
	CT_TRY(ct__onednn_buffer(p, (size_t)ct__onednn_node(p, conv)->shape.c * sizeof(float), &shift));
	CT_TRY(ct__onednn_task(p, ONEDNN_FOLD, conv, &t));
	source_args(p, t, at);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, scaled);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, shift);
	t->n = ct__dnnl_desc_bytes(plain) / sizeof(float);
	const int reorders = p->base.reorders;
	CT_TRY(ct__onednn_relayout(p, conv, ONEDNN_BUF(scaled), plain, want, weights));
	p->base.reorders = reorders; /* do not count the reorder of the weights */
	*bias = ONEDNN_BUF(shift);
	keep(p, weights->id);
	keep(p, shift);
	for (int i = first; i < p->n_tasks; i++)
		p->tasks[i].when_stale = true;
	return CT_OK;
}
