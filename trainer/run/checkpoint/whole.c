#include "trainer/run/checkpoint/whole.h"

#include "base/mem.h"
#include "trainer/run/checkpoint/checkpoint.h"

static enum ct_status add(struct ct_whole *w, const char *name, bool has_buffers)
{
	struct ct_whole_group *g = &w->groups[w->n_groups];

	CT_ASSERT(w->n_groups < CT_WHOLE_MAX_GROUPS);
	w->n_groups++;
	g->name = name;
	CT_TRY_ALLOC(g->params = CT_NEW_ARRAY(float, w->n_params));
	if (has_buffers)
		CT_TRY_ALLOC(g->buffers = CT_NEW_ARRAY(float, w->n_buffers));
	return CT_OK;
}

enum ct_status ct_whole_init(const ct_graph *g, const ct_optim *optim, const ct_ema *ema, struct ct_whole *out)
{
	const char *name;

	*out = (struct ct_whole){.graph = g, .n_params = ct_graph_n_elems(g)};
	for (int i = 0; i < ct_graph_n_buffers(g); i++)
		out->n_buffers += ct_graph_buffer(g, i)->n;
	CT_TRY(add(out, "", true));
	for (int i = 0; optim && (name = ct_optim_state_name(optim, i)); i++)
		CT_TRY(add(out, name, false));
	return ema ? add(out, CT_CKPT_EMA, true) : CT_OK;
}

void ct_whole_release(struct ct_whole *w)
{
	for (int i = 0; i < w->n_groups; i++) {
		ct_free(w->groups[i].params);
		ct_free(w->groups[i].buffers);
	}
	*w = (struct ct_whole){0};
}
