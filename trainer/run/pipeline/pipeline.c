/* The graph of the first image size determines where the model is cut. Later sizes use the same cuts, so the
 * parameters of a stage never change. Each end of a stage has one buffer for values and one for gradients, which is
 * enough because every transfer is waited for before the next pass; only inputs are kept for each micro-batch in
 * flight on a CPU, whose backward pass reads them again. A new image size may replace the buffers, but never makes
 * them smaller. If a message fails, the others of the transfer are waited for, too, since only that releases them, and
 * the first error is reported. */
#include "trainer/run/pipeline/pipeline.h"

#include <string.h>

#include "base/mem.h"
#include "trainer/run/pipeline/pass_schedule.h"

enum { TAG_FORWARD, TAG_BACKWARD };

enum ct_status ct_pipeline_create(const struct ct_world *w, ct_comm *world, ct_device *device,
				  const struct ct_stages *stages, uint32_t n_micros, struct ct_pipeline **out)
{
	struct ct_pipeline *p;
	int *stage_of;

	CT_TRY_ALLOC(p = CT_NEW(struct ct_pipeline));
	p->stages = *stages;
	p->world = world;
	p->device = device;
	p->n_contexts = ct_pipe_in_flight(stages->n, stages->stage, (int)n_micros);
	p->n_inputs = !ct_device_caps(device)->async ? p->n_contexts : stages->stage > 0 ? 1 : 0;
	stage_of = CT_NEW_ARRAY(int, (size_t)w->id.world);
	for (int q = 0; stage_of && q < w->id.world; q++)
		stage_of[q] = q % stages->n;
	enum ct_status st = stage_of ? ct_world_part(w, stage_of, stages->stage, &p->part) : CT_NOMEM;
	ct_free(stage_of);
	if (st < 0) {
		ct_pipeline_destroy(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

static void free_buffers(struct ct_pipeline *p)
{
	for (int i = 0; i < p->n_inputs; i++) {
		ct_device_host_free(p->device, p->x[i]);
		p->x[i] = NULL;
	}
	ct_device_host_free(p->device, p->y);
	ct_device_host_free(p->device, p->dy);
	ct_device_host_free(p->device, p->dx);
	p->y = p->dy = p->dx = NULL;
	p->x_room = p->y_room = 0;
}

void ct_pipeline_destroy(struct ct_pipeline *p)
{
	if (!p)
		return;
	free_buffers(p);
	ct_graph_destroy(p->whole);
	ct_free(p->part.peers);
	ct_free(p);
}

enum ct_status ct_pipeline_take_stage(struct ct_pipeline *p, ct_graph **g)
{
	const int k = p->stages.stage;
	ct_graph *whole = *g, *stage;

	if (!p->whole)
		CT_TRY(ct_graph_cut(whole, p->stages.n, p->first));
	CT_TRY(ct_graph_stage(whole, p->first[k], p->first[k + 1], &stage));
	*g = stage;
	if (p->whole)
		ct_graph_destroy(whole);
	else
		p->whole = whole;
	return CT_OK;
}

void ct_pipeline_net_opts(const struct ct_stages *stages, uint32_t n_micros, struct ct_net_opts *o)
{
	o->contexts = ct_pipe_in_flight(stages->n, stages->stage, (int)n_micros);
	o->input_gradient = stages->stage > 0;
	if (stages->stage > 0)
		o->input = CT_INPUT_F32_NCHW;
}

float *ct_pipeline_input(const struct ct_pipeline *p, int context)
{
	return p->n_inputs > 0 ? p->x[context % p->n_inputs] : NULL;
}

bool ct_pipeline_is_first(const struct ct_pipeline *p)
{
	return p->stages.stage == 0;
}

bool ct_pipeline_is_last(const struct ct_pipeline *p)
{
	return p->stages.stage == p->stages.n - 1;
}

static size_t row_elems(const ct_graph *g, int node)
{
	const struct ct_shape *s = &ct_graph_node(g, node)->shape;

	return (size_t)s->c * (size_t)s->h * (size_t)s->w;
}

static enum ct_status alloc_buffer(struct ct_pipeline *p, size_t elems, float **out)
{
	void *memory;

	CT_TRY(ct_device_host_alloc(p->device, elems * sizeof(float), &memory));
	*out = memory;
	return CT_OK;
}

/* On a CPU, the first stage also has memory for its input: images as floats are read again by the backward pass, when
 * the loader has taken its batch back. */
enum ct_status ct_pipeline_reserve(struct ct_pipeline *p, const ct_graph *stage, int rows)
{
	const size_t in = row_elems(stage, 0), out = row_elems(stage, ct_graph_loss(stage));
	const size_t x_room = in * (size_t)rows, y_room = out * (size_t)rows;

	p->in_elems = in;
	p->out_elems = ct_pipeline_is_last(p) ? 0 : out;
	if (x_room <= p->x_room && y_room <= p->y_room)
		return CT_OK;
	const size_t x = x_room > p->x_room ? x_room : p->x_room, y = y_room > p->y_room ? y_room : p->y_room;
	free_buffers(p);
	for (int i = 0; i < p->n_inputs; i++)
		CT_TRY(alloc_buffer(p, x, &p->x[i]));
	if (!ct_pipeline_is_first(p))
		CT_TRY(alloc_buffer(p, x, &p->dx));
	if (!ct_pipeline_is_last(p)) {
		CT_TRY(alloc_buffer(p, y, &p->y));
		CT_TRY(alloc_buffer(p, y, &p->dy));
	}
	p->x_room = x;
	p->y_room = y;
	return CT_OK;
}

static ct_work **next_work(struct ct_transfer *t)
{
	CT_ASSERT(t->n < (int)CT_ARRAY_LEN(t->works));
	return &t->works[t->n++];
}

enum ct_status ct_pipeline_send_output(struct ct_pipeline *p, int rows, struct ct_transfer *t)
{
	if (ct_pipeline_is_last(p))
		return CT_OK;
	return ct_comm_send(p->world, p->y, p->out_elems * (size_t)rows, CT_F32, ct_comm_rank(p->world) + 1,
			    TAG_FORWARD, next_work(t));
}

enum ct_status ct_pipeline_receive_input(struct ct_pipeline *p, int context, int rows, struct ct_transfer *t)
{
	if (ct_pipeline_is_first(p))
		return CT_OK;
	return ct_comm_recv(p->world, ct_pipeline_input(p, context), p->in_elems * (size_t)rows, CT_F32,
			    ct_comm_rank(p->world) - 1, TAG_FORWARD, next_work(t));
}

enum ct_status ct_pipeline_send_gradient(struct ct_pipeline *p, int rows, struct ct_transfer *t)
{
	if (ct_pipeline_is_first(p))
		return CT_OK;
	return ct_comm_send(p->world, p->dx, p->in_elems * (size_t)rows, CT_F32, ct_comm_rank(p->world) - 1,
			    TAG_BACKWARD, next_work(t));
}

enum ct_status ct_pipeline_receive_gradient(struct ct_pipeline *p, int rows, struct ct_transfer *t)
{
	if (ct_pipeline_is_last(p))
		return CT_OK;
	return ct_comm_recv(p->world, p->dy, p->out_elems * (size_t)rows, CT_F32, ct_comm_rank(p->world) + 1,
			    TAG_BACKWARD, next_work(t));
}

enum ct_status ct_pipeline_wait(struct ct_transfer *t)
{
	enum ct_status st = CT_OK;

	/* Waiting also releases the operations after one that has failed. */
	for (int i = 0; i < t->n; i++) {
		struct ct_error first;

		if (st == CT_OK) {
			st = ct_work_wait(t->works[i]);
			continue;
		}
		ct_error_save(&first);
		if (ct_work_wait(t->works[i]) < 0)
			ct_error_clear();
		st = ct_error_restore(&first);
	}
	*t = (struct ct_transfer){0};
	return st;
}

enum ct_status ct_pipeline_sum_stages(void *user, double *v)
{
	struct ct_pipeline *p = user;
	ct_work *w;

	if (p->stages.replica > 0)
		*v = 0;
	CT_TRY(ct_comm_allreduce(p->world, v, 1, CT_F64, CT_SUM, &w));
	return ct_work_wait(w);
}

enum ct_status ct_pipeline_check_same(ct_comm *group, const char digest[65])
{
	const int n = ct_comm_size(group), own = ct_comm_rank(group);
	char *all;
	ct_work *w;

	CT_TRY_ALLOC(all = ct_calloc((size_t)n, 65));
	enum ct_status st = ct_comm_allgather(group, digest, all, 65, CT_U8, &w);
	if (st == CT_OK)
		st = ct_work_wait(w);
	for (int q = 0; st == CT_OK && q < n; q++) {
		if (memcmp(all + (size_t)q * 65, digest, 65) != 0) {
			CT_FAIL(CT_MISMATCH,
				"replicas %d and %d store the parameters of their common stage in different layouts",
				own, q);
			st = ct_error_hint("use the same engine version and the same kind of CPU on all hosts");
		}
	}
	ct_free(all);
	return st;
}
