/* The model and the graph of a config. */
#include "trainer/plan/run_plan.h"

static enum ct_status choose_trained(const struct ct_config *c, ct_graph *g)
{
	const struct ct_str_list *freeze = &c->model.freeze, *factors = &c->optim.lr_factors;

	if (freeze->n > 0 && ct_graph_freeze(g, (const char *const *)freeze->v, freeze->n, c->model.freeze_stats) < 0)
		return ct_error_wrap("model.freeze");
	if (ct_lr_factors_check((const char *const *)factors->v, factors->n, g) < 0)
		return ct_error_wrap("optim.lr_factors");
	return CT_OK;
}

enum ct_status ct_plan_model(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     struct ct_plan_model *out)
{
	for (int i = 0; i < c->model.hidden.n; i++)
		out->hidden[i] = (int)c->model.hidden.v[i];
	bool regression = train->n_targets > 0;
	bool mse = c->model.loss == CT_CFG_LOSS_MSE || (c->model.loss == CT_CFG_LOSS_AUTO && regression);
	if (mse != regression) {
		CT_FAIL(CT_CONFIG, "model.loss is %s, but data set %s has %s", ct_config_choice(c, "model.loss"),
			ct_config_choice(c, "data.name"), regression ? "float targets" : "class labels");
		return ct_error_hint("use model.loss=%s, or auto", regression ? "mse" : "cross_entropy");
	}
	out->spec = (struct ct_model_spec){
		.name = ct_config_choice(c, "model.name"),
		.input = input,
		.n_outputs = regression ? train->n_targets : train->n_classes,
		.loss = mse ? CT_LOSS_MSE : CT_LOSS_CROSS_ENTROPY,
		.label_smoothing = (float)c->model.label_smoothing,
		.hidden = out->hidden,
		.n_hidden = c->model.hidden.n,
		.dropout = (float)c->model.dropout,
		.layers = (const char *const *)c->model.layers.v,
		.n_layers = c->model.layers.n,
		.small_stem = ct_plan_small_stem(c, train),
		.zero_gamma = c->model.zero_gamma,
		.drop_path = (float)c->model.drop_path,
	};
	return CT_OK;
}

enum ct_status ct_plan_graph(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     ct_graph **out)
{
	struct ct_plan_model model;

	CT_TRY(ct_plan_model(c, train, input, &model));
	CT_TRY(ct_model_build(&model.spec, out));
	enum ct_status st = choose_trained(c, *out);
	if (st < 0) {
		ct_graph_destroy(*out);
		*out = NULL;
	}
	return st;
}
