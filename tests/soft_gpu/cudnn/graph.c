/* Finalization of operation graphs. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

static bool is_op(cudnnBackendDescriptorType_t k)
{
	return soft__is_conv(k) || k == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
	       k == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
}

/* The index of the tensor among those of the graph. */
static int tensor_at(struct soft__graph *g, const struct soft__tensor *t)
{
	for (int i = 0; i < g->n_tensors; i++) {
		const struct soft__tensor *o = &g->tensors[i];

		if (o->uid != t->uid)
			continue;
		if (o->n_dims != t->n_dims || o->type != t->type || o->is_virtual != t->is_virtual ||
		    o->alignment != t->alignment || memcmp(o->dims, t->dims, sizeof(t->dims)) != 0 ||
		    memcmp(o->strides, t->strides, sizeof(t->strides)) != 0)
			soft_gpu_fail("cudnn: two different tensors have the unique id %lld", (long long)t->uid);
		return i;
	}
	if (g->n_tensors == SOFT__MAX_TENSORS)
		soft_gpu_fail("cudnn: the stand-in has place for %d tensors in a graph", SOFT__MAX_TENSORS);
	g->tensors[g->n_tensors] = *t;
	return g->n_tensors++;
}

/* Numbers the tensors of the operation. */
static cudnnStatus_t connect(struct soft__graph *g, struct soft__op *op)
{
	for (int i = 0; i < op->n_in; i++)
		op->in_at[i] = tensor_at(g, &op->in[i]);
	for (int i = 0; i < op->n_out; i++) {
		op->out_at[i] = tensor_at(g, &op->out[i]);
		for (int k = 0; k < op->n_in; k++) {
			if (op->in_at[k] == op->out_at[i])
				soft_gpu_fail("cudnn: an operation reads tensor %lld, which is its result",
					      (long long)op->out[i].uid);
		}
		if (g->is_written[op->out_at[i]])
			return soft__refuse(CUDNN_STATUS_BAD_PARAM, "two operations write tensor %lld",
					    (long long)op->out[i].uid);
		g->is_written[op->out_at[i]] = true;
	}
	return CUDNN_STATUS_SUCCESS;
}

/* Moves each operation after those whose results it reads. False: there is a cycle. */
static bool sort(struct soft__graph *g)
{
	bool is_there[SOFT__MAX_TENSORS];
	struct soft__op sorted[SOFT__MAX_OPS], *op;
	bool is_done[SOFT__MAX_OPS] = {false};
	int n = 0;

	for (int i = 0; i < g->n_tensors; i++)
		is_there[i] = !g->is_written[i];
	for (int round = 0; round < g->n_ops; round++) {
		for (int i = 0; i < g->n_ops; i++) {
			bool is_ready = !is_done[i];

			op = &g->ops[i];
			for (int k = 0; k < op->n_in; k++)
				is_ready &= is_there[op->in_at[k]];
			if (!is_ready)
				continue;
			for (int k = 0; k < op->n_out; k++)
				is_there[op->out_at[k]] = true;
			is_done[i] = true;
			sorted[n++] = *op;
		}
	}
	if (n != g->n_ops)
		return false;
	memcpy(g->ops, sorted, sizeof(*sorted) * (size_t)n);
	return true;
}

/* ---- What no engine computes ------------------------------------------------------------------------ */

static const char *check_virtual(const struct soft__graph *g)
{
	for (int i = 0; i < g->n_tensors; i++) {
		bool is_read = false;

		if (!g->tensors[i].is_virtual)
			continue;
		for (int o = 0; o < g->n_ops; o++) {
			for (int k = 0; k < g->ops[o].n_in; k++)
				is_read |= g->ops[o].in_at[k] == i;
		}
		if (!g->is_written[i] || !is_read)
			return "a virtual tensor is not written, or not read";
	}
	return NULL;
}

