#include "data/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "data/dataset_impl.h"

#define ALIGN 64
#define MAX_THREADS 256
#define MAX_DEPTH 1024
#define CHUNK_BYTES (64 << 10) /* rows that a thread takes at once: enough to outweigh taking the lock */
#define PREFETCH_ROWS 6

/* A batch of the ring. Fields change under the loader's lock; the rows belong to the threads that took them. */
struct slot {
	uint8_t *x;
	int32_t *labels;
	float *targets;
	uint32_t *samples;
	struct ct_loader_batch batch;
	uint32_t first; /* place of row 0 in the epoch's order */
	uint32_t done;  /* rows filled or given up */
	bool failed;
	uint32_t failed_row;
	struct ct_error error; /* of failed_row, the lowest that failed */
};

/* The order of an epoch, in orders[epoch % 2]: one in use, the next one made ahead. */
struct order {
	uint32_t *perm;
	uint32_t epoch;
	bool valid, making;
	unsigned users; /* the newest batch while it has rows to take, and chunks in work */
};

/* Work taken by a thread: rows [first, first + n) of a slot, or (slot NULL) the order of an epoch. */
struct job {
	struct slot *slot;
	struct order *order;
	uint32_t first, n;
};

struct worker {
	struct ct_thread thread;
	ct_loader *loader;
	uint8_t *scratch; /* two images */
};

struct ct_loader {
	const ct_dataset *data;
	const struct ct_dataset_info *info;
	struct ct_sampler sampler;
	struct ct_augment augment;
	bool augments;
	int n_threads;
	uint32_t depth, chunk_rows;
	uint64_t steps; /* of an epoch */
	struct slot *slots;
	struct worker *workers; /* n_threads, or one for the caller */
	struct order orders[2];

	pthread_mutex_t lock;
	pthread_cond_t work, ready, idle;
	bool stop, hold;
	unsigned busy;         /* jobs in work */
	uint32_t epoch, micro; /* position of the batch to open next */
	uint64_t step;
	uint32_t row;                            /* next row to take of the newest batch */
	uint64_t n_opened, n_delivered, n_freed; /* batches since the last seek; batch i lies in slot i % depth */
};

static struct slot *slot_of(const ct_loader *l, uint64_t i)
{
	return &l->slots[i % l->depth];
}

static uint32_t n_free(const ct_loader *l)
{
	return l->depth - (uint32_t)(l->n_opened - l->n_freed);
}

/* The order to make now, or NULL: the one that the next batch needs, or, well before it is needed, the next epoch's. */
static struct order *order_to_make(const ct_loader *l, uint32_t *epoch)
{
	const struct order *o = &l->orders[l->epoch % 2];
	bool have = o->valid && o->epoch == l->epoch;

	*epoch = l->epoch;
	if (have) {
		*epoch = l->epoch + 1;
		o = &l->orders[*epoch % 2];
		if ((o->valid && o->epoch == *epoch) || (l->step < l->steps / 2 && n_free(l) > l->depth / 2))
			return NULL;
	}
	return o->making || o->users ? NULL : (struct order *)(uintptr_t)o;
}

/* Opens the next batch: false when no slot is free or its order is not there. One without rows is ready at once. */
static bool open_batch(ct_loader *l)
{
	struct order *o = &l->orders[l->epoch % 2];
	struct ct_sampler_slice slice;
	struct slot *s;

	if (n_free(l) == 0 || !o->valid || o->epoch != l->epoch)
		return false;
	s = slot_of(l, l->n_opened++);
	slice = ct_sampler_slice(&l->sampler, l->step, l->micro);
	s->first = slice.first;
	s->done = 0;
	s->failed = false;
	s->batch = (struct ct_loader_batch){
		.x = s->x,
		.labels = s->labels,
		.targets = s->targets,
		.samples = s->samples,
		.n = slice.count,
		.n_global = slice.n_global,
		.in_batch = slice.in_batch,
		.epoch = l->epoch,
		.step = l->step,
		.micro = l->micro,
		.last_of_step = l->micro + 1 == l->sampler.accumulate,
	};
	s->batch.last_of_epoch = s->batch.last_of_step && l->step + 1 == l->steps;
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
	struct slot *s;

	*job = (struct job){.order = order_to_make(l, &epoch)};
	if (job->order) {
		job->order->making = true;
		job->order->valid = false;
		job->order->epoch = epoch;
		l->busy++;
		return true;
	}
	s = l->n_opened ? slot_of(l, l->n_opened - 1) : NULL;
	while (!s || l->row == s->batch.n) {
		if (!open_batch(l))
			return false;
		s = slot_of(l, l->n_opened - 1);
	}
	job->slot = s;
	job->order = &l->orders[s->batch.epoch % 2];
	job->first = l->row;
	job->n = s->batch.n - l->row < l->chunk_rows ? s->batch.n - l->row : l->chunk_rows;
	l->row += job->n;
	if (l->row < s->batch.n)
		job->order->users++; /* else the batch hands its own use on to this chunk */
	l->busy++;
	return true;
}

