/* Graphs: instantiation, which checks nodes whose order is not defined; launches; and the execution order of nodes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct CUgraph_st {
	struct soft__body *body;
};

struct CUgraphExec_st {
	struct soft__body *body;
	/* The end of the last launch: a launch in another stream waits for it, because CUDA runs a graph once at a
	 * time. */
	struct soft__moment *last;
};

struct soft__launch {
	struct soft__body *body;
	struct soft__moment **moments; /* of the nodes that are external events */
	int *missing;                  /* dependencies of each node that are not done */
	int *ready, n_ready, n_left;
	unsigned policy;
	cudaError_t fault; /* by demand of SOFT_GPU_FAULT */
};

struct CUgraph_st *soft__graph_create(struct soft__body *body);

struct CUgraph_st *soft__graph_create(struct soft__body *body)
{
	struct CUgraph_st *g = soft__alloc(sizeof(*g));

	g->body = body;
	soft__created(SOFT__GRAPH);
	return g;
}

struct soft__body *soft__body_keep(struct soft__body *b)
{
	b->refs++;
	return b;
}

void soft__body_drop(struct soft__body *b)
{
	if (--b->refs > 0)
		return;
	for (int i = 0; i < b->n_nodes; i++) {
		soft__work_drop(b->nodes[i].work);
		free(b->nodes[i].deps);
		free(b->nodes[i].followers);
	}
	free(b->nodes);
	free(b);
}

void soft__body_finish(struct soft__body *b)
{
	for (int i = 0; i < b->n_nodes; i++) {
		for (int k = 0; k < b->nodes[i].n_deps; k++)
			b->nodes[b->nodes[i].deps[k]].n_followers++;
	}
	for (int i = 0; i < b->n_nodes; i++) {
		b->nodes[i].followers = soft__alloc(sizeof(int) * (size_t)b->nodes[i].n_followers);
		b->nodes[i].n_followers = 0;
		for (int k = 0; k < b->nodes[i].n_deps; k++) {
			struct soft__node *before = &b->nodes[b->nodes[i].deps[k]];

			before->followers[before->n_followers++] = i;
		}
	}
}