static const char *check_connected(const struct soft__graph *g)
{
	unsigned reached = 1, before = 0; /* operations */

	while (reached != before) {
		bool touched[SOFT__MAX_TENSORS] = {false};

		before = reached;
		for (int pass = 0; pass < 2; pass++) {
			for (int o = 0; o < g->n_ops; o++) {
				const struct soft__op *op = &g->ops[o];
				const int all[5] = {op->in_at[0], op->in_at[1], op->in_at[2], op->out_at[0],
						    op->out_at[1]};

				for (int k = 0; k < 5; k++) {
					if (k < 3 ? k >= op->n_in : k - 3 >= op->n_out)
						continue;
					if (reached >> o & 1)
						touched[all[k]] = true;
					else if (touched[all[k]])
						reached |= 1u << o;
				}
			}
		}
	}
	return reached == (1u << g->n_ops) - 1 ? NULL : "the graph is not connected";
}

static const char *check_op(const struct soft__op *op)
{
	const struct soft__tensor *y = &op->out[0];
	cudnnDataType_t type = op->in[0].is_virtual ? op->in[1].type : op->in[0].type;

	if (soft__is_conv(op->kind)) {
		if (op->in[1].type != type && !op->in[1].is_virtual)
			return "the types of a convolution's operands differ";
		if (y->type != type && !(y->is_virtual && y->type == CUDNN_DATA_FLOAT))
			return "the type of a convolution's result differs from that of its operands";
		return NULL;
	}
	if (op->kind == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) {
		for (int i = 0; i < 2; i++) {
			const int64_t *d = op->out[i].dims;

			if (d[0] != 1 || d[1] != op->in[0].dims[1] || d[2] != 1 || d[3] != 1)
				return "statistics that are not one value for each channel";
			if (op->out[i].type != CUDNN_DATA_FLOAT)
				return "statistics that are not fp32";
		}
		return NULL;
	}
	for (int d = 0; d < SOFT__DIMS; d++) {
		int64_t widest = 1;

		for (int i = 0; i < op->n_in; i++) {
			if (op->in[i].dims[d] != 1 && op->in[i].dims[d] != y->dims[d])
				return "an operand of a pointwise operation cannot be broadcast to its result";
			widest = op->in[i].dims[d] > widest ? op->in[i].dims[d] : widest;
		}
		if (widest != y->dims[d])
			return "the result of a pointwise operation has another size than its operands";
	}
	return NULL;
}

static const char *find_unsupported(const struct soft__graph *g)
{
	const char *why = check_virtual(g);
	int n_convs = 0;

	why = why ? why : check_connected(g);
	for (int i = 0; i < g->n_ops; i++) {
		why = why ? why : check_op(&g->ops[i]);
		n_convs += soft__is_conv(g->ops[i].kind);
	}
	return why ? why : n_convs > 1 ? "two convolutions" : NULL;
}

cudnnStatus_t soft__finalize_graph(struct soft__descriptor *d)
{
	const struct soft__value *v = soft__find(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct soft__graph *g;
	cudnnStatus_t st = CUDNN_STATUS_SUCCESS;

	if (!v)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "a graph without operations");
	for (int64_t i = 0; i < v->n; i++) {
		const struct soft__descriptor *op = ((struct soft__descriptor **)v->data)[i];

		if (!is_op(op->kind))
			soft_gpu_fail("cudnn: a descriptor of type %d as an operation of a graph", (int)op->kind);
		if (!op->is_final)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation is not finalized");
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
	g->refs = 1;
	g->n_ops = (int)v->n;
	for (int i = 0; i < g->n_ops && !st; i++) {
		g->ops[i] = ((struct soft__descriptor **)v->data)[i]->op;
		st = connect(g, &g->ops[i]);
	}
	if (!st && !sort(g))
		st = soft__refuse(CUDNN_STATUS_BAD_PARAM, "the graph has a cycle");
	if (!st) {
		g->unsupported = find_unsupported(g);
		st = soft__consult_finalize(d);
	}
	if (st)
		soft__graph_drop(g);
	else
		d->graph = g;
	return st;
}
