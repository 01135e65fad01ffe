#include "trainer/run/session/session_stage_impl.h"

#include <stdio.h>

enum ct_status ct__session_open_pipeline(struct ct_session *s, const char *backend, const struct ct_comm_opts *co)
{
	struct ct_comm_opts opts = *co;
	struct ct_stages stages;
	char scope[32];

	CT_TRY(ct_plan_stages(s->cfg, s->world.id.world, s->world.id.rank, &stages));
	if (stages.n == 1)
		return CT_OK;
	CT_TRY(ct_pipeline_create(&s->world, s->comm, s->device, &stages, (uint32_t)s->cfg->train.accumulate,
				  &s->pipe));
	snprintf(scope, sizeof(scope), "stage%d", stages.stage);
	opts.scope = scope;
	s->group = NULL;
	CT_TRY(ct_comm_open(backend, &s->pipe->part, &opts, &s->group));
	if (s->watchdog)
		ct_watchdog_add_comm(s->watchdog, s->group);
	return CT_OK;
}

static enum ct_status take_stage(struct ct_session *s, ct_graph **g)
{
	CT_TRY(ct_pipeline_take_stage(s->pipe, g));
	for (int id = 0; id < ct_graph_n_nodes(*g); id++) {
		if (ct_graph_trains(*g, id))
			return CT_OK;
	}
	CT_FAIL(CT_CONFIG,
		"model.freeze freezes all parameters of stage %d of the pipeline, which must have some to train",
		s->pipe->stages.stage);
	return ct_error_hint("use launch.pipeline=1, fewer stages, or freeze fewer parameters");
}

enum ct_status ct_session_graph(struct ct_session *s, struct ct_shape input, ct_graph **out)
{
	CT_TRY(ct_plan_graph(s->cfg, ct_dataset_info(s->data.train ? s->data.train : s->data.val), input, out));
	return s->pipe ? take_stage(s, out) : CT_OK;
}
