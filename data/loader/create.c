/* The memory of batches is allocated here, for the largest images of all epochs and the largest batch of any rank. A
 * failure in between leaves a loader that ct_loader_destroy can free; threads are started last, when everything that
 * they use exists. Small raw samples are taken by threads in chunks that hide the cost of the lock; images that are
 * decoded or resized are taken one by one. The ring has a slot for each batch prepared ahead and for each batch that
 * may be out. */
#include <string.h>

#include "base/mem.h"
#include "data/loader/loader_impl.h"

#define ALIGN 64
#define MAX_THREADS 256
#define MAX_DEPTH 1024
#define CHUNK_BYTES (64 << 10) /* rows that a thread takes at once; large enough to hide the cost of the lock */
#define NEIGHBORS 2            /* rows of other slices that a batch may need in order to mix its own rows */

/* Allocates rows * bytes_each bytes from which the device can copy. */
static enum ct_status alloc_rows(const ct_loader *l, size_t rows, size_t bytes_each, void **out)
{
	size_t bytes;

	if (__builtin_mul_overflow(rows, bytes_each, &bytes))
		return CT_FAIL(CT_NOMEM, "out of memory for a batch of %zu samples of %zu bytes", rows, bytes_each);
	if (l->device)
		return ct_device_host_alloc(l->device, bytes, out);
	CT_TRY_ALLOC(*out = ct_calloc_aligned(ALIGN, bytes));
	return CT_OK;
}

static void free_rows(const ct_loader *l, void *p)
{
	if (l->device)
		ct_device_host_free(l->device, p);
	else
		ct_free_aligned(p);
}

static enum ct_status alloc_slot(const ct_loader *l, struct ct_loader_slot *s, size_t rows, size_t bytes_each)
{
	size_t n_targets = (size_t)l->rows.info->n_targets;

	if (l->rows.describe)
		CT_TRY(alloc_rows(l, rows, sizeof(*s->rows), (void **)&s->rows));
	else
		CT_TRY(alloc_rows(l, rows, bytes_each, (void **)&s->x));
	CT_TRY_ALLOC(s->samples = CT_NEW_ARRAY(uint32_t, rows));
	CT_TRY_ALLOC(s->dropped = CT_NEW_ARRAY(uint8_t, rows));
	if (n_targets)
		CT_TRY(alloc_rows(l, rows, n_targets * sizeof(*s->targets), (void **)&s->targets));
	else
		CT_TRY(alloc_rows(l, rows, sizeof(*s->labels), (void **)&s->labels));
	if (l->rows.mixup > 0 || l->rows.cutmix > 0) {
		CT_TRY(alloc_rows(l, rows, sizeof(*s->labels_b), (void **)&s->labels_b));
		CT_TRY(alloc_rows(l, rows, sizeof(*s->mix), (void **)&s->mix));
		CT_TRY_ALLOC(s->pairs = ct_calloc(rows / 2 + 1, sizeof(*s->pairs)));
	}
	return CT_OK;
}

/* Computes the size of the largest images of all epochs. */
static void max_size(const ct_loader *l, int *h, int *w)
{
	ct__loader_size_at(l, 0, h, w);
	for (int i = 0; i < l->n_sizes; i++) {
		*h = l->sizes[i].h > *h ? l->sizes[i].h : *h;
		*w = l->sizes[i].w > *w ? l->sizes[i].w : *w;
	}
}

/* Allocates memory and starts threads. After a failure, ct_loader_destroy frees what has been allocated. */
static enum ct_status build(ct_loader *l)
{
	size_t n_workers = l->n_threads ? (size_t)l->n_threads : 1;
	uint32_t rows = ct_sampler_max_rows(&l->rows.sampler);
	struct ct_transform largest = l->transform;

