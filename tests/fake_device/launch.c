/* Runs of a graph. A run is one operation of its stream, but its nodes take turns with the work of other streams. Their
 * order is drawn: the oldest node that can run first, or the newest, or any. */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_device/fake_device.h"

struct fake_launch {
	struct fake_graph *graph;
	struct fake_moment **moments; /* of the nodes that are events */
	int *missing;                 /* dependencies of each node that are not done */
	int *ready, n_ready, n_left;
	bool *started; /* [n_nodes] */
	unsigned policy;
	int fault;
};

/* A node that records an event is the event's recording from now on; one that waits, waits for the recording of now. */
static void take_events(struct fake_launch *l, struct fake_stream *s)
{
	for (int i = 0; i < l->graph->n_nodes; i++) {
		const struct fake_work *w = l->graph->nodes[i].work;

		if (w->kind == FAKE_EVENT_RECORD) {
			fake_event_release(w->event);
			w->event->moment = fake_moment_create(s);
		}
		if (w->kind != FAKE_RUN && w->event->moment)
			l->moments[i] = fake_moment_keep(w->event->moment);
	}
}

void fake_launch(struct fake_graph *g, struct fake_stream *s, struct fake_moment **last, int fault)
{
	struct fake_launch *l = fake_alloc(sizeof(*l));
	const size_t n = (size_t)g->n_nodes;

	if (*last)
		fake_push(s, (struct fake_op){.kind = FAKE_OP_WAIT, .moment = *last});
	l->graph = fake_graph_keep(g);
	l->n_left = g->n_nodes;
	l->policy = fake_draw(s->machine, 3);
	l->fault = fault;
	l->moments = fake_alloc(n * sizeof(struct fake_moment *));
	l->missing = fake_alloc(n * sizeof(int));
	l->ready = fake_alloc(n * sizeof(int));
	l->started = fake_alloc(n * sizeof(bool));
	for (int i = 0; i < g->n_nodes; i++) {
		l->missing[i] = g->nodes[i].n_deps;
		if (l->missing[i] == 0)
			l->ready[l->n_ready++] = i;
	}
	take_events(l, s);
	fake_push(s, (struct fake_op){.kind = FAKE_OP_LAUNCH, .launch = l});
	*last = fake_moment_create(s);
	fake_push(s, (struct fake_op){.kind = FAKE_OP_RECORD, .moment = fake_moment_keep(*last)});
}

void fake_launch_drop(struct fake_launch *l)
{
	for (int i = 0; i < l->graph->n_nodes; i++) {
		if (!l->moments[i])
			continue;
		/* A run that was dropped after an error: no one may wait for it forever. */
		if (l->graph->nodes[i].work->kind == FAKE_EVENT_RECORD && !l->moments[i]->reached)
			fake_moment_reach(l->moments[i]);
		fake_moment_drop(l->moments[i]);
	}
	fake_graph_drop(l->graph);
	free(l->moments);
	free(l->missing);
	free(l->ready);
	free(l->started);
	free(l);
}

static int run_node(struct fake_launch *l, struct fake_stream *s, int i)
{
	struct fake_work *w = l->graph->nodes[i].work;

	switch (w->kind) {
	case FAKE_EVENT_RECORD:
		fake_moment_reach(l->moments[i]);
		return 0;
	case FAKE_EVENT_WAIT:
		return !l->moments[i] || l->moments[i]->reached ? 0 : FAKE_NOT_READY;
	default:
		return fake_run(s, w);
	}
}

static bool may_start(const struct fake_launch *l, int i)
{
	const struct fake_node *node = &l->graph->nodes[i];

	if (!node->work->start || l->started[i])
		return false;
	for (int k = 0; k < node->n_deps; k++) {
		if (!l->started[node->deps[k]])
			return false;
	}
	return true;
}

/* Node i runs for the first time, or again because it was not ready. Those of its followers that do not wait start
 * now, and see what memory contains before it has run. */
static void start(const struct fake_launch *l, struct fake_stream *s, int i)
{
	const struct fake_node *node = &l->graph->nodes[i];

	l->started[i] = true;
	for (int k = 0; k < node->n_followers; k++) {
		const int f = node->followers[k];

		if (!may_start(l, f))
			continue;
		l->started[f] = true;
		l->graph->nodes[f].work->start(s, l->graph->nodes[f].work);
	}
}

int fake_launch_step(struct fake_launch *l, struct fake_stream *s, bool *done)
{
	int n = l->n_ready, first;

	*done = l->n_left == 0;
	if (l->fault || *done)
		return l->fault;
	first = l->policy == 0 ? 0 : l->policy == 1 ? n - 1 : (int)fake_draw(s->machine, (unsigned)n);
	for (int tried = 0; tried < n; tried++) {
		int k = (first + tried) % n, i = l->ready[k];
		const struct fake_node *node = &l->graph->nodes[i];

		start(l, s, i);
		const int error = run_node(l, s, i);
		if (error == FAKE_NOT_READY)
			continue;
		memmove(&l->ready[k], &l->ready[k + 1], sizeof(int) * (size_t)(l->n_ready - k - 1));
		l->n_ready--;
		for (int f = 0; f < node->n_followers; f++) {
			if (--l->missing[node->followers[f]] == 0)
				l->ready[l->n_ready++] = node->followers[f];
		}
		*done = --l->n_left == 0;
		return error;
	}
	return FAKE_NOT_READY;
}
