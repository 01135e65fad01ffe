/* What cuDNN answers about a graph on each card. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "bench/cudnn_plans.h"

enum { MAX_PLANS = 128 };

/* A plan that the filter should have excluded is a mistake of nn/cuda/cudnn. */
static bool keeps_promise(enum ct_precision p, const struct ct__cudnn_plan_info *i)
{
	return i->workspace_bytes <= (int64_t)1 << 30 && !i->down_convert && !i->reduced_reduction &&
	       !(i->tensor_core && p == CT_PRECISION_FP32);
}

/* A start that reads the plan cache makes plans from their string forms. */
static bool can_be_made_again(const struct ct__cudnn_choice *choice, const ct__cudnn_target *t,
			      const struct ct__cudnn_plan_info *want)
{
	ct__cudnn_plan *p = NULL;
	bool same = false;

	if (ct__cudnn_plan_make(choice->graph, t, &choice->filter, want->config, &p) == CT_OK)
		same = !memcmp(ct__cudnn_plan_info(p), want, sizeof(*want));
	else
		fprintf(stderr, "%s\n", ct_error_message());
	ct_error_clear();
	ct__cudnn_plan_destroy(p);
	return same;
}

/* A candidate that is deterministic. */
static void add_plan(struct plans_table *t, const struct ct__cudnn_choice *choice, int device, struct plans_answer *a,
		     const struct ct__cudnn_plan_info *info)
{
	if (a->n_deterministic % 8 == 0) /* all would take minutes */
		t->n_lost += !can_be_made_again(choice, t->targets[device], info);
	if (a->n_deterministic++ == 0) {
		a->engine = info->engine;
		a->bytes = a->least_bytes = info->workspace_bytes;
	}
	a->least_bytes = info->workspace_bytes < a->least_bytes ? info->workspace_bytes : a->least_bytes;
}

static enum ct_status ask(struct plans_table *t, const struct ct__cudnn_choice *choice, struct plans_row *r, int device,
			  bool deterministic)
{
	struct plans_answer *a = &r->answers[device];
	struct ct__cudnn_filter filter = choice->filter;
	struct ct__cudnn_candidates c;

	filter.deterministic = deterministic;
	const enum ct_status st = ct__cudnn_plan_find(choice->graph, t->targets[device], &filter, MAX_PLANS, &c);
	if (st == CT_UNSUPPORTED) {
		ct_error_clear();
		return CT_OK;
	}
	CT_TRY(st);
	a->n_plans = c.n + c.n_filtered;
	if (!deterministic)
		a->n_allowed = c.n;
	for (int i = 0; i < c.n; i++) {
		const struct ct__cudnn_plan_info *info = ct__cudnn_plan_info(c.plans[i]);

		t->n_wrong += !keeps_promise(r->precision, info);
		if (info->deterministic)
			add_plan(t, choice, device, a, info);
	}
	ct__cudnn_candidates_release(&c);
	return CT_OK;
}

/* If the heuristics propose only plans that are not deterministic, the engine takes one of the fallbacks. */
static enum ct_status ask_device(struct plans_table *t, const struct ct__cudnn_choice *choice, struct plans_row *r,
				 int device)
{
	struct plans_answer *a = &r->answers[device];

	*a = (struct plans_answer){.engine = -1};
	CT_TRY(ask(t, choice, r, device, false));
	if (a->n_deterministic == 0)
		CT_TRY(ask(t, choice, r, device, true));
	if (a->n_deterministic > 0)
		return CT_OK;
	fprintf(stderr, "%s: no deterministic plan on %s for \"%s\" (%s)\n", choice->name, plans_devices[device],
		r->graph, ct_precision_name(r->precision));
	t->n_missing++;
	return CT_OK;
}

static bool is_known(const struct plans_table *t, const char *graph, enum ct_precision p)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		if (t->rows[i].precision == p && !strcmp(t->rows[i].graph, graph))
			return true;
	}
	return false;
}

enum ct_status plans_add_row(struct plans_table *t, const struct ct__cudnn_choice *choice, enum ct_precision p)
{
	const char *graph = ct__cudnn_graph_text(choice->graph);
	struct plans_row *r;

	if (is_known(t, graph, p))
		return CT_OK;
	CT_TRY_GROW(t->rows, t->n_rows, t->rows_cap);
	r = &t->rows[t->n_rows];
	*r = (struct plans_row){.precision = p};
	CT_TRY_ALLOC(r->graph = ct_strdup(graph));
	t->n_rows++;
	for (int d = 0; d < PLANS_DEVICES; d++)
		CT_TRY(ask_device(t, choice, r, d));
	return CT_OK;
}
