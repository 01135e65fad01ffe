/* A job is a few rows of one batch, or the order of an epoch. Threads take jobs under the lock and do them without it.
 * Batches are opened in order, and rows are taken from the newest one only, so batches become complete about in order.
 * ct_loader_next waits until the oldest one is complete. The counters say where each batch is: opened, delivered,
 * freed. A slot is written by threads between opening and completion, then belongs to the caller until its release.
 * Slots that are out stay adjacent in the ring, by exchanging them when they are released out of order.
 *
 * The order of the next epoch is computed into the other of two buffers, once no chunk uses it any more (users). If
 * several rows fail, the error of the first row counts, so that the outcome does not depend on the threads. A seek lets
 * running jobs end (hold), then starts anew; nothing is freed. Without threads, the caller does the same jobs
 * itself. */
#include "data/loader/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process/rank_page.h"
#include "data/dataset_impl.h"
#include "data/loader/loader_impl.h"

#define PREFETCH_ROWS 6

/* The work of a thread: rows [first, first + n) of a slot or, if slot is NULL, the order of an epoch. */
struct job {
	struct ct_loader_slot *slot;
	struct ct_loader_order *order;
	uint32_t first, n;
};

static struct ct_loader_slot *slot_of(const ct_loader *l, uint64_t i)
{
	return l->ring[i % l->depth];
}

/* Batches that are out. Only the caller's thread changes this. */
static uint32_t n_out(const ct_loader *l)
{
	return (uint32_t)(l->n_delivered - l->n_freed);
}

static uint32_t n_free(const ct_loader *l)
{
	return l->depth - (uint32_t)(l->n_opened - l->n_freed);
}

/* Returns the order to compute now: that of the next batch or, well before it is needed, that of the next epoch. NULL
 * if there is none. */
static struct ct_loader_order *order_to_make(const ct_loader *l, uint32_t *epoch)
{
	const struct ct_loader_order *o = &l->orders[l->epoch % 2];
	bool have = o->valid && o->epoch == l->epoch;

	*epoch = l->epoch;
	if (have) {
		*epoch = l->epoch + 1;
		o = &l->orders[*epoch % 2];
		if ((o->valid && o->epoch == *epoch) || (l->step < l->steps / 2 && n_free(l) > l->ahead / 2))
			return NULL;
	}
	return o->making || o->users ? NULL : (struct ct_loader_order *)(uintptr_t)o;
}

void ct__loader_size_at(const ct_loader *l, uint32_t epoch, int *h, int *w)
{
	const struct ct_dataset_info *info = l->rows.info;

	*h = l->transform.h;
	*w = l->transform.w;
	for (int i = 0; i < l->n_sizes && l->sizes[i].epoch <= epoch; i++) {
		*h = l->sizes[i].h;
		*w = l->sizes[i].w;
	}
	*h = *h ? *h : info->h;
	*w = *w ? *w : info->w;
}

size_t ct__loader_row_bytes(const ct_loader *l, int h, int w)
{
	if (l->transform.crop == CT_CROP_NONE)
		return l->rows.info->sample_bytes;
	return (size_t)h * (size_t)w * (size_t)l->rows.c;
}

/* Opens the next batch. Returns false if no slot is free or if its order has not been computed yet. A batch without
 * rows is ready at once. */
static bool open_batch(ct_loader *l)
{
	struct ct_loader_order *o = &l->orders[l->epoch % 2];
	struct ct_sampler_slice slice;
	struct ct_loader_slot *s;

	if (n_free(l) == 0 || !o->valid || o->epoch != l->epoch)
		return false;
	s = l->newest = slot_of(l, l->n_opened++);
	slice = ct_sampler_slice(&l->rows.sampler, l->step, l->micro);
	s->first = slice.first;
	s->done = 0;
	s->failed = false;
	s->n_uses = 0;
	s->batch = (struct ct_loader_batch){
		.x = s->x,
		.rows = s->rows,
		.labels = s->labels,
		.labels_b = s->labels_b,
		.mix = s->mix,
		.targets = s->targets,
		.samples = s->samples,
		.n = slice.count,
		.n_global = slice.n_global,
		.in_batch = slice.in_batch,
		.epoch = l->epoch,
		.step = l->step,
		.micro = l->micro,
		.last_of_step = l->micro + 1 == l->rows.sampler.accumulate,
	};
	s->batch.last_of_epoch = s->batch.last_of_step && l->step + 1 == l->steps;
	ct__loader_size_at(l, l->epoch, &s->batch.h, &s->batch.w);
	s->row_bytes = ct__loader_row_bytes(l, s->batch.h, s->batch.w);
	ct__loader_neighbors(&l->rows, s);
	if (s->pairs)
		memset((void *)s->pairs, 0, s->n_work / 2 + 1);
	l->row = 0;
	if (s->batch.n)
		o->users++;
	else
		pthread_cond_signal(&l->ready);
	if (s->batch.last_of_step) {
		l->micro = 0;
		l->step++;
	} else {
		l->micro++;
	}
	if (l->step == l->steps) {
		l->step = 0;
		l->epoch++;
	}
	return true;
}

