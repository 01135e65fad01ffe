/* All candidates of a graph run on the same operands in one block of memory, with the largest workspace that one of
 * them needs. The first run loads the kernels and is not counted. A candidate that seems to take more than twice the
 * best time is given up after it was measured twice; the others are repeated until events are precise enough, and the
 * shortest time counts. If cuDNN refuses to execute a candidate, it is skipped, but only if the device still works,
 * because a device does not recover from an error. */
#include "nn/cuda/tune/timing.h"

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "base/device/cuda_check.h"

#define CT_LOG_COMPONENT "nn"
#include "base/log.h"

enum { ALIGN = 256, ROUNDS = 3, MAX_REPEATS = 8, BYTE = 0x3C };
/* A run of plans that take less is repeated, because the events themselves take a few microseconds. */
static const int64_t enough_ns = 200000;

struct run {
	const struct ct__timing *where;
	const ct__cudnn_graph *graph;
	ct_event *from, *to;
	void *memory;
	bool refused; /* the last error came from cuDNN when it was to execute the plan */
};

size_t ct__plan_place(const ct__cudnn_graph *g, size_t offsets[CT__CUDNN_MAX_TENSORS])
{
	size_t at = 0;

	for (int id = 1; id <= ct__cudnn_graph_n_tensors(g); id++) {
		offsets[id - 1] = at;
		if (!ct__cudnn_graph_is_virtual(g, id))
			at += (ct__cudnn_graph_bytes(g, id) + ALIGN - 1) / ALIGN * ALIGN;
	}
	return at;
}

static enum ct_status execute(const struct ct__timing *t, ct__cudnn_plan *p, const ct__cudnn_pack *pack)
{
	return ct_cuda_library_posted(t->stream, ct__cudnn_plan_execute(p, pack, t->handle), "cudnnBackendExecute");
}

enum ct_status ct__plan_execute(const struct ct__timing *t, const ct__cudnn_graph *g, ct__cudnn_plan *p,
				const ct__cudnn_pack *pack)
{
	const enum ct_status st = execute(t, p, pack);
	struct ct_error first;

	if (st == CT_OK || st == CT_NOMEM || ct__cudnn_plan_info(p)->executed || !ct__timing_recover(t))
		return st;
	ct_error_save(&first);
	ct_error_clear();
	if (ct__cudnn_plan_rebuild(p, g, t->target, t->handle) == CT_OK && execute(t, p, pack) == CT_OK) {
		CT_WARN("plan %s of \"%s\" was made again for a handle, because it failed: %s",
			ct__cudnn_plan_info(p)->config, ct__cudnn_graph_text(g), first.message);
		return CT_OK;
	}
	ct_error_clear();
	return ct_error_restore(&first);
}

static enum ct_status measure(struct run *r, ct__cudnn_plan *p, const ct__cudnn_pack *pack, int repeats, int64_t *ns)
{
	int64_t total;

	r->refused = false;
	CT_TRY(ct_event_record(r->from, r->where->stream));
	for (int i = 0; i < repeats; i++) {
		r->refused = true;
		CT_TRY(ct__plan_execute(r->where, r->graph, p, pack));
		r->refused = false;
	}
	CT_TRY(ct_event_record(r->to, r->where->stream));
	CT_TRY(ct_event_wait(r->to, CT_FOREVER));
	CT_TRY(ct_event_elapsed(r->from, r->to, &total));
	*ns = total / repeats;
	return CT_OK;
}

static enum ct_status time_plan(struct run *r, ct__cudnn_plan *p, const ct__cudnn_pack *pack, int64_t best, int64_t *ns)
{
	int64_t again;

	CT_TRY(measure(r, p, pack, 1, ns)); /* loads the kernels */
	CT_TRY(measure(r, p, pack, 1, ns));
	if (*ns / 2 > best) {
		CT_TRY(measure(r, p, pack, 1, &again));
		*ns = again < *ns ? again : *ns;
		if (*ns / 2 > best)
			return CT_OK;
	}
	const int64_t wanted = enough_ns / (*ns > 0 ? *ns : 1) + 1;
	*ns = INT64_MAX;
	for (int i = 0; i < ROUNDS; i++) {
		CT_TRY(measure(r, p, pack, wanted < MAX_REPEATS ? (int)wanted : MAX_REPEATS, &again));
		*ns = again < *ns ? again : *ns;
	}
	return CT_OK;
}