static void check_pair(const struct soft__body *b, int i, int k)
{
	const struct soft__work *x = b->nodes[i].work, *y = b->nodes[k].work;

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
static void check_overlaps(const struct soft__body *b)
{
	size_t words = ((size_t)b->n_nodes + 63) / 64;
	uint64_t *before = soft__alloc(words * (size_t)b->n_nodes * sizeof(*before));

	for (int i = 0; i < b->n_nodes; i++) {
		uint64_t *row = before + words * (size_t)i;

		for (int k = 0; k < b->nodes[i].n_deps; k++) {
			int d = b->nodes[i].deps[k];

			row[d / 64] |= (uint64_t)1 << d % 64;
			for (size_t w = 0; w < words; w++)
				row[w] |= before[words * (size_t)d + w];
		}
		for (int k = 0; b->nodes[i].work->n_ranges && k < i; k++) {
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
	check_overlaps(graph->body);
	*out = soft__alloc(sizeof(**out));
	(*out)->body = soft__body_keep(graph->body);
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

static bool same_shape(const struct soft__body *a, const struct soft__body *b)
{
	if (a->n_nodes != b->n_nodes)
		return false;
	for (int i = 0; i < a->n_nodes; i++) {
		const struct soft__node *x = &a->nodes[i], *y = &b->nodes[i];

		if (x->work->kind != y->work->kind || x->work->run != y->work->run || x->n_deps != y->n_deps ||
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
	if (!same_shape(exec->body, graph->body))
		return cudaErrorGraphExecUpdateFailure;
	check_overlaps(graph->body);
	soft__body_drop(exec->body);
	exec->body = soft__body_keep(graph->body);
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
	for (size_t i = 0; nodes && i < *n && i < (size_t)graph->body->n_nodes; i++)
		nodes[i] = (cudaGraphNode_t)&graph->body->nodes[i];
	*n = (size_t)graph->body->n_nodes;
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
	soft__body_drop(graph->body);
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
	soft__body_drop(exec->body);
	soft__moment_drop(exec->last);
	free(exec);
	soft__destroyed(SOFT__EXEC);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	SOFT__CALL(SOFT__NO_DEVICE, destroy_exec(exec));
}

/* External events: a record node is the event's recording from now on; a wait node waits for the recording of now. */
static void take_events(struct soft__launch *l, cudaStream_t s)
{
	for (int i = 0; i < l->body->n_nodes; i++) {
		const struct soft__work *w = l->body->nodes[i].work;

		if (w->kind == SOFT__EVENT_RECORD) {
			soft__moment_drop(w->event->moment);
			w->event->capture_id = 0;
			w->event->moment = soft__moment_create(s->clock);
		} else if (w->kind != SOFT__EVENT_WAIT || !w->event->moment) {
			continue;
		} else {
			soft__merge(s->clock, w->event->moment->clock);
		}
		l->moments[i] = soft__moment_keep(w->event->moment);
	}
}

static cudaError_t launch(cudaGraphExec_t exec, cudaStream_t handle)
{
	struct soft__launch *l;
	cudaStream_t s;
	size_t n;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess || !exec)
		return e ? e : cudaErrorInvalidValue;
	if (s->capture)
		return cudaErrorStreamCaptureUnsupported;
	e = soft__legacy_order(s);
	if (e != cudaSuccess)
		return e;
	if (exec->last) {
		soft__merge(s->clock, exec->last->clock);
		soft__push(s, (struct soft__op){.kind = SOFT__OP_WAIT, .moment = exec->last});
	}
	l = soft__alloc(sizeof(*l));
	l->body = soft__body_keep(exec->body);
	l->n_left = l->body->n_nodes;
	l->policy = soft__draw(3);
	l->fault = soft__self.work_fault;
	n = (size_t)l->n_left;
	l->moments = soft__alloc(n * sizeof(struct soft__moment *));
	l->missing = soft__alloc(n * sizeof(int));
	l->ready = soft__alloc(n * sizeof(int));
	soft__order_post(s);
	for (int i = 0; i < l->body->n_nodes; i++) {
		const struct soft__work *w = l->body->nodes[i].work;

		for (int k = 0; k < w->n_ranges; k++)
			soft__check_range(w->name, w->ranges[k].address, w->ranges[k].bytes);
		soft__order_ranges(s, w->name, w->ranges, w->n_ranges);
		l->missing[i] = l->body->nodes[i].n_deps;
		if (l->missing[i] == 0)
			l->ready[l->n_ready++] = i;
	}
	take_events(l, s);
	soft__push(s, (struct soft__op){.kind = SOFT__OP_GRAPH, .launch = l});
	exec->last = soft__moment_create(s->clock);
	soft__push(s, (struct soft__op){.kind = SOFT__OP_RECORD, .moment = soft__moment_keep(exec->last)});
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

void soft__launch_drop(struct soft__launch *l)
{
	for (int i = 0; i < l->body->n_nodes; i++) {
		if (!l->moments[i])
			continue;
		/* A launch that was dropped after an error: no one may wait for it forever. */
		if (l->body->nodes[i].work->kind == SOFT__EVENT_RECORD && !l->moments[i]->reached)
			soft__moment_reach(l->moments[i]);
		soft__moment_drop(l->moments[i]);
	}
	soft__body_drop(l->body);
	free(l->moments);
	free(l->missing);
	free(l->ready);
	free(l);
}

/* cudaErrorNotReady: nothing was done. */
static cudaError_t run_node(struct soft__launch *l, struct CUstream_st *s, int i)
{
	const struct soft__work *w = l->body->nodes[i].work;

	switch (w->kind) {
	case SOFT__EVENT_RECORD:
		soft__moment_reach(l->moments[i]);
		return cudaSuccess;
	case SOFT__EVENT_WAIT:
		return !l->moments[i] || l->moments[i]->reached ? cudaSuccess : cudaErrorNotReady;
	default:
		return soft__run_work(s, w);
	}
}

enum soft__step soft__launch_step(struct soft__launch *l, struct CUstream_st *s, cudaError_t *error)
{
	int n = l->n_ready, first;

	*error = l->fault;
	if (l->n_left == 0 || l->fault)
		return SOFT__DONE;
	first = l->policy == 0 ? 0 : l->policy == 1 ? n - 1 : (int)soft__draw((unsigned)n);
	for (int tried = 0; tried < n; tried++) {
		int k = (first + tried) % n, i = l->ready[k];
		const struct soft__node *node = &l->body->nodes[i];

		*error = run_node(l, s, i);
		if (*error == cudaErrorNotReady)
			continue;
		memmove(&l->ready[k], &l->ready[k + 1], sizeof(int) * (size_t)(l->n_ready - k - 1));
		l->n_ready--;
		for (int f = 0; f < node->n_followers; f++) {
			if (--l->missing[node->followers[f]] == 0)
				l->ready[l->n_ready++] = node->followers[f];
		}
		l->n_left--;
		return l->n_left == 0 || *error != cudaSuccess ? SOFT__DONE : SOFT__MORE;
	}
	return SOFT__STALLED;
}
