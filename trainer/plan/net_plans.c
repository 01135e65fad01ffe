#include "trainer/plan/net_plans.h"

static enum ct_status check(const char *source, const ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts,
			    struct ct_net_plan *plan)
{
	const enum ct_status st = ct_engine_check_plan(e, plan, g, opts);

	if (st < 0) {
		ct_net_plan_release(plan);
		return st == CT_UNSUPPORTED ? ct_error_wrap("%s", source) : st;
	}
	return CT_OK;
}

enum ct_status ct_plan_parse_net(const char *text, const char *source, const ct_engine *e, const ct_graph *g,
				 const struct ct_net_opts *opts, struct ct_net_plan *out)
{
	*out = (struct ct_net_plan){0};
	CT_TRY(ct_net_plan_parse(text, source, out));
	return check(source, e, g, opts, out);
}

enum ct_status ct_plan_read_net(const struct ct_config *c, const ct_engine *e, const ct_graph *g,
				const struct ct_net_opts *opts, struct ct_net_plan *out)
{
	*out = (struct ct_net_plan){0};
	if (ct_net_plan_read(c->train.plan, out) < 0)
		return ct_error_wrap("train.plan");
	enum ct_status st = check(c->train.plan, e, g, opts, out);
	if (st == CT_UNSUPPORTED)
		st = ct_error_hint(
			"a plan belongs to a model and a kind of processor; without train.plan, ctrain chooses one");
	return st < 0 ? ct_error_wrap("train.plan") : CT_OK;
}

void ct_plan_net_text(const struct ct_net_plan *p, const ct_graph *g, char *text, size_t len)
{
	int n = 0;

	for (int id = 0; id < ct_graph_n_nodes(g); id++)
		n += ct_graph_node(g, id)->op == CT_OP_CONV2D;
	ct_net_plan_summary(p, n, text, len);
}
