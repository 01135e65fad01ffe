#include "trainer/run/loop/fine_tuning.h"

#include "base/mem.h"

size_t ct_fine_tuning_params(const struct ct_session *s)
{
	const ct_graph *g = ct_session_whole(s);
	size_t n = 0;

	for (int i = 0; i < ct_graph_n_params(g); i++)
		n += ct_graph_param(g, i)->frozen ? 0 : ct_graph_param(g, i)->n;
	return n;
}

static void say_trained(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_str_list *freeze = &s->cfg->model.freeze, *factors = &s->cfg->optim.lr_factors;
	const ct_graph *g = ct_session_whole(s);
	struct ct_str text = {0};
	int n_fixed = 0;

	for (int id = 0; id < ct_graph_n_nodes(g); id++)
		n_fixed += ct_graph_node(g, id)->fixed_stats;
	for (int i = 0; i < freeze->n; i++)
		ct_str_addf(&text, "%s%s", i > 0 ? ", " : "; frozen: ", freeze->v[i]);
	if (n_fixed > 0)
		ct_str_addf(&text, " (%d batch norm%s keep%s the running statistics)", n_fixed, ct_plural(n_fixed),
			    n_fixed == 1 ? "s" : "");
	for (int i = 0; i < factors->n; i++)
		ct_str_addf(&text, "%s%s", i > 0 ? ", " : "; learning rate: ", factors->v[i]);
	ct_metrics_say(m, "  trains  %zu of %zu parameters%s", ct_fine_tuning_params(s), ct_graph_n_elems(g),
		       ct_str_text(&text));
	ct_str_release(&text);
}

static void say_weights(const struct ct_weights_report *w, ct_metrics_log *m)
{
	if (w->doubtful) /* a warning has said it */
		ct_metrics_say(m, "  weights warning: only %d of the model's %d tensors were loaded: see above",
			       w->loaded, w->n);
	else if (w->text[0])
		ct_metrics_say(m, "  weights %s", w->text);
}

void ct_fine_tuning_say(const struct ct_session *s, ct_metrics_log *m)
{
	say_weights(&s->start.weights, m);
	if (s->cfg->model.freeze.n > 0 || s->cfg->optim.lr_factors.n > 0)
		say_trained(s, m);
}
