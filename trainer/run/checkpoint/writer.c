/* Saves checkpoints in a thread while training continues. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/snapshot_impl.h"

struct ct_checkpoint_writer {
	char *run_dir;
	int keep_last;
	bool busy; /* a save was posted, and its result has not been taken */
	bool best;
	struct ct_thread thread;
	struct ct_snapshot snapshot; /* its memory is reused by the next save */
	int64_t exposed_ns;          /* time for which the caller has waited */
	atomic_bool done;
	struct ct_checkpoint_result result;
	struct ct_error error; /* its status is CT_OK if the checkpoint was saved */
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

	ct_parallel_use_threads(1); /* the other threads compute */
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
	int64_t t0 = ct_now_ns();
	enum ct_status st;

	CT_ASSERT(!w->busy);
	st = ct__snapshot_take(src, &w->snapshot);
	w->best = best;
	atomic_store_explicit(&w->done, false, memory_order_relaxed);
	if (st == CT_OK)
		st = ct_thread_start(&w->thread, "checkpoint", write_thread, w);
	w->busy = st == CT_OK;
	w->exposed_ns = ct_now_ns() - t0;
	return st;
}

enum ct_status ct_checkpoint_writer_take(ct_checkpoint_writer *w, bool wait, struct ct_checkpoint_result *out)
{
	int64_t t0 = ct_now_ns();

	*out = (struct ct_checkpoint_result){0};
	if (!w->busy || (!wait && !atomic_load_explicit(&w->done, memory_order_acquire)))
		return CT_OK;
	ct_thread_join(&w->thread);
	w->busy = false;
	if (w->error.status < 0)
		return ct_error_restore(&w->error);
	*out = w->result;
	out->exposed_seconds = (double)(w->exposed_ns + ct_now_ns() - t0) / (double)CT_SEC;
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
	ct__snapshot_release(&w->snapshot);
	ct_free(w->run_dir);
	ct_free(w);
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}