static enum ct_status fill_row(ct_loader *l, struct slot *s, uint32_t row, uint8_t *scratch)
{
	uint32_t sample = s->samples[row];
	uint8_t *x = s->x + (size_t)row * l->info->sample_bytes;
	float *target = s->targets ? s->targets + (size_t)row * (size_t)l->info->n_targets : NULL;

	CT_TRY(ct_dataset_read(l->data, sample, l->augments ? scratch : x, s->labels ? s->labels + row : NULL, target));
	if (l->augments)
		ct_augment_apply(&l->augment, l->sampler.seed, s->batch.epoch, sample, l->info->h, l->info->w,
				 l->info->c, scratch, x, scratch + l->info->sample_bytes);
	return CT_OK;
}

/* Without the lock. Returns the number of rows done before one failed (its chain is then the thread's). */
static uint32_t run_job(ct_loader *l, const struct job *job, uint8_t *scratch)
{
	const uint32_t *from;

	if (!job->slot) {
		ct_sampler_order(&l->sampler, job->order->epoch, job->order->perm);
		return 0;
	}
	from = job->order->perm + job->slot->first + job->first;
	memcpy(job->slot->samples + job->first, from, job->n * sizeof(*from));
	for (uint32_t i = 0; i < job->n; i++) {
		if (i + PREFETCH_ROWS < job->n)
			ct_dataset_prefetch(l->data, from[i + PREFETCH_ROWS]);
		if (fill_row(l, job->slot, job->first + i, scratch) < 0) {
			(void)ct_error_wrap("sample %u of %s", from[i], l->info->name);
			return i;
		}
	}
	return job->n;
}

/* Under the lock. */
static void finish_job(ct_loader *l, const struct job *job, uint32_t n_good)
{
	struct slot *s = job->slot;

	l->busy--;
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
		if (s->done == s->batch.n && s == slot_of(l, l->n_delivered))
			pthread_cond_signal(&l->ready);
	}
	if (l->hold && l->busy == 0)
		pthread_cond_signal(&l->idle);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	ct_loader *l = w->loader;
	struct job job;

	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		uint32_t n_good;

		if (l->hold || !take_job(l, &job)) {
			pthread_cond_wait(&l->work, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		n_good = run_job(l, &job, w->scratch);
		pthread_mutex_lock(&l->lock);
		finish_job(l, &job, n_good);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static bool is_ready(const ct_loader *l)
{
	const struct slot *s = slot_of(l, l->n_delivered);

	return l->n_opened > l->n_delivered && s->done == s->batch.n;
}

/* The caller's own work when there are no threads. Under the lock, which nobody else wants. */
static void fill_inline(ct_loader *l)
{
	struct job job;

	while (!is_ready(l) && take_job(l, &job))
		finish_job(l, &job, run_job(l, &job, l->workers[0].scratch));
	CT_ASSERT(is_ready(l));
}

static enum ct_status wait_ready(ct_loader *l, int64_t deadline_ns)
{
	int err = 0;

	if (l->n_threads == 0 && !is_ready(l))
		fill_inline(l);
	while (!is_ready(l) && err != ETIMEDOUT)
		err = ct_cond_wait_until(&l->ready, &l->lock, deadline_ns);
	if (is_ready(l))
		return CT_OK;
	(void)CT_FAIL(CT_TIMEOUT, "no batch from %d loader threads of %s in time", l->n_threads, l->info->name);
	ct_error_hint("is the storage of the data hanging? More data.workers help when it is only slow");
	return CT_TIMEOUT;
}

enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out)
{
	enum ct_status st;
	struct slot *s;

	pthread_mutex_lock(&l->lock);
	/* The batch delivered last is free now. Threads are woken for half a ring at once, not for every batch. */
	if (l->n_freed < l->n_delivered) {
		l->n_freed = l->n_delivered;
		if (n_free(l) >= l->depth / 2)
			pthread_cond_broadcast(&l->work);
	}
	st = wait_ready(l, deadline_ns);
	s = slot_of(l, l->n_delivered);
	if (st == CT_OK && s->failed)
		st = ct_error_restore(&s->error);
	if (st == CT_OK) {
		*out = s->batch;
		l->n_delivered++;
	}
	pthread_mutex_unlock(&l->lock);
	if (st < 0)
		ct_error_frame(__FILE__, __LINE__, __func__);
	return st;
}

enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step)
{
	if (step > l->steps)
		return CT_FAIL(CT_DATA, "step %" PRIu64 " of an epoch, which has only %" PRIu64 " steps of %u samples",
			       step, l->steps, l->sampler.global_batch);
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
	l->orders[0].users = l->orders[1].users = 0;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	return CT_OK;
}

static enum ct_status alloc_slot(const ct_loader *l, struct slot *s, size_t rows)
{
	size_t bytes;