	if (l->rows.mixup > 0 || l->rows.cutmix > 0)
		rows += NEIGHBORS;
	max_size(l, &largest.h, &largest.w);
	CT_TRY_ALLOC(l->slots = CT_NEW_ARRAY(struct ct_loader_slot, l->depth));
	CT_TRY_ALLOC(l->ring = CT_NEW_ARRAY(struct ct_loader_slot *, l->depth));
	for (uint32_t i = 0; i < l->depth; i++)
		l->ring[i] = &l->slots[i];
	for (uint32_t i = 0; i < l->depth; i++)
		CT_TRY(alloc_slot(l, &l->slots[i], rows, ct__loader_row_bytes(l, largest.h, largest.w)));
	for (size_t i = 0; i < CT_ARRAY_LEN(l->orders); i++)
		CT_TRY_ALLOC(l->orders[i].perm = CT_NEW_ARRAY(uint32_t, l->rows.sampler.n));
	if (l->rows.policy != CT_BAD_FAIL)
		CT_TRY(ct__bad_list_init(&l->bad, l->rows.info->n));
	CT_TRY_ALLOC(l->workers = CT_NEW_ARRAY(struct ct_loader_worker, n_workers));
	for (size_t i = 0; i < n_workers && l->images && !l->rows.describe; i++)
		CT_TRY(ct_transformer_create(&largest, l->rows.data, &l->workers[i].transformer));
	for (int i = 0; i < l->n_threads; i++) {
		l->workers[i].loader = l;
		CT_TRY(ct_thread_start(&l->workers[i].thread, "ctrain-loader", ct__loader_work, &l->workers[i]));
	}
	return CT_OK;
}

static enum ct_status check_sizes(const struct ct_loader_opts *opts, const struct ct_dataset_info *info)
{
	struct ct_transform t = opts->transform;

	if (opts->n_sizes && t.crop == CT_CROP_NONE)
		return CT_FAIL(CT_CONFIG, "resizing the images of %s to several sizes requires a crop", info->name);
	for (int i = 0; i < opts->n_sizes; i++) {
		if (i && opts->sizes[i].epoch <= opts->sizes[i - 1].epoch)
			return CT_FAIL(
				CT_CONFIG,
				"image sizes are given for epoch %u and then for epoch %u, but epochs must increase",
				opts->sizes[i - 1].epoch, opts->sizes[i].epoch);
		t.h = opts->sizes[i].h;
		t.w = opts->sizes[i].w;
		if (t.h < 1 || t.w < 1)
			return CT_FAIL(CT_CONFIG, "invalid image size %d x %d from epoch %u on", t.w, t.h,
				       opts->sizes[i].epoch);
		CT_TRY(ct_transform_check(&t, info));
	}
	t = opts->transform;
	if (opts->n_sizes && opts->sizes[0].epoch == 0)
		return CT_OK; /* the size in `transform` is never used */
	return ct_transform_check(&t, info);
}

static enum ct_status check_mix(const struct ct_loader_opts *opts, const struct ct_dataset_info *info)
{
	if (!(opts->mixup >= 0 && opts->mixup <= 100) || !(opts->cutmix >= 0 && opts->cutmix <= 100))
		return CT_FAIL(CT_CONFIG, "mixup %g or cutmix %g is not in 0..100", (double)opts->mixup,
			       (double)opts->cutmix);
	if (opts->mixup <= 0 && opts->cutmix <= 0)
		return CT_OK;
	if (info->kind == CT_SAMPLE_F32 || info->n_targets)
		return CT_FAIL(CT_CONFIG, "mixup and cutmix need images with class labels, but %s has none",
			       info->name);
	if (opts->bad == CT_BAD_DROP)
		return CT_FAIL(CT_CONFIG,
			       "mixup and cutmix are for training, where unreadable samples cannot be skipped");
	return CT_OK;
}

static enum ct_status check_described(const struct ct_loader_opts *opts, const struct ct_dataset_info *info)
{
	const char *why = opts->describe ? ct_transform_why_not_described(&opts->transform, info) : NULL;

	return why ? CT_FAIL(CT_CONFIG, "the rows of %s cannot be described: %s", info->name, why) : CT_OK;
}

static enum ct_status check_opts(const ct_dataset *d, const struct ct_loader_opts *opts)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);

	CT_TRY(ct_sampler_check(&opts->sampler));
	if (opts->sampler.n > info->n)
		return CT_FAIL(CT_BUG, "the sampler expects %u samples, but %s has %u", opts->sampler.n, info->name,
			       info->n);
	CT_TRY(check_sizes(opts, info));
	CT_TRY(check_mix(opts, info));
	CT_TRY(check_described(opts, info));
	if (opts->n_threads < 0 || opts->n_threads > MAX_THREADS)
		return CT_FAIL(CT_CONFIG, "the number of loader threads, %d, is not in 0..%d", opts->n_threads,
			       MAX_THREADS);
	if (opts->depth && (opts->depth < 2 || opts->depth > MAX_DEPTH))
		return CT_FAIL(CT_CONFIG, "the number of batches in the loader ring, %d, is not in 2..%d", opts->depth,
			       MAX_DEPTH);
	if (opts->max_out < 0 || opts->max_out > MAX_DEPTH)
		return CT_FAIL(CT_CONFIG, "the number of batches that may be out, %d, is not in 1..%d", opts->max_out,
			       MAX_DEPTH);
	return CT_OK;
}

