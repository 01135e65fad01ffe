/* Recomputation appends forward tasks a second time, with separate buffers, so that the buffers of the first time are
 * free after the forward pass.
 *
 * CT_RECOMPUTE_NORMS recomputes each norm, with its ReLU, between two layers. Its input and its statistics are kept
 * anyway for its own gradient. One pass over memory recomputes its result for the weight gradient of the layer that
 * read it.
 *
 * CT_RECOMPUTE_BLOCKS recomputes a complete residual block right before its backward pass. Only values that leave the
 * block and the statistics of its norms are kept. The second pass gives the same results and has no side effects: masks
 * are functions of step and row, and only the first pass updates the running statistics. */
#include "nn/onednn/compile/recompute.h"

#include "base/mem.h"
#include "nn/onednn/compile/ops.h"

static int block_of(const struct onednn_program *p, int id)
{
	return id < ct_graph_n_nodes(p->base.graph) ? ct__onednn_node(p, id)->block : -1;
}

static bool leaves_block(const struct onednn_program *p, int id)
{
	for (int user = id + 1; user < ct_graph_n_nodes(p->base.graph); user++) {
		const struct ct_node *n = ct__onednn_node(p, user);

		if ((n->in[0] == id || n->in[1] == id) && n->block != block_of(p, id))
			return true;
	}
	return false;
}

/* Returns the root of the value that is computed with node `id`. */
static int result_of(const struct onednn_program *p, int id)
{
	const struct onednn_value *v = &p->values[id];

	if (v->fusion.join >= 0)
		return result_of(p, v->fusion.join);
	return p->values[ct__onednn_owner(p, id)].layout.root;
}

/* Norms with reference loops sum the statistics over all ranks, which must happen only in the first pass. */
static bool has_reference_norm(const struct onednn_program *p, int first, int last)
{
	for (int id = first; id <= last; id++) {
		if (p->values[id].kept.norm == ONEDNN_NORM_REFERENCE)
			return true;
	}
	return false;
}

struct block {
	int first, last;
	bool *kept;   /* [n_nodes] roots that other blocks read */
	bool *again;  /* [n_nodes] to be computed again */
	int *buffers; /* [n_nodes] buffers of the first pass */
};

static void find_kept(const struct onednn_program *p, struct block *b)
{
	for (int id = b->first; id <= b->last; id++) {
		b->buffers[id] = p->values[id].layout.buffer;
		if (leaves_block(p, id))
			b->kept[result_of(p, id)] = true;
	}
	for (int id = b->first; id <= b->last; id++) {
		const int root = result_of(p, id);

		b->again[id] = root < 0 || !b->kept[root];
	}
}

static enum ct_status compile_again(struct onednn_program *p, const struct block *b)
{
	for (int id = b->first; id <= b->last; id++) {
		if (b->again[id])
			p->values[id].layout.root = -1;
	}
	for (int id = b->first; id <= b->last; id++) {
		if (b->again[id])
			CT_TRY(ct__onednn_op_forward(p, id));
	}
	return CT_OK;
}

/* A node that is kept has read values of the first pass, but its backward pass reads those of the second pass. */
static void point_at_second(struct onednn_program *p, const struct block *b)
{
	for (int id = b->first; id <= b->last; id++) {
		for (int in = b->first; in < id && !b->again[id] && p->values[id].kept.src >= 0; in++) {
			if (p->values[id].kept.src == b->buffers[in]) {
				p->values[id].kept.src = p->values[in].layout.buffer;
				break;
			}
		}
	}
}

static enum ct_status recompute(struct onednn_program *p, struct block *b)
{
	find_kept(p, b);
	p->recomputing = true;
	enum ct_status st = compile_again(p, b);
	p->recomputing = false;
	if (st == CT_OK)
		point_at_second(p, b);
	return st;
}

static enum ct_status block_again(struct onednn_program *p, int id)
{
	const size_t n = (size_t)ct_graph_n_nodes(p->base.graph);
	const int block = block_of(p, id);
	struct block b = {.first = id, .last = id};

	if (block < 0 || block_of(p, id + 1) == block)
		return CT_OK;
	while (b.first > 0 && block_of(p, b.first - 1) == block)
		b.first--;
	if (has_reference_norm(p, b.first, b.last))
		return CT_OK;
	b.kept = CT_NEW_ARRAY(bool, n);
	b.again = CT_NEW_ARRAY(bool, n);
	b.buffers = CT_NEW_ARRAY(int, n);
	enum ct_status st = b.kept && b.again && b.buffers ? recompute(p, &b) : CT_NOMEM;
	ct_free(b.buffers);
	ct_free(b.again);
	ct_free(b.kept);
	return st;
}

/* Returns the norm, computed by ctrain's kernels, whose only reader is the layer `id`, directly or through the ReLU;
 * ONEDNN_NONE if there is none. */
static int norm_before(const struct onednn_program *p, int id)
{
	const struct ct_node *layer = ct__onednn_node(p, id);
	const int in = layer->in[0];

	if ((layer->op != CT_OP_CONV2D && layer->op != CT_OP_LINEAR) || p->values[in].fusion.user != id)
		return -1;
	const struct ct_node *read = ct__onednn_node(p, in);
	const int norm = read->op == CT_OP_RELU && p->values[read->in[0]].fusion.relu == in ? read->in[0] : in;
	const struct onednn_value *v = &p->values[norm];
	const bool own = ct__onednn_node(p, norm)->op == CT_OP_BATCH_NORM && v->kept.norm == ONEDNN_NORM_OWN;
	const bool alone = v->fusion.join < 0 && v->fusion.pool < 0;
	return own && alone && ct__onednn_result(p, norm) == p->values[id].kept.src ? norm : -1;
}

/* Only the layer's backward pass reads the second result. The first result remains the value of the norm. */
static enum ct_status norm_again(struct onednn_program *p, int id)
{
	const int norm = norm_before(p, id);

	if (norm < 0)
		return CT_OK;
	struct onednn_value *owner = &p->values[ct__onednn_owner(p, norm)];
	const int first = owner->layout.buffer;
	p->recomputing = true;
	enum ct_status st = ct__onednn_op_forward(p, norm);
	p->recomputing = false;
	p->values[id].kept.src = owner->layout.buffer;
	owner->layout.buffer = first;
	return st;
}

enum ct_status ct__onednn_recompute(struct onednn_program *p, int id)
{
	switch (p->base.net->opts.recompute) {
	case CT_RECOMPUTE_NORMS:
		return norm_again(p, id);
	case CT_RECOMPUTE_BLOCKS:
		return block_again(p, id);
	case CT_RECOMPUTE_NONE:
		break;
	}
	return CT_OK;
}
