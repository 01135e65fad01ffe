/* Fusion is decided from the graph alone, before layouts are known, and lowering may undo it. A node is fused only with
 * the single user of its value: with two users, the value must be stored anyway. Nodes are visited in their order, so
 * what is known of a node's inputs is complete. In evaluation only ReLUs are fused here; fold.c fuses norms and sums
 * with convolutions. If both addends of a sum are norms, the later one is computed with the sum, so that the other one
 * exists by then. All passes rely on the initial values that this pass writes. */
#include "nn/onednn/compile/fuse.h"

#include "nn/onednn/kernels/norm_pool.h"

static const struct onednn_value no_value = {
	.fusion = {.user = ONEDNN_NONE,
		   .relu = ONEDNN_NONE,
		   .pool = ONEDNN_NONE,
		   .join = ONEDNN_NONE,
		   .norm = ONEDNN_NONE,
		   .path = ONEDNN_NONE},
	.layout = {.root = ONEDNN_NONE, .buffer = ONEDNN_NONE},
	.kept = {.src = ONEDNN_NONE,
		 .mean = ONEDNN_NONE,
		 .variance = ONEDNN_NONE,
		 .workspace = ONEDNN_NONE,
		 .mask = ONEDNN_NONE,
		 .picked = ONEDNN_NONE,
		 .taps = ONEDNN_NONE},
	.gradient = {.buffer = ONEDNN_NONE, .second = ONEDNN_NONE},
	.fold = {.norm = ONEDNN_NONE, .sum = ONEDNN_NONE, .residual = ONEDNN_NONE, .last = ONEDNN_NONE},
};

/* Returns the only user of a value, or ONEDNN_NONE if there are several. */
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

/* A norm whose only user is this sum, possibly with a drop path between them, is computed with the sum. If both addends
 * are such norms, only the later one is fused. */
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
		const bool only_here =
			p->values[node->in[i]].fusion.user == id && (path < 0 || p->values[norm].fusion.user == path);
		if (ct__onednn_node(p, norm)->op == CT_OP_BATCH_NORM && only_here && norm > v->fusion.norm) {
			v->fusion.norm = norm;
			v->fusion.path = path;
		}
	}
	if (v->fusion.norm >= 0)
		p->values[v->fusion.norm].fusion.join = id;
}

/* A ReLU that is the only user of a layer, norm or sum is computed with it. In training, a max pool that is the only
 * user of a norm's ReLU is computed with the norm, too. */
void ct__onednn_fuse(struct onednn_program *p)
{
	const ct_graph *g = p->base.graph;

	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);
		struct onednn_value *v = &p->values[id];

		*v = no_value;
		v->gradient.needed = ct_graph_trains(g, id) || (id == 0 && p->base.net->opts.input_gradient) ||
				     (node->in[0] >= 0 && p->values[node->in[0]].gradient.needed) ||
				     (node->in[1] >= 0 && p->values[node->in[1]].gradient.needed);
		bool can = node->op == CT_OP_CONV2D || node->op == CT_OP_LINEAR || node->op == CT_OP_BATCH_NORM ||
			   node->op == CT_OP_ADD;
		v->fusion.user = only_user(g, id);
		if (node->op == CT_OP_ADD && p->base.mode == CT_TRAIN)
			plan_join(p, id);
		if (!can || !is_relu(g, v->fusion.user))
			continue;
		v->fusion.relu = v->fusion.user;
		int pool = only_user(g, v->fusion.user);
		if (node->op == CT_OP_BATCH_NORM && p->base.mode == CT_TRAIN && is_small_pool(g, pool))
			v->fusion.pool = pool;
	}
}