/* Under the lock. */
static bool take_job(ct_loader *l, struct job *job)
{
	uint32_t epoch;
	struct ct_loader_slot *s;

	*job = (struct job){.order = order_to_make(l, &epoch)};
	if (job->order) {
		job->order->making = true;
		job->order->valid = false;
		job->order->epoch = epoch;
		l->busy++;
		return true;
	}
	while (!l->newest || l->row == l->newest->n_work) {
		if (!open_batch(l))
			return false;
	}
	s = l->newest;
	job->slot = s;
	job->order = &l->orders[s->batch.epoch % 2];
	job->first = l->row;
	job->n = s->n_work - l->row < l->chunk_rows ? s->n_work - l->row : l->chunk_rows;
	l->row += job->n;
	if (l->row < s->n_work)
		job->order->users++; /* else this chunk takes over the use of the batch */
	l->busy++;
	return true;
}

/* Call without the lock. Returns the number of rows that were filled before one failed. The thread's error chain then
 * describes that row. */
static uint32_t run_job(ct_loader *l, const struct job *job, struct ct_loader_worker *w)
{
	const struct ct_loader_slot *s = job->slot;
	const uint32_t *order = job->order->perm;

	ct_rank_thread_doing(s ? CT_DOING_SAMPLE : CT_DOING_ORDER, s ? 0 : job->order->epoch);
	if (!s) {
		ct_sampler_order(&l->rows.sampler, job->order->epoch, job->order->perm);
		return 0;
	}
	if (w->transformer)
		ct_transformer_resize(w->transformer, s->batch.h, s->batch.w);
	for (uint32_t i = job->first; i < job->first + job->n; i++) {
		if (s->x && i + PREFETCH_ROWS < s->batch.n)
			ct__dataset_prefetch(l->rows.data, order[s->first + i + PREFETCH_ROWS]);
		if (i < s->batch.n)
			ct_rank_thread_number(order[s->first + i]);
		if (ct__loader_fill(&l->rows, &l->bad, w, job->slot, order, i) < 0)
			return i - job->first;
	}
	return job->n;
}

static void add_times(struct ct_transform_times *sum, const struct ct_transform_times *now,
		      const struct ct_transform_times *before)
{
	sum->read_ns += now->read_ns - before->read_ns;
	sum->decode_ns += now->decode_ns - before->decode_ns;
	sum->resize_ns += now->resize_ns - before->resize_ns;
	sum->distort_ns += now->distort_ns - before->distort_ns;
	sum->images += now->images - before->images;
	sum->encoded_bytes += now->encoded_bytes - before->encoded_bytes;
	sum->decoded_pixels += now->decoded_pixels - before->decoded_pixels;
	sum->warnings += now->warnings - before->warnings;
}

/* Under the lock. */
static void collect_stats(ct_loader *l, struct ct_loader_worker *w)
{
	const struct ct_transform_times *now = w->transformer ? ct_transformer_times(w->transformer) : &w->seen;

	add_times(&l->stats.times, now, &w->seen);
	w->seen = *now;
	l->stats.assemble_ns += w->assemble_ns;
	w->assemble_ns = 0;
}

/* Under the lock. */
static void finish_job(ct_loader *l, const struct job *job, struct ct_loader_worker *w, uint32_t n_good)
{
	struct ct_loader_slot *s = job->slot;

	l->busy--;
	collect_stats(l, w);
	if (!s) {
		job->order->making = false;
		job->order->valid = true;
		pthread_cond_broadcast(&l->work);
	} else {
		job->order->users--;
		if (n_good < job->n && (!s->failed || job->first + n_good < s->failed_row)) {
			s->failed = true;
			s->failed_row = job->first + n_good;
			ct_error_save(&s->error);
		}
		s->done += job->n;
		if (s->done == s->n_work && s == slot_of(l, l->n_delivered))
			pthread_cond_signal(&l->ready);
	}
	if (l->hold && l->busy == 0)
		pthread_cond_signal(&l->idle);
}

