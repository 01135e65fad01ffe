/* The arrays of struct ct_whole have the tensors of the complete graph in the order of its nodes. A stage consists of
 * consecutive nodes, so its values are one range of each array, and all ranks compute the same ranges from the
 * complete graph. Rank 0 copies its own stage and then exchanges one range after the other with the ranks 1 to P - 1,
 * group by group; each of them has memory for one group only. Both sides must list the groups (weights, optimizer
 * states, EMA) in the same order. The values are exchanged in the logical layout, so that a checkpoint does not depend
 * on the engine or on the number of stages. Messages are sent and received one at a time. */
#include "trainer/run/pipeline/gather.h"

#include <string.h>

#include "base/mem.h"

enum { TAG_VALUES = 2, MESSAGE_ELEMS = 4 << 20 };

/* The arenas of a group of tensors. */
struct group {
	ct_arena *params, *buffers; /* buffers may be NULL */
};

static int list_groups(ct_net *net, ct_optim *optim, ct_ema *ema, struct group out[CT_WHOLE_MAX_GROUPS])
{
	int n = 0;

	out[n++] = (struct group){ct_net_params(net), ct_net_buffers(net)};
	for (int i = 0; optim && ct_optim_state_name(optim, i); i++)
		out[n++] = (struct group){ct_optim_state(optim, i), NULL};
	if (ema)
		out[n++] = (struct group){ct_ema_params(ema), ct_ema_buffers(ema)};
	return n;
}

/* The elements of a stage in the arrays of struct ct_whole. */
struct range {
	size_t at, n;
};

/* `get` is ct_graph_param or ct_graph_buffer. */
static struct range range_of(const struct ct_pipeline *p, int stage,
			     const struct ct_param *(*get)(const ct_graph *g, int id), int n)
{
	struct range r = {0};

	for (int i = 0; i < n; i++) {
		const struct ct_param *tensor = get(p->whole, i);

		if (tensor->node < p->first[stage])
			r.at += tensor->n;
		else if (tensor->node < p->first[stage + 1])
			r.n += tensor->n;
	}
	return r;
}

static struct range params_of(const struct ct_pipeline *p, int stage)
{
	return range_of(p, stage, ct_graph_param, ct_graph_n_params(p->whole));
}

static struct range buffers_of(const struct ct_pipeline *p, int stage)
{
	return range_of(p, stage, ct_graph_buffer, ct_graph_n_buffers(p->whole));
}

/* Copies between an arena in the layout of the parameters and `values`, in the logical layout. */
static enum ct_status copy_params(ct_net *net, ct_arena *a, bool to_net, float *values)
{
	const ct_graph *g = ct_net_graph(net);
	enum ct_status st = CT_OK;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(a, to_net ? CT_MIRROR_WRITE : CT_MIRROR_READ, ct_engine_stream(ct_net_engine(net)), &m));
	for (int i = 0; i < ct_graph_n_params(g) && st == CT_OK; i++) {
		st = to_net ? ct_net_import(net, &m, i, values) : ct_net_export(net, &m, i, values);
		values += ct_graph_param(g, i)->n;
	}
	if (st == CT_OK)
		return ct_mirror_close(&m);
	ct_mirror_drop(&m);
	return st;
}

static enum ct_status copy_buffers(ct_net *net, ct_arena *a, bool to_net, float *values)
{
	const size_t bytes = ct_arena_bytes(a);
	struct ct_mirror m;

	if (bytes == 0)
		return CT_OK;
	CT_TRY(ct_mirror_open(a, to_net ? CT_MIRROR_WRITE : CT_MIRROR_READ, ct_engine_stream(ct_net_engine(net)), &m));
	memcpy(to_net ? m.data : values, to_net ? values : m.data, bytes);
	return ct_mirror_close(&m);
}

/* Messages of host memory go through memory of the GPU with NCCL, so they are short. */
static enum ct_status message(const struct ct_pipeline *p, bool send, float *values, size_t n, int peer)
{
	ct_work *w;

