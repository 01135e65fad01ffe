#include "trainer/tools/runs/run_plans.h"

#include "base/file.h"

enum { N_NAMED = 3 /* convolutions in the sentence */ };

static enum ct_status load(const char *dir, bool *exists, struct ct_net_plan *out)
{
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(dir, "plan.txt"));
	*exists = ct_file_exists(path);
	const enum ct_status st = *exists ? ct_net_plan_read(path, out) : CT_OK;
	ct_free(path);
	return st;
}

enum ct_status ct_run_plans_load(const char *dir_a, const char *dir_b, struct ct_run_plans *out)
{
	bool exists[2];

	*out = (struct ct_run_plans){0};
	CT_TRY(load(dir_a, &exists[0], &out->plan[0]));
	CT_TRY(load(dir_b, &exists[1], &out->plan[1]));
	if (!exists[0] || !exists[1]) {
		ct_run_plans_release(out);
		return CT_OK;
	}
	CT_TRY(ct_net_plan_compare(&out->plan[0], &out->plan[1], &out->convs, &out->n_convs));
	out->known = true;
	return CT_OK;
}

void ct_run_plans_release(struct ct_run_plans *p)
{
	ct_free((void *)p->convs);
	ct_net_plan_release(&p->plan[0]);
	ct_net_plan_release(&p->plan[1]);
	*p = (struct ct_run_plans){0};
}

bool ct_run_plans_differ(const struct ct_run_plans *p)
{
	return p->n_convs > 0 || p->plan[0].layout != p->plan[1].layout;
}

void ct_run_plans_describe(const struct ct_run_plans *p, const char *a, const char *b, struct ct_str *out)
{
	const bool layouts = p->plan[0].layout != p->plan[1].layout;

	if (!ct_run_plans_differ(p))
		return;
	ct_str_add(out, "The plans differ: ");
	if (layouts)
		ct_str_addf(out, "the layout is %s in %s and %s in %s", ct_plan_layout_name(p->plan[0].layout), a,
			    ct_plan_layout_name(p->plan[1].layout), b);
	if (p->n_convs > 0)
		ct_str_addf(out, "%s%d convolution%s other methods (", layouts ? ", and " : "", p->n_convs,
			    p->n_convs == 1 ? " has" : "s have");
	for (int i = 0; i < p->n_convs && i < N_NAMED; i++)
		ct_str_addf(out, "%s%s", i > 0 ? ", " : "", p->convs[i]);
	if (p->n_convs > N_NAMED)
		ct_str_addf(out, " and %d more", p->n_convs - N_NAMED);
	ct_str_addf(out, "%s. Therefore the results may differ in their last bits.\n", p->n_convs > 0 ? ")" : "");
}

void ct_run_plans_set_json(const struct ct_run_plans *p, ct_json *object)
{
	if (!p->known)
		return;
	ct_json *layouts = ct_json_array(), *convs = ct_json_array();

	for (int i = 0; i < 2; i++)
		ct_json_push_str(layouts, ct_plan_layout_name(p->plan[i].layout));
	for (int i = 0; i < p->n_convs; i++)
		ct_json_push_str(convs, p->convs[i]);
	ct_json_set_bool(object, "same_plan", !ct_run_plans_differ(p));
	ct_json_set(object, "plan_layouts", layouts);
	ct_json_set(object, "plan_convs", convs);
}
