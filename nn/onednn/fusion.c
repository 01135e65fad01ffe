#include "nn/onednn/onednn_impl.h"

/* The only user of a value, -1 when it has several. */
static int only_user(const ct_graph *g, int id)
{
	int user = -1;

	for (int i = id + 1; i < ct_graph_n_nodes(g); i++) {
		const struct ct_node *other = ct_graph_node(g, i);
		if (other->in[0] != id && other->in[1] != id)
			continue;
		if (user >= 0)
			return -1;
		user = i;
	}
	return user;
}

static bool is_relu(const ct_graph *g, int id)
{
	return id >= 0 && ct_graph_node(g, id)->op == CT_OP_RELU;
}

static bool is_small_pool(const ct_graph *g, int id)
{
	const struct ct_node *n = id >= 0 ? ct_graph_node(g, id) : NULL;

	return n && n->op == CT_OP_MAX_POOL && n->win.dilation_h == 1 && n->win.dilation_w == 1 &&
	       (int64_t)n->win.r * n->win.s <= CT_NORM_POOL_MAX_TAPS;
}

/* A norm, perhaps behind it a drop path, that only this sum uses is computed with the sum; of two such norms the one that comes
 * last. */
static void plan_join(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];

	for (int i = 0; i < 2 && node->in[0] != node->in[1]; i++) {
		int norm = node->in[i], path = -1;
		if (ct__onednn_node(p, norm)->op == CT_OP_DROP_PATH) {
			path = norm;
			norm = ct__onednn_node(p, path)->in[0];
		}
		const bool only_here = p->values[node->in[i]].user == id && (path < 0 || p->values[norm].user == path);
		if (ct__onednn_node(p, norm)->op == CT_OP_BATCH_NORM && only_here && norm > v->fused_norm) {
			v->fused_norm = norm;
			v->fused_path = path;
		}
	}
	if (v->fused_norm >= 0)
		p->values[v->fused_norm].fused_add = id;
}

/* A ReLU that alone uses a layer, norm or sum is computed with it; behind a norm in training, a max pool that alone uses that
 * ReLU, too, where the layout allows. */
void ct__onednn_plan_fusion(struct onednn_program *p)
{
	const ct_graph *g = p->base.graph;

	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);
		struct onednn_value *v = &p->values[id];
		*v = (struct onednn_value){.root = -1,
					   .fused_relu = -1,
					   .fused_pool = -1,
					   .fused_add = -1,
					   .fused_norm = -1,
					   .fused_path = -1,
					   .folded_norm = -1,
					   .sum = -1,
					   .residual = -1,
					   .fused_into = -1,
					   .buffer = -1,
					   .grad = -1,
					   .grad2 = -1,
					   .src = -1,
					   .workspace = -1,
					   .mean = -1,
					   .variance = -1,
					   .mask = -1,
					   .picked = -1,
					   .taps = -1};
		v->needs_grad = node->weight >= 0 || (node->in[0] >= 0 && p->values[node->in[0]].needs_grad) ||
				(node->in[1] >= 0 && p->values[node->in[1]].needs_grad);
		bool can = node->op == CT_OP_CONV2D || node->op == CT_OP_LINEAR || node->op == CT_OP_BATCH_NORM ||
			   node->op == CT_OP_ADD;
		v->user = only_user(g, id);
		if (node->op == CT_OP_ADD && p->base.mode == CT_TRAIN)
			plan_join(p, id);
		if (!can || !is_relu(g, v->user))
			continue;
		v->fused_relu = v->user;
		int pool = only_user(g, v->user);
		if (node->op == CT_OP_BATCH_NORM && p->base.mode == CT_TRAIN && is_small_pool(g, pool))
			v->fused_pool = pool;
	}
}
