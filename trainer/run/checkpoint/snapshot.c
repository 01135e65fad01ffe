/* Training may change the weights as soon as this returns, so the copy is complete then: copies that the device makes
 * are waited for, and memory that the host can see is copied by the compute threads. If the weights stay unchanged,
 * such memory is not copied at all, which saves the memory of the copy in a run that saves only at its end. Memory is
 * kept from one snapshot to the next, since pinned memory is slow to allocate. While the writer's thread reads a
 * snapshot, its owner must not take the next one into it. Of a pipeline, the values are borrowed and not copied: they
 * are already in host memory of rank 0 and change only at the next gather. */
#include "trainer/run/checkpoint/snapshot_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "trainer/run/checkpoint/checkpoint.h"

#define COPY_GRAIN_BYTES (256 << 10)

struct copy {
	char *to;
	const char *from;
};

static void copy_range(void *arg, int64_t begin, int64_t end)
{
	const struct copy *c = arg;

	memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static void drop(ct_device *d, struct ct_mirror *m)
{
	if (!m->arena)
		ct_device_host_free(d, m->data);
	*m = (struct ct_mirror){0};
}

/* Provides host memory for n fp32 elements. Reuses the memory that an earlier snapshot left in m if it has the same
 * size. */
static enum ct_status reserve(ct_device *d, size_t n, struct ct_mirror *m)
{
	if (m->data && !m->arena && m->n == n)
		return CT_OK;
	drop(d, m);
	CT_TRY(ct_device_host_alloc(d, n ? n * sizeof(float) : 1, &m->data));
	m->n = n;
	return CT_OK;
}

/* Posts the copy if the device can make it. Otherwise copies with the compute threads, if a copy is necessary. */
static enum ct_status copy_arena(struct ct_snapshot *snap, ct_arena *a, const struct ct_checkpoint_source *src,
				 ct_stream *s, struct ct_mirror *out)
{
	const bool host_visible = ct_device_caps(snap->device)->host_visible;
	const size_t bytes = ct_arena_bytes(a);
	struct ct_mirror m;

	CT_ASSERT(ct_arena_dtype(a) == CT_F32);
	if (host_visible && src->unchanged) {
		drop(snap->device, out);
		return ct_mirror_open(a, CT_MIRROR_READ, s, out);
	}
	CT_TRY(reserve(snap->device, ct_arena_elems(a), out));
	if (!host_visible)
		return ct_device_copy(snap->device, out->data, ct_arena_at(a, 0), bytes, s);
	CT_TRY(ct_mirror_open(a, CT_MIRROR_READ, s, &m));
	ct_parallel_for(src->threads, (int64_t)bytes, COPY_GRAIN_BYTES, copy_range, &(struct copy){out->data, m.data});
	return ct_mirror_close(&m);
}

static enum ct_status add(struct ct_snapshot *snap, const char *name, ct_arena *params, ct_arena *buffers,
			  const struct ct_checkpoint_source *src, ct_stream *s)
{
	struct ct_snapshot_group *g = &snap->groups[snap->n_groups];

	CT_ASSERT(snap->n_groups < CT_SNAPSHOT_MAX_GROUPS);
	snap->n_groups++;
	g->name = name;
	g->has_buffers = buffers != NULL;
	g->whole = NULL;
	CT_TRY(copy_arena(snap, params, src, s, &g->params));
	return buffers ? copy_arena(snap, buffers, src, s, &g->buffers) : CT_OK;
}

static void add_whole(struct ct_snapshot *snap, const struct ct_whole *w)
{
	for (int i = 0; i < w->n_groups; i++) {
		struct ct_snapshot_group *g = &snap->groups[snap->n_groups++];

		g->name = w->groups[i].name;
		g->has_buffers = w->groups[i].buffers != NULL;
		g->whole = &w->groups[i];
	}
}

enum ct_status ct__snapshot_take(const struct ct_checkpoint_source *src, struct ct_snapshot *snap)
{
	ct_stream *s = ct_engine_stream(ct_net_engine(src->net));
	const char *name;

	CT_ASSERT(!snap->device || snap->device == ct_stream_device(s));
	snap->device = ct_stream_device(s);
	snap->net = src->net;
	snap->graph = src->whole ? src->whole->graph : ct_net_graph(src->net);
	snap->state = *src->state;
	snap->guard = src->guard;
	snap->description = src->description;
	snap->start_ns = ct_now_ns();
	snap->n_groups = 0;
	ct_free(snap->config_lines);
	ct_free(snap->net_plan);
	snap->net_plan = NULL;
	CT_TRY_ALLOC(snap->config_lines = ct_strdup(src->config_lines ? src->config_lines : ""));
	if (src->net_plan)
		CT_TRY_ALLOC(snap->net_plan = ct_strdup(src->net_plan));
	if (src->whole) {
		add_whole(snap, src->whole);
		return CT_OK;
	}
	CT_TRY(add(snap, "", ct_net_params(src->net), ct_net_buffers(src->net), src, s));
	for (int i = 0; src->optim && (name = ct_optim_state_name(src->optim, i)); i++)
		CT_TRY(add(snap, name, ct_optim_state(src->optim, i), NULL, src, s));
	if (src->ema)
		CT_TRY(add(snap, CT_CKPT_EMA, ct_ema_params(src->ema), ct_ema_buffers(src->ema), src, s));
	return ct_stream_sync(s, CT_FOREVER);
}

void ct__snapshot_release(struct ct_snapshot *snap)
{
	for (int i = 0; i < CT_SNAPSHOT_MAX_GROUPS; i++) {
		drop(snap->device, &snap->groups[i].buffers);
		drop(snap->device, &snap->groups[i].params);
	}
	ct_free(snap->config_lines);
	ct_free(snap->net_plan);
	*snap = (struct ct_snapshot){0};
}