void *ct__loader_work(void *arg)
{
	struct ct_loader_worker *w = arg;
	ct_loader *l = w->loader;
	struct job job;

	ct_rank_thread_enter();
	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		uint32_t n_good;

		if (l->hold || !take_job(l, &job)) {
			ct_rank_thread_doing(CT_DOING_WAIT, 0);
			pthread_cond_wait(&l->work, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		n_good = run_job(l, &job, w);
		pthread_mutex_lock(&l->lock);
		finish_job(l, &job, w, n_good);
	}
	pthread_mutex_unlock(&l->lock);
	ct_rank_thread_leave();
	return NULL;
}

static bool is_ready(const ct_loader *l)
{
	const struct ct_loader_slot *s = slot_of(l, l->n_delivered);

	return l->n_opened > l->n_delivered && s->done == s->n_work;
}

/* Does the work of the threads if there are none. Called under the lock, which no one else uses then. */
static void fill_inline(ct_loader *l)
{
	struct job job;

	while (!is_ready(l) && take_job(l, &job))
		finish_job(l, &job, l->workers, run_job(l, &job, l->workers));
	CT_ASSERT(is_ready(l));
}

static enum ct_status wait_ready(ct_loader *l, int64_t deadline_ns)
{
	int64_t begin = ct_now_ns();
	int err = 0;

	if (l->n_threads == 0 && !is_ready(l))
		fill_inline(l);
	while (!is_ready(l) && err != ETIMEDOUT)
		err = ct_cond_wait_until(&l->ready, &l->lock, deadline_ns);
	l->stats.wait_ns += ct_now_ns() - begin;
	if (is_ready(l))
		return CT_OK;
	CT_FAIL(CT_TIMEOUT, "%d loader threads of %s have not delivered a batch in time", l->n_threads,
		l->rows.info->name);
	return ct_error_hint(
		"check whether the storage of the data responds; if it is only slow, increase data.workers");
}

/* Called without the lock, because only the caller uses a batch that is ready but not delivered. */
static enum ct_status settle(ct_loader *l, struct ct_loader_slot *s)
{
	if (s->failed)
		return ct_error_restore(&s->error);
	if (s->n_uses == 0)
		return ct__bad_list_check(&l->bad, &l->rows);
	s->batch.n_bad = 0;
	for (uint32_t i = 0; i < s->n_uses; i++)
		s->batch.n_bad += s->uses[i].attempt == 0 && s->uses[i].row < s->batch.n;
	CT_TRY(ct__bad_list_report(&l->bad, &l->rows, s));
	if (l->rows.policy == CT_BAD_DROP)
		ct__loader_compact(s, l->rows.info);
	return CT_OK;
}

enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out)
{
	enum ct_status st;
	struct ct_loader_slot *s;

	*out = (struct ct_loader_batch){0};
	if (n_out(l) >= l->max_out)
		return CT_FAIL(CT_BUG, "a batch was requested while %u are out, which is the limit: release one first",
			       n_out(l));
	pthread_mutex_lock(&l->lock);
	st = wait_ready(l, deadline_ns);
	s = slot_of(l, l->n_delivered);
	pthread_mutex_unlock(&l->lock);
	CT_TRY(st);
	CT_TRY(settle(l, s));
	*out = s->batch;
	out->slot = s;
	pthread_mutex_lock(&l->lock);
	l->n_delivered++;
	l->stats.batches++;
	pthread_mutex_unlock(&l->lock);
	return CT_OK;
}

void ct_loader_release(ct_loader *l, struct ct_loader_batch *b)
{
	struct ct_loader_slot *s = b->slot;
	uint64_t i = l->n_freed;

	if (!s)
		return;
	while (i < l->n_delivered && slot_of(l, i) != s)
		i++;
	CT_ASSERT(i < l->n_delivered); /* else the batch is from another loader, or a copy of a released one */
	b->x = NULL;
	b->rows = NULL;
	b->labels = b->labels_b = NULL;
	b->mix = b->targets = NULL;
	b->samples = NULL;
	b->slot = NULL;
	pthread_mutex_lock(&l->lock);
	/* The slots that are out must stay adjacent in the ring, so the oldest one takes the place of the released
	 * one. */
	l->ring[i % l->depth] = slot_of(l, l->n_freed);
	l->ring[l->n_freed % l->depth] = s;
	l->n_freed++;
	/* Wake up the threads only when half of the batches can be prepared, not for every batch. */
	if (n_free(l) >= l->ahead / 2)
		pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
}

void ct_loader_stats(ct_loader *l, struct ct_loader_stats *out)
{
	pthread_mutex_lock(&l->lock);
	*out = l->stats;
	pthread_mutex_unlock(&l->lock);
	out->bad = l->bad.n_reported;
	out->n_threads = l->n_threads;
}

enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step)
{
	if (step > l->steps)
		return CT_FAIL(CT_DATA,
			       "cannot start at step %" PRIu64 ": an epoch has only %" PRIu64 " steps of %u samples",
			       step, l->steps, l->rows.sampler.global_batch);
	if (n_out(l) > 0)
		return CT_FAIL(CT_BUG, "cannot seek while %u batches of the loader are out", n_out(l));
	pthread_mutex_lock(&l->lock);
	l->hold = true;
	while (l->busy)
		pthread_cond_wait(&l->idle, &l->lock);
	l->hold = false;
	l->epoch = step == l->steps ? epoch + 1 : epoch;
	l->step = step == l->steps ? 0 : step;
	l->micro = 0;
	l->row = 0;
	l->n_opened = l->n_delivered = l->n_freed = 0;
	l->newest = NULL;
	l->orders[0].users = l->orders[1].users = 0;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	return CT_OK;
}