	for (size_t i = 0, part; i < n; i += part) {
		part = n - i < MESSAGE_ELEMS ? n - i : MESSAGE_ELEMS;
		CT_TRY(send ? ct_comm_send(p->world, values + i, part, CT_F32, peer, TAG_VALUES, &w)
			    : ct_comm_recv(p->world, values + i, part, CT_F32, peer, TAG_VALUES, &w));
		CT_TRY(ct_work_wait(w));
	}
	return CT_OK;
}

/* Rank 0: copies the values of its own stage, and exchanges those of the others. */
static enum ct_status move_root(const struct ct_pipeline *p, ct_net *net, const struct group *g, bool to_net,
				const struct ct_whole_group *w)
{
	CT_TRY(copy_params(net, g->params, to_net, w->params + params_of(p, 0).at));
	if (g->buffers)
		CT_TRY(copy_buffers(net, g->buffers, to_net, w->buffers + buffers_of(p, 0).at));
	for (int k = 1; k < p->stages.n; k++) {
		const struct range params = params_of(p, k), buffers = buffers_of(p, k);

		CT_TRY(message(p, to_net, w->params + params.at, params.n, k));
		if (g->buffers)
			CT_TRY(message(p, to_net, w->buffers + buffers.at, buffers.n, k));
	}
	return CT_OK;
}

/* The other ranks of the first replica. scratch: memory for the parameters and, after them, the buffers of the stage.
 */
static enum ct_status move_stage(const struct ct_pipeline *p, ct_net *net, const struct group *g, bool to_net,
				 float *scratch)
{
	const size_t n_params = params_of(p, p->stages.stage).n;
	const size_t n_buffers = g->buffers ? buffers_of(p, p->stages.stage).n : 0;
	float *buffers = scratch + n_params;

	if (to_net) {
		CT_TRY(message(p, false, scratch, n_params, 0));
		CT_TRY(message(p, false, buffers, n_buffers, 0));
	}
	CT_TRY(copy_params(net, g->params, to_net, scratch));
	if (n_buffers > 0)
		CT_TRY(copy_buffers(net, g->buffers, to_net, buffers));
	if (to_net)
		return CT_OK;
	CT_TRY(message(p, true, scratch, n_params, 0));
	return message(p, true, buffers, n_buffers, 0);
}

static enum ct_status move(const struct ct_pipeline *p, ct_net *net, ct_optim *optim, ct_ema *ema, bool to_net,
			   const struct ct_whole *w)
{
	const int stage = p->stages.stage;
	struct group groups[CT_WHOLE_MAX_GROUPS];
	float *scratch = NULL;
	enum ct_status st = CT_OK;

	if (p->stages.replica > 0)
		return CT_OK;
	if (stage > 0)
		CT_TRY_ALLOC(scratch = CT_NEW_ARRAY(float, params_of(p, stage).n + buffers_of(p, stage).n));
	const int n = list_groups(net, optim, ema, groups);
	for (int i = 0; i < n && st == CT_OK; i++)
		st = stage > 0 ? move_stage(p, net, &groups[i], to_net, scratch)
			       : move_root(p, net, &groups[i], to_net, &w->groups[i]);
	ct_free(scratch);
	return st;
}

enum ct_status ct_pipeline_gather(const struct ct_pipeline *p, ct_net *net, ct_optim *optim, ct_ema *ema,
				  struct ct_whole *w)
{
	if (p->stages.replica == 0 && p->stages.stage == 0 && !w->graph)
		CT_TRY(ct_whole_init(p->whole, optim, ema, w));
	return move(p, net, optim, ema, false, w);
}

enum ct_status ct_pipeline_scatter(const struct ct_pipeline *p, ct_net *net, ct_optim *optim, ct_ema *ema,
				   const struct ct_whole *w)
{
	return move(p, net, optim, ema, true, w);
}