static void set_opts(ct_loader *l, const ct_dataset *d, const struct ct_loader_opts *opts)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);
	size_t row_bytes = opts->describe ? sizeof(struct ct_image_row) : info->sample_bytes;
	size_t chunk = row_bytes ? CHUNK_BYTES / row_bytes : 0;

	l->rows = (struct ct_loader_rows){
		.data = d,
		.info = info,
		.c = info->kind == CT_SAMPLE_ENCODED ? 3 : info->c,
		.sampler = opts->sampler,
		.mixup = opts->mixup,
		.cutmix = opts->cutmix,
		.policy = opts->bad,
		.max_bad = opts->max_bad,
		.on_bad = opts->on_bad,
		.user = opts->user,
	};
	l->images = info->kind != CT_SAMPLE_F32;
	l->transform = opts->transform;
	if (opts->describe)
		l->rows.describe = &l->transform.augment;
	l->n_threads = opts->n_threads;
	l->device = opts->device;
	l->ahead = opts->depth ? (uint32_t)opts->depth : 4;
	l->max_out = opts->max_out ? (uint32_t)opts->max_out : 1;
	l->depth = l->ahead + l->max_out - 1;
	/* Decoding and resizing take so long that each image is a separate job. */
	l->chunk_rows = chunk && opts->transform.crop == CT_CROP_NONE ? (uint32_t)chunk : 1;
	l->steps = ct_sampler_steps(&l->rows.sampler);
}

static enum ct_status copy_sizes(ct_loader *l, const struct ct_loader_opts *opts)
{
	if (opts->n_sizes <= 0)
		return CT_OK;
	CT_TRY_ALLOC(l->sizes = CT_NEW_ARRAY(struct ct_loader_size, (size_t)opts->n_sizes));
	memcpy(l->sizes, opts->sizes, (size_t)opts->n_sizes * sizeof(*l->sizes));
	l->n_sizes = opts->n_sizes;
	return CT_OK;
}

enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out)
{
	enum ct_status st;
	ct_loader *l;

	CT_TRY(check_opts(d, opts));
	CT_TRY_ALLOC(l = CT_NEW(ct_loader));
	set_opts(l, d, opts);
	CT_ASSERT(pthread_mutex_init(&l->lock, NULL) == 0);
	CT_ASSERT(pthread_mutex_init(&l->bad.lock, NULL) == 0);
	l->bad.known = opts->known_bad;
	ct_cond_init(&l->work);
	ct_cond_init(&l->ready);
	ct_cond_init(&l->idle);
	st = copy_sizes(l, opts);
	if (st == CT_OK)
		st = ct_class_order_make(d, &l->rows.sampler, &l->classes);
	if (st == CT_OK)
		st = build(l);
	if (st < 0) {
		ct_loader_destroy(l);
		return st;
	}
	*out = l;
	return CT_OK;
}

static void release_slot(const ct_loader *l, struct ct_loader_slot *s)
{
	free_rows(l, s->x);
	free_rows(l, s->rows);
	free_rows(l, s->labels);
	free_rows(l, s->labels_b);
	free_rows(l, s->mix);
	free_rows(l, s->targets);
	ct_free(s->samples);
	ct_free((void *)s->pairs);
	ct_free(s->dropped);
	ct_free(s->uses);
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
		ct_transformer_destroy(l->workers[i].transformer);
	for (uint32_t i = 0; l->slots && i < l->depth; i++)
		release_slot(l, &l->slots[i]);
	for (size_t i = 0; i < CT_ARRAY_LEN(l->orders); i++)
		ct_free(l->orders[i].perm);
	ct_free(l->workers);
	ct_free(l->ring);
	ct_free(l->slots);
	ct_free(l->sizes);
	ct_class_order_release(&l->classes);
	ct__bad_list_release(&l->bad);
	pthread_mutex_destroy(&l->bad.lock);
	pthread_cond_destroy(&l->idle);
	pthread_cond_destroy(&l->ready);
	pthread_cond_destroy(&l->work);
	pthread_mutex_destroy(&l->lock);
	ct_free(l);
}
