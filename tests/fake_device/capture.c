/* Captures: posted work becomes nodes of a graph. Each stream of a capture knows the nodes on which its next node
 * depends: its last node, and those of the events for which it was made to wait. */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_device/fake_device.h"

static void depend_on(struct fake_stream *s, int node)
{
	for (int i = 0; i < s->n_deps; i++) {
		if (s->deps[i] == node)
			return;
	}
	s->deps = fake_grow(s->deps, s->n_deps, &s->deps_capacity, sizeof(*s->deps));
	s->deps[s->n_deps++] = node;
}

static int *copy_of(const int *a, int n)
{
	int *copy = fake_alloc(sizeof(*copy) * (size_t)n);

	if (n)
		memcpy(copy, a, sizeof(*copy) * (size_t)n);
	return copy;
}

void fake_capture_begin(struct fake_capture *c, struct fake_stream *s)
{
	struct fake_machine *m = s->machine;

	*c = (struct fake_capture){m->captures, ++m->last_capture_id, s, fake_alloc(sizeof(*c->graph))};
	c->graph->refs = 1;
	m->captures = c;
	s->capture = c;
	s->n_deps = 0;
}

void fake_capture_work(struct fake_stream *s, struct fake_work *w)
{
	struct fake_graph *g = s->capture->graph;

	g->nodes = fake_grow(g->nodes, g->n_nodes, &g->capacity, sizeof(*g->nodes));
	g->nodes[g->n_nodes++] =
		(struct fake_node){.work = w, .deps = copy_of(s->deps, s->n_deps), .n_deps = s->n_deps};
	s->n_deps = 0;
	depend_on(s, g->n_nodes - 1);
}

void fake_capture_record(struct fake_stream *s, struct fake_event *e)
{
	fake_event_release(e);
	e->nodes = copy_of(s->deps, s->n_deps);
	e->n_nodes = s->n_deps;
	e->capture_id = s->capture->id;
}

void fake_capture_wait(struct fake_capture *c, struct fake_stream *s, const struct fake_event *e)
{
	if (!s->capture) {
		s->capture = c;
		s->n_deps = 0;
	}
	for (int i = 0; i < e->n_nodes; i++)
		depend_on(s, e->nodes[i]);
}

struct fake_capture *fake_capture_find(const struct fake_machine *m, unsigned id)
{
	struct fake_capture *c = m->captures;

	while (c && c->id != id)
		c = c->next;
	return c;
}

/* Whether each node precedes what the origin would do next. */
static bool is_joined(const struct fake_capture *c)
{
	const struct fake_graph *g = c->graph;
	bool *joined = fake_alloc((size_t)g->n_nodes);
	bool all = true;

	for (int i = 0; i < c->origin->n_deps; i++)
		joined[c->origin->deps[i]] = true;
	for (int i = g->n_nodes - 1; i >= 0; i--) {
		for (int k = 0; joined[i] && k < g->nodes[i].n_deps; k++)
			joined[g->nodes[i].deps[k]] = true;
		all = all && joined[i];
	}
	free(joined);
	return all;
}

static void find_followers(struct fake_graph *g)
{
	for (int i = 0; i < g->n_nodes; i++) {
		for (int k = 0; k < g->nodes[i].n_deps; k++)
			g->nodes[g->nodes[i].deps[k]].n_followers++;
	}
	for (int i = 0; i < g->n_nodes; i++) {
		g->nodes[i].followers = fake_alloc(sizeof(int) * (size_t)g->nodes[i].n_followers);
		g->nodes[i].n_followers = 0;
		for (int k = 0; k < g->nodes[i].n_deps; k++) {
			struct fake_node *before = &g->nodes[g->nodes[i].deps[k]];

			before->followers[before->n_followers++] = i;
		}
	}
}

bool fake_capture_end(struct fake_capture *c)
{
	struct fake_machine *m = c->origin->machine;
	struct fake_capture **link = &m->captures;
	bool joined = is_joined(c);

	for (int i = 0; i < m->n_streams; i++) {
		if (m->streams[i]->capture == c)
			m->streams[i]->capture = NULL;
	}
	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	find_followers(c->graph);
	return joined;
}

struct fake_graph *fake_graph_keep(struct fake_graph *g)
{
	g->refs++;
	return g;
}

void fake_graph_drop(struct fake_graph *g)
{
	if (--g->refs > 0)
		return;
	for (int i = 0; i < g->n_nodes; i++) {
		fake_work_drop(g->nodes[i].work);
		free(g->nodes[i].deps);
		free(g->nodes[i].followers);
	}
	free(g->nodes);
	free(g);
}
