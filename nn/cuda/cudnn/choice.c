#include "nn/cuda/cudnn/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct ct__cudnn_choices {
	struct ct__cudnn_choice **all;
	size_t n, cap;
};

enum ct_status ct__cudnn_choices_create(ct__cudnn_choices **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct__cudnn_choices));
	return CT_OK;
}

static void destroy_choice(struct ct__cudnn_choice *one)
{
	ct__cudnn_plan_destroy(one->plan);
	ct__cudnn_graph_destroy(one->graph);
	ct_free(one);
}

void ct__cudnn_choices_destroy(ct__cudnn_choices *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		destroy_choice(c->all[i]);
	ct_free(c->all);
	ct_free(c);
}

static bool same_filter(const struct ct__cudnn_filter *a, const struct ct__cudnn_filter *b)
{
	return a->exact == b->exact && a->deterministic == b->deterministic &&
	       a->max_workspace_bytes == b->max_workspace_bytes;
}

static const struct ct__cudnn_choice *find(const ct__cudnn_choices *c, const ct__cudnn_graph *g,
					   const struct ct__cudnn_filter *filter)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct ct__cudnn_choice *one = c->all[i];

		if (same_filter(&one->filter, filter) &&
		    !strcmp(ct__cudnn_graph_text(one->graph), ct__cudnn_graph_text(g)))
			return one;
	}
	return NULL;
}

/* Owns g if it succeeds. */
static enum ct_status append(ct__cudnn_choices *c, const char *name, ct__cudnn_graph *g,
			     const struct ct__cudnn_filter *filter)
{
	struct ct__cudnn_choice *one;

	if (ct__cudnn_graph_finish(g) < 0)
		return ct_error_wrap("%s", name);
	CT_TRY_GROW(c->all, c->n, c->cap);
	CT_TRY_ALLOC(one = CT_NEW(struct ct__cudnn_choice));
	*one = (struct ct__cudnn_choice){.graph = g, .filter = *filter};
	snprintf(one->name, sizeof(one->name), "%s", name);
	c->all[c->n++] = one;
	return CT_OK;
}

enum ct_status ct__cudnn_choices_add(ct__cudnn_choices *c, const char *name, ct__cudnn_graph *g,
				     const struct ct__cudnn_filter *filter, const struct ct__cudnn_choice **out)
{
	enum ct_status st = CT_OK;

	*out = find(c, g, filter);
	if (!*out)
		st = append(c, name, g, filter);
	if (*out || st < 0)
		ct__cudnn_graph_destroy(g);
	else
		*out = c->all[c->n - 1];
	return st;
}

size_t ct__cudnn_choices_count(const ct__cudnn_choices *c)
{
	return c->n;
}

const struct ct__cudnn_choice *ct__cudnn_choices_at(const ct__cudnn_choices *c, size_t i)
{
	return c->all[i];
}

static enum ct_status make_all(ct__cudnn_choices *c, const ct__cudnn_target *t)
{
	for (size_t i = 0; i < c->n; i++) {
		struct ct__cudnn_choice *one = c->all[i];
		struct ct__cudnn_candidates found;

		if (one->plan)
			continue;
		if (ct__cudnn_plan_find(one->graph, t, &one->filter, 1, &found) < 0)
			return ct_error_wrap("%s", one->name);
		one->plan = ct__cudnn_candidates_take(&found, 0);
		ct__cudnn_candidates_release(&found);
	}
	return CT_OK;
}

enum ct_status ct__cudnn_choices_make(ct__cudnn_choices *c, const ct__cudnn_target *t)
{
	const enum ct_status st = make_all(c, t);
	size_t n = 0;

	/* The next program must not fail because of the graphs of this one. */
	for (size_t i = 0; i < c->n; i++) {
		if (c->all[i]->plan)
			c->all[n++] = c->all[i];
		else
			destroy_choice(c->all[i]);
	}
	c->n = n;
	return st;
}
