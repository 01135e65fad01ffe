/* Graphs: instantiation, which checks nodes whose order is not defined; updates; and launches. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct CUgraph_st {
	struct fake_graph *graph;
};

struct CUgraphExec_st {
	struct fake_graph *graph;
	/* The end of the last launch: a launch in another stream waits for it, because CUDA runs a graph once at a
	 * time. */
	struct fake_moment *last;
};

struct CUgraph_st *soft__graph_create(struct fake_graph *graph);

struct CUgraph_st *soft__graph_create(struct fake_graph *graph)
{
	struct CUgraph_st *g = fake_alloc(sizeof(*g));

	g->graph = graph;
	soft__created(SOFT__GRAPH);
	return g;
}

static const struct soft__work *work_of(const struct fake_graph *g, int i)
{
	return (const struct soft__work *)g->nodes[i].work;
}

static void check_pair(const struct fake_graph *b, int i, int k)
{
	const struct soft__work *x = work_of(b, i), *y = work_of(b, k);

	for (int m = 0; m < x->n_ranges; m++) {
		for (int n = 0; n < y->n_ranges; n++) {
			if (soft__overlap(&x->ranges[m], &y->ranges[n]))
				soft_gpu_fail(
					"graph: node %d (%s) %s memory that node %d (%s) %s, and nothing orders them",
					k, y->name, y->ranges[n].written ? "writes" : "reads", i, x->name,
					x->ranges[m].written ? "writes" : "reads");
		}
	}
}

/* Two nodes of which neither comes before the other must not touch the same memory, unless both read. */
static void check_overlaps(const struct fake_graph *b)
{
	size_t words = ((size_t)b->n_nodes + 63) / 64;
	uint64_t *before = fake_alloc(words * (size_t)b->n_nodes * sizeof(*before));

	for (int i = 0; i < b->n_nodes; i++) {
		uint64_t *row = before + words * (size_t)i;

		for (int k = 0; k < b->nodes[i].n_deps; k++) {
			int d = b->nodes[i].deps[k];

			row[d / 64] |= (uint64_t)1 << d % 64;
			for (size_t w = 0; w < words; w++)
				row[w] |= before[words * (size_t)d + w];
		}
		for (int k = 0; work_of(b, i)->n_ranges && k < i; k++) {
			if (!(row[k / 64] >> k % 64 & 1))
				check_pair(b, i, k);
		}
	}
	free(before);
}

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	*out = NULL;
	if (!graph || flags)
		return cudaErrorInvalidValue;
	check_overlaps(graph->graph);
	*out = fake_alloc(sizeof(**out));
	(*out)->graph = fake_graph_keep(graph->graph);
	soft__created(SOFT__EXEC);
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	SOFT__CALL(SOFT__UNSAFE, instantiate(out, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	SOFT__CALL(SOFT__UNSAFE, instantiate(out, graph, flags));
}

static bool same_shape(const struct fake_graph *a, const struct fake_graph *b)
{
	if (a->n_nodes != b->n_nodes)
		return false;
	for (int i = 0; i < a->n_nodes; i++) {
		const struct fake_node *x = &a->nodes[i], *y = &b->nodes[i];

		if (x->work->kind != y->work->kind || work_of(a, i)->run != work_of(b, i)->run ||
		    work_of(a, i)->host != work_of(b, i)->host || x->n_deps != y->n_deps ||
		    (x->n_deps && memcmp(x->deps, y->deps, sizeof(int) * (size_t)x->n_deps) != 0))
			return false;
	}
	return true;
}

static cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result)
{
	*result = (cudaGraphExecUpdateResultInfo){.result = cudaGraphExecUpdateErrorTopologyChanged};
	if (!exec || !graph)
		return cudaErrorInvalidValue;
	if (!same_shape(exec->graph, graph->graph))
		return cudaErrorGraphExecUpdateFailure;
	check_overlaps(graph->graph);
	fake_graph_drop(exec->graph);
	exec->graph = fake_graph_keep(graph->graph);
	result->result = cudaGraphExecUpdateSuccess;
	return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result)
{
	SOFT__CALL(SOFT__UNSAFE, update(exec, graph, result));
}

static cudaError_t get_nodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
	if (!graph)
		return cudaErrorInvalidValue;
	for (size_t i = 0; nodes && i < *n && i < (size_t)graph->graph->n_nodes; i++)
		nodes[i] = (cudaGraphNode_t)&graph->graph->nodes[i];
	*n = (size_t)graph->graph->n_nodes;
	return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
	SOFT__CALL(SOFT__PLAIN, get_nodes(graph, nodes, n));
}

/* Also after the device's error. */
static cudaError_t destroy_graph(cudaGraph_t graph)
{
	if (!graph)
		return cudaErrorInvalidValue;
	fake_graph_drop(graph->graph);
	free(graph);
	soft__destroyed(SOFT__GRAPH);
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	SOFT__CALL(SOFT__NO_DEVICE, destroy_graph(graph));
}

static cudaError_t destroy_exec(cudaGraphExec_t exec)
{
	if (!exec)
		return cudaErrorInvalidValue;
	fake_graph_drop(exec->graph);
	fake_moment_drop(exec->last);
	free(exec);
	soft__destroyed(SOFT__EXEC);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	SOFT__CALL(SOFT__NO_DEVICE, destroy_exec(exec));
}

/* External events: a wait node waits for the recording of now. */
static void order_waits(const struct fake_graph *g, cudaStream_t s)
{
	for (int i = 0; i < g->n_nodes; i++) {
		const struct fake_work *w = g->nodes[i].work;

		if (w->kind == FAKE_EVENT_WAIT && w->event->moment)
			soft__merge(s->clock, w->event->moment->clock);
	}
}

static void order_records(const struct fake_graph *g, cudaStream_t s)
{
	for (int i = 0; i < g->n_nodes; i++) {
		if (g->nodes[i].work->kind == FAKE_EVENT_RECORD)
			memcpy(g->nodes[i].work->event->moment->clock, s->clock, sizeof(s->clock));
	}
}

static cudaError_t launch(cudaGraphExec_t exec, cudaStream_t handle)
{
	const struct fake_graph *g;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess || !exec)
		return e ? e : cudaErrorInvalidValue;
	if (s->queue.capture)
		return cudaErrorStreamCaptureUnsupported;
	e = soft__legacy_order(s);
	if (e != cudaSuccess)
		return e;
	if (exec->last)
		soft__merge(s->clock, exec->last->clock);
	soft__order_post(s);
	g = exec->graph;
	for (int i = 0; i < g->n_nodes; i++) {
		const struct soft__work *w = work_of(g, i);

		for (int k = 0; k < w->n_ranges; k++)
			soft__check_range(w->name, w->ranges[k].address, w->ranges[k].bytes);
		soft__order_ranges(s, w->name, w->ranges, w->n_ranges);
	}
	order_waits(g, s);
	fake_launch(exec->graph, &s->queue, &exec->last, (int)soft__self.work_fault);
	order_records(g, s);
	memcpy(exec->last->clock, s->clock, sizeof(s->clock));
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
	SOFT__CALL(SOFT__PLAIN, launch(exec, s));
}

static cudaError_t upload(cudaGraphExec_t exec, cudaStream_t handle)
{
	cudaStream_t s;

	return exec ? soft__stream(handle, &s) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s)
{
	SOFT__CALL(SOFT__PLAIN, upload(exec, s));
}