/* Whether other plans can still be executed after an error of this one. */
static bool can_skip(const struct run *r, enum ct_status st)
{
	return r->refused && st != CT_NOMEM && ct__timing_recover(r->where);
}

static enum ct_status time_all(struct run *r, const ct__cudnn_graph *g, struct ct__cudnn_candidates *c,
			       const ct__cudnn_pack *pack, int *best, int64_t *ns)
{
	*best = 0;
	*ns = INT64_MAX;
	for (int i = 0; i < c->n; i++) {
		const char *config = ct__cudnn_plan_info(c->plans[i])->config;
		int64_t time = 0;
		const enum ct_status st = time_plan(r, c->plans[i], pack, *ns, &time);

		if (st == CT_OK && time < *ns) {
			*ns = time;
			*best = i;
		}
		if (st == CT_OK)
			continue;
		if (!can_skip(r, st) || (i + 1 == c->n && *ns == INT64_MAX))
			return ct_error_wrap("timing plan %s of \"%s\"", config, ct__cudnn_graph_text(g));
		CT_DEBUG("plan %s of \"%s\" is skipped: %s", config, ct__cudnn_graph_text(g), ct_error_message());
		ct_error_clear();
		c->n_failed++;
		if (*ns == INT64_MAX)
			*best = i + 1; /* for a lack of memory later */
	}
	return CT_OK;
}

/* Allocates the memory and the events. The contents are small numbers, because the time of some kernels depends on
 * them. */
static enum ct_status prepare(struct run *r, const ct__cudnn_graph *g, const struct ct__cudnn_candidates *c,
			      ct__cudnn_pack **pack)
{
	size_t offsets[CT__CUDNN_MAX_TENSORS], workspace_bytes = 0;
	void *pointers[CT__CUDNN_MAX_TENSORS];

	for (int i = 0; i < c->n; i++) {
		const size_t n = (size_t)ct__cudnn_plan_info(c->plans[i])->workspace_bytes;

		workspace_bytes = n > workspace_bytes ? n : workspace_bytes;
	}
	const size_t bytes = ct__plan_place(g, offsets);
	CT_TRY(ct_device_mem_alloc(r->where->device, bytes + workspace_bytes, false, &r->memory));
	for (int i = 0; i < ct__cudnn_graph_n_tensors(g); i++)
		pointers[i] = (char *)r->memory + offsets[i];
	CT_TRY(ct_device_fill(r->where->device, r->memory, BYTE, bytes, r->where->stream));
	CT_TRY(ct_event_create(r->where->device, true, &r->from));
	CT_TRY(ct_event_create(r->where->device, true, &r->to));
	return ct__cudnn_pack_create(g, pointers, workspace_bytes ? (char *)r->memory + bytes : NULL, pack);
}

bool ct__timing_recover(const struct ct__timing *t)
{
	struct ct_error first;

	ct_error_save(&first);
	ct_error_clear();
	(void)cudaGetLastError();
	const bool healthy = ct_stream_sync(t->stream, CT_FOREVER) == CT_OK;
	ct_error_clear();
	(void)ct_error_restore(&first);
	return healthy;
}

enum ct_status ct__timing_best(const struct ct__timing *t, const ct__cudnn_graph *g, struct ct__cudnn_candidates *c,
			       int *best, int64_t *ns)
{
	struct run r = {.where = t, .graph = g};
	ct__cudnn_pack *pack = NULL;
	enum ct_status st = prepare(&r, g, c, &pack);

	if (st == CT_OK)
		st = time_all(&r, g, c, pack, best, ns);
	ct__cudnn_pack_destroy(pack);
	ct_event_destroy(r.to);
	ct_event_destroy(r.from);
	ct_device_mem_free(t->device, r.memory);
	return st;
}