	if (__builtin_mul_overflow(rows, l->info->sample_bytes, &bytes))
		return CT_FAIL(CT_NOMEM, "out of memory: a batch of %zu samples of %zu bytes", rows,
			       l->info->sample_bytes);
	CT_TRY_ALLOC(s->x = ct_calloc_aligned(ALIGN, bytes));
	CT_TRY_ALLOC(s->samples = CT_NEW_ARRAY(uint32_t, rows));
	if (l->info->n_targets)
		CT_TRY_ALLOC(s->targets = CT_NEW_ARRAY(float, rows *(size_t)l->info->n_targets));
	else
		CT_TRY_ALLOC(s->labels = CT_NEW_ARRAY(int32_t, rows));
	return CT_OK;
}

/* Memory and threads; what a failure leaves is destroy's to free. */
static enum ct_status build(ct_loader *l)
{
	size_t n_workers = l->n_threads ? (size_t)l->n_threads : 1;
	uint32_t rows = ct_sampler_max_rows(&l->sampler);

	CT_TRY_ALLOC(l->slots = CT_NEW_ARRAY(struct slot, l->depth));
	for (uint32_t i = 0; i < l->depth; i++)
		CT_TRY(alloc_slot(l, &l->slots[i], rows));
	for (size_t i = 0; i < CT_ARRAY_LEN(l->orders); i++)
		CT_TRY_ALLOC(l->orders[i].perm = CT_NEW_ARRAY(uint32_t, l->sampler.n));
	CT_TRY_ALLOC(l->workers = CT_NEW_ARRAY(struct worker, n_workers));
	for (size_t i = 0; i < n_workers && l->augments; i++)
		CT_TRY_ALLOC(l->workers[i].scratch = ct_calloc(2, l->info->sample_bytes));
	for (int i = 0; i < l->n_threads; i++) {
		l->workers[i].loader = l;
		CT_TRY(ct_thread_start(&l->workers[i].thread, "ctrain-loader", worker_main, &l->workers[i]));
	}
	return CT_OK;
}

static enum ct_status check_opts(const ct_dataset *d, const struct ct_loader_opts *opts)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);

	CT_TRY(ct_sampler_check(&opts->sampler));
	CT_TRY(ct_augment_check(&opts->transform.augment));
	if (opts->sampler.n > info->n)
		return CT_FAIL(CT_BUG, "sampler over %u samples, %s has %u", opts->sampler.n, info->name, info->n);
	if (opts->n_threads < 0 || opts->n_threads > MAX_THREADS)
		return CT_FAIL(CT_CONFIG, "%d loader threads: not in 0..%d", opts->n_threads, MAX_THREADS);
	if (opts->depth && (opts->depth < 2 || opts->depth > MAX_DEPTH))
		return CT_FAIL(CT_CONFIG, "a loader ring of %d batches: not in 2..%d", opts->depth, MAX_DEPTH);
	if (ct_augment_active(&opts->transform.augment) && info->kind != CT_SAMPLE_U8_HWC)
		return CT_FAIL(CT_CONFIG, "data set %s has no images to augment", info->name);
	return CT_OK;
}

enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out)
{
	enum ct_status st;
	ct_loader *l;
	size_t chunk;

	CT_TRY(check_opts(d, opts));
	CT_TRY_ALLOC(l = CT_NEW(ct_loader));
	l->data = d;
	l->info = ct_dataset_info(d);
	l->sampler = opts->sampler;
	l->augment = opts->transform.augment;
	l->augments = ct_augment_active(&opts->transform.augment);
	l->n_threads = opts->n_threads;
	l->depth = opts->depth ? (uint32_t)opts->depth : 4;
	chunk = CHUNK_BYTES / l->info->sample_bytes;
	l->chunk_rows = chunk ? (uint32_t)chunk : 1;
	l->steps = ct_sampler_steps(&l->sampler);
	CT_ASSERT(pthread_mutex_init(&l->lock, NULL) == 0);
	ct_cond_init(&l->work);
	ct_cond_init(&l->ready);
	ct_cond_init(&l->idle);
	st = build(l);
	if (st < 0) {
		ct_loader_destroy(l);
		return st;
	}
	*out = l;
	return CT_OK;
}

void ct_loader_destroy(ct_loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	for (int i = 0; l->workers && i < l->n_threads; i++)
		ct_thread_join(&l->workers[i].thread);
	for (int i = 0; l->workers && i < (l->n_threads ? l->n_threads : 1); i++)
		ct_free(l->workers[i].scratch);
	for (uint32_t i = 0; l->slots && i < l->depth; i++) {
		ct_free_aligned(l->slots[i].x);
		ct_free(l->slots[i].samples);
		ct_free(l->slots[i].labels);
		ct_free(l->slots[i].targets);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(l->orders); i++)
		ct_free(l->orders[i].perm);
	ct_free(l->workers);
	ct_free(l->slots);
	pthread_cond_destroy(&l->idle);
	pthread_cond_destroy(&l->ready);
	pthread_cond_destroy(&l->work);
	pthread_mutex_destroy(&l->lock);
	ct_free(l);
}
