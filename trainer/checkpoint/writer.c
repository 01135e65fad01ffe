/* Snapshots, and the thread that writes them. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/snapshot_impl.h"

static enum ct_status copy_arena(ct_arena *a, ct_stream *s, void **out)
{
	CT_TRY_ALLOC(*out = ct_realloc(NULL, ct_arena_bytes(a) ? ct_arena_bytes(a) : 1, 1));
	return ct_arena_read(a, 0, ct_arena_elems(a), *out, s);
}

static enum ct_status add(struct ct_snapshot *snap, const char *name, ct_arena *params, ct_arena *buffers, ct_stream *s)
{
	struct ct_snapshot_group *g = &snap->groups[snap->n_groups];
	void *copy;

	CT_ASSERT(snap->n_groups < CT_SNAPSHOT_MAX_GROUPS);
	snap->n_groups++;
	g->name = name;
	g->params.n = ct_arena_elems(params);
	CT_TRY(copy_arena(params, s, &g->params.data));
	if (!buffers)
		return CT_OK;
	CT_TRY(copy_arena(buffers, s, &copy));
	g->buffers = copy;
	return CT_OK;
}

enum ct_status ct__snapshot_take(const struct ct_checkpoint_source *src, struct ct_snapshot *out)
{
	ct_stream *s = ct_engine_stream(ct_net_engine(src->net));
	const char *name;

	*out = (struct ct_snapshot){
		.net = src->net, .state = *src->state, .guard = src->guard, .start_ns = ct_now_ns()};
	CT_TRY_ALLOC(out->config_lines = ct_strdup(src->config_lines ? src->config_lines : ""));
	CT_TRY(add(out, "", ct_net_params(src->net), ct_net_buffers(src->net), s));
	for (int i = 0; src->optim && (name = ct_optim_state_name(src->optim, i)); i++)
		CT_TRY(add(out, name, ct_optim_state(src->optim, i), NULL, s));
	if (src->ema)
		CT_TRY(add(out, CT_CKPT_EMA, ct_ema_params(src->ema), ct_ema_buffers(src->ema), s));
	return CT_OK;
}

void ct__snapshot_release(struct ct_snapshot *snap)
{
	for (int i = 0; i < snap->n_groups; i++) {
		ct_free(snap->groups[i].buffers);
		ct_free(snap->groups[i].params.data);
	}
	ct_free(snap->config_lines);
	*snap = (struct ct_snapshot){0};
}

enum ct_status ct_checkpoint_save(const char *run_dir, const struct ct_checkpoint_source *src, int keep_last, bool best,
				  struct ct_checkpoint_result *out)
{
	struct ct_checkpoint_result r;
	struct ct_snapshot snap;
	enum ct_status st = ct__snapshot_take(src, &snap);

	if (st == CT_OK)
		st = ct__snapshot_write(run_dir, &snap, keep_last, best, &r);
	ct__snapshot_release(&snap);
	CT_TRY(st);
	if (out)
		*out = r;
	else
		ct_free(r.path);
	return CT_OK;
}

struct ct_checkpoint_writer {
	char *run_dir;
	int keep_last;
	bool busy; /* a save was posted and not taken */
	bool best;
	struct ct_thread thread;
	struct ct_snapshot snapshot;
	atomic_bool done;
	struct ct_checkpoint_result result;
	struct ct_error error; /* status CT_OK: saved */
};

enum ct_status ct_checkpoint_writer_create(const char *run_dir, int keep_last, ct_checkpoint_writer **out)
{
	ct_checkpoint_writer *w;

	CT_TRY_ALLOC(w = CT_NEW(ct_checkpoint_writer));
	w->keep_last = keep_last;
	w->run_dir = ct_strdup(run_dir);
	if (!w->run_dir) {
		ct_free(w);
		return CT_NOMEM;
	}
	*out = w;
	return CT_OK;
}

static void *write_thread(void *arg)
{
	ct_checkpoint_writer *w = arg;
	enum ct_status st;

	ct_parallel_use_threads(1); /* the others compute */
	st = ct__snapshot_write(w->run_dir, &w->snapshot, w->keep_last, w->best, &w->result);

	w->error = (struct ct_error){0};
	if (st < 0)
		ct_error_save(&w->error);
	w->error.status = st;
	atomic_store_explicit(&w->done, true, memory_order_release);
	return NULL;
}

enum ct_status ct_checkpoint_writer_post(ct_checkpoint_writer *w, const struct ct_checkpoint_source *src, bool best)
{
	enum ct_status st;

	CT_ASSERT(!w->busy);
	st = ct__snapshot_take(src, &w->snapshot);
	w->best = best;
	atomic_store_explicit(&w->done, false, memory_order_relaxed);
	if (st == CT_OK)
		st = ct_thread_start(&w->thread, "checkpoint", write_thread, w);
	if (st < 0)
		ct__snapshot_release(&w->snapshot);
	else
		w->busy = true;
	return st;
}

enum ct_status ct_checkpoint_writer_take(ct_checkpoint_writer *w, bool wait, struct ct_checkpoint_result *out)
{
	*out = (struct ct_checkpoint_result){0};
	if (!w->busy || (!wait && !atomic_load_explicit(&w->done, memory_order_acquire)))
		return CT_OK;
	ct_thread_join(&w->thread);
	ct__snapshot_release(&w->snapshot);
	w->busy = false;
	if (w->error.status < 0)
		return ct_error_restore(&w->error);
	*out = w->result;
	return CT_OK;
}

void ct_checkpoint_writer_destroy(ct_checkpoint_writer *w)
{
	struct ct_checkpoint_result r;
	struct ct_error keep;

	if (!w)
		return;
	ct_error_save(&keep);
	if (ct_checkpoint_writer_take(w, true, &r) < 0)
		ct_error_clear();
	ct_free(r.path);
	ct_free(w->run_dir);
	ct_free(w);
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}
