/* pending[b] counts the slices of bucket b that are not final. When a slice becomes final, buckets are posted in
 * ascending order up to the first one that is not complete. They thus have the same order on all ranks, which the
 * communicator requires, even if the slices become final in another order.
 *
 * On a synchronous device, ct_reducer_finish waits for the operations, in order; after a failure it still waits for the
 * rest, because only waiting releases an operation. On an asynchronous device, event full[b] makes the reducer's stream
 * wait until the compute stream has computed the bucket, and event `done` makes the compute stream wait for the last
 * bucket. The conversions are posted to the reducer's stream, too, so that its order protects the memory of the bucket.
 * In an accumulation step, slices are counted and nothing is posted. */
#include "dist/reducer.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct ct_reducer {
	ct_comm *comm;
	ct_stream *compute;
	struct ct_reducer_opts opts;
	struct ct_bucket *buckets;
	int *pending;    /* [n_buckets] number of slices that are not ready yet */
	ct_work **works; /* [n_buckets]; NULL: not posted, or already waited for */
	int *bucket_of;  /* [n_slices] */
	bool *ready;     /* [n_slices] */
	int n_buckets, n_slices, n_posted;
	bool sync;
	/* For ct_reducer_take_times. */
	int64_t met_ns;      /* end of the last bucket of the previous step; 0: there was none */
	int64_t *reached_ns; /* [n_buckets] in this step */
	int64_t *sums_ns;    /* [n_buckets] */
	int64_t wait_ns;
	uint64_t n_timed;
	/* On an asynchronous device. */
	ct_stream *stream; /* for collectives; NULL on other devices */
	ct_event **full;   /* [n_buckets] the bucket's gradients are final */
	ct_event *done;
};

static enum ct_status index_slices(ct_reducer *r)
{
	for (int b = 0; b < r->n_buckets; b++) {
		const struct ct_bucket *k = &r->buckets[b];

		if (k->first_slice != r->n_slices || k->n_slices < 0)
			return CT_FAIL(CT_BUG, "bucket %d begins with slice %d instead of slice %d", b, k->first_slice,
				       r->n_slices);
		if (!r->opts.memory[k->dtype] || (k->dtype != CT_F32 && !r->opts.convert))
			return CT_FAIL(CT_BUG, "no memory or no conversion for bucket %d of type %s", b,
				       ct_dtype_name(k->dtype));
		r->n_slices += k->n_slices;
	}
	CT_TRY_ALLOC(r->bucket_of = CT_NEW_ARRAY(int, (size_t)r->n_slices));
	CT_TRY_ALLOC(r->ready = CT_NEW_ARRAY(bool, (size_t)r->n_slices));
	for (int b = 0; b < r->n_buckets; b++) {
		for (int i = 0; i < r->buckets[b].n_slices; i++)
			r->bucket_of[r->buckets[b].first_slice + i] = b;
	}
	return CT_OK;
}

static enum ct_status build_streams(ct_reducer *r)
{
	ct_device *d = ct_stream_device(r->compute);

	if (!ct_device_caps(d)->async)
		return CT_OK;
	CT_TRY_ALLOC(r->full = CT_NEW_ARRAY(ct_event *, (size_t)r->n_buckets));
	for (int b = 0; b < r->n_buckets; b++)
		CT_TRY(ct_event_create(d, false, &r->full[b]));
	CT_TRY(ct_event_create(d, false, &r->done));
	return ct_stream_create(d, true, &r->stream);
}

static enum ct_status build(ct_reducer *r, const struct ct_bucket *buckets)
{
	size_t n = (size_t)r->n_buckets;

	CT_TRY_ALLOC(r->buckets = CT_NEW_ARRAY(struct ct_bucket, n));
	if (n > 0)
		memcpy(r->buckets, buckets, n * sizeof(*buckets));
	CT_TRY_ALLOC(r->pending = CT_NEW_ARRAY(int, n));
	CT_TRY_ALLOC(r->works = CT_NEW_ARRAY(ct_work *, n));
	CT_TRY_ALLOC(r->reached_ns = CT_NEW_ARRAY(int64_t, n));
	CT_TRY_ALLOC(r->sums_ns = CT_NEW_ARRAY(int64_t, n));
	CT_TRY(index_slices(r));
	return build_streams(r);
}

enum ct_status ct_reducer_create(ct_comm *c, const struct ct_reducer_opts *opts, ct_reducer **out)
{
	enum ct_status st;
	ct_reducer *r;

	*out = NULL;
	CT_TRY_ALLOC(r = CT_NEW(ct_reducer));
	r->comm = c;
	r->compute = opts->compute;
	r->opts = *opts;
	r->n_buckets = opts->n_buckets;
	st = build(r, opts->buckets);
	if (st < 0) {
		ct_reducer_destroy(r);
		return st;
	}
	*out = r;
	return CT_OK;
}

void ct_reducer_destroy(ct_reducer *r)
{
	if (!r)
		return;
	ct_stream_destroy(r->stream);
	ct_event_destroy(r->done);
	for (int b = 0; r->full && b < r->n_buckets; b++)
		ct_event_destroy(r->full[b]);
	ct_free(r->full);
	ct_free(r->ready);
	ct_free(r->bucket_of);
	ct_free(r->reached_ns);
	ct_free(r->sums_ns);
	ct_free(r->works);
	ct_free(r->pending);
	ct_free(r->buckets);
	ct_free(r);
}

void ct_reducer_begin(ct_reducer *r, bool sync)
{
	r->sync = sync;
	r->n_posted = 0;
	for (int b = 0; b < r->n_buckets; b++)
		r->pending[b] = r->buckets[b].n_slices;
	if (r->n_slices > 0)
		memset(r->ready, 0, (size_t)r->n_slices * sizeof(*r->ready));
}

static enum ct_status name_bucket(const ct_reducer *r, int b)
{
	const struct ct_bucket *k = &r->buckets[b];

	return ct_error_wrap("reducing gradient bucket %d of %d (slices %d to %d, %zu elements)", b, r->n_buckets,
			     k->first_slice, k->first_slice + k->n_slices - 1, k->n);
}

static void *at(const ct_reducer *r, const struct ct_bucket *k, enum ct_dtype t)
{
	return (char *)r->opts.memory[t] + k->offset * ct_dtype_bytes(t);
}

/* Posts the conversion of a bucket between fp32 and its type. */
static enum ct_status convert(ct_reducer *r, const struct ct_bucket *k, enum ct_dtype to, enum ct_dtype from)
{
	if (k->dtype == CT_F32)
		return CT_OK;
	return r->opts.convert(r->opts.user, at(r, k, to), to, at(r, k, from), from, k->n,
			       r->stream ? r->stream : r->compute);
}

/* Call when all slices of bucket b are final. */
static enum ct_status post_bucket(ct_reducer *r, int b)
{
	const struct ct_bucket *k = &r->buckets[b];
	void *buf = at(r, k, k->dtype);
	enum ct_status st;

	if (r->stream) {
		CT_TRY(ct_event_record(r->full[b], r->compute));
		CT_TRY(ct_stream_wait_event(r->stream, r->full[b]));
	}
	if (!r->opts.converted)
		CT_TRY(convert(r, k, k->dtype, CT_F32));
	ct_comm_set_bucket(r->comm, b);
	st = r->stream ? ct_comm_post_allreduce(r->comm, buf, k->n, k->dtype, CT_SUM, r->stream)
		       : ct_comm_allreduce(r->comm, buf, k->n, k->dtype, CT_SUM, &r->works[b]);
	ct_comm_set_bucket(r->comm, -1);
	return st < 0 || !r->stream ? st : convert(r, k, CT_F32, k->dtype);
}

enum ct_status ct_reducer_ready(ct_reducer *r, int slice)
{
	if (slice < 0 || slice >= r->n_slices || r->ready[slice])
		return CT_FAIL(CT_BUG, "gradient slice %d of %d %s", slice, r->n_slices,
			       slice < 0 || slice >= r->n_slices ? "does not exist" : "has been reported twice");
	r->ready[slice] = true;
	r->pending[r->bucket_of[slice]]--;
	if (!r->sync)
		return CT_OK;
	while (r->n_posted < r->n_buckets && r->pending[r->n_posted] == 0) {
		int b = r->n_posted;

		if (!r->stream)
			r->reached_ns[b] = ct_now_ns();
		if (post_bucket(r, b) < 0)
			return name_bucket(r, b);
		r->n_posted++;
	}
	if (r->n_posted > 0 && !r->stream)
		CT_TRY(ct_comm_progress(r->comm));
	return CT_OK;
}

/* Also releases the operations of the buckets after one that has failed. */
static void drop_works(ct_reducer *r)
{
	struct ct_error e;

	ct_error_save(&e);
	for (int b = 0; b < r->n_buckets; b++) {
		if (r->works[b] && ct_work_wait(r->works[b]) < 0)
			ct_error_clear();
		r->works[b] = NULL;
	}
	(void)ct_error_restore(&e);
}

static enum ct_status never_ready(const ct_reducer *r)
{
	int slice = r->buckets[r->n_posted].first_slice;

	while (slice < r->n_slices - 1 && r->ready[slice])
		slice++;
	CT_FAIL(CT_BUG, "gradient slice %d has not been reported", slice);
	return name_bucket(r, r->n_posted);
}

enum ct_status ct_reducer_join(ct_reducer *r, ct_stream *s)
{
	if (!r->stream || !r->sync || r->n_posted == 0)
		return CT_OK;
	CT_TRY(ct_event_record(r->done, r->stream));
	return ct_stream_wait_event(s, r->done);
}

/* All ranks have posted the last bucket. */
static void meet(ct_reducer *r)
{
	const int64_t now = ct_now_ns();

	if (r->met_ns > 0) {
		for (int b = 0; b < r->n_buckets; b++)
			r->sums_ns[b] += r->reached_ns[b] - r->met_ns;
		r->wait_ns += now - r->reached_ns[r->n_buckets - 1];
		r->n_timed++;
	}
	r->met_ns = now;
}

uint64_t ct_reducer_take_times(ct_reducer *r, double *reached_s, double *wait_s)
{
	const uint64_t n = r->n_timed;

	for (int b = 0; b < r->n_buckets; b++) {
		reached_s[b] = (double)r->sums_ns[b] * 1e-9;
		r->sums_ns[b] = 0;
	}
	*wait_s = (double)r->wait_ns * 1e-9;
	r->wait_ns = 0;
	r->n_timed = 0;
	return n;
}

enum ct_status ct_reducer_finish(ct_reducer *r)
{
	if (!r->sync || r->n_buckets == 0)
		return CT_OK;
	if (r->n_posted < r->n_buckets)
		return never_ready(r); /* posted work is not cancelled, because this process is about to end */
	if (r->stream)
		return ct_reducer_join(r, r->compute);
	for (int b = 0; b < r->n_buckets; b++) {
		ct_work *w = r->works[b];
		enum ct_status st;

		r->works[b] = NULL;
		if (ct_work_wait(w) >= 0 && convert(r, &r->buckets[b], CT_F32, r->buckets[b].dtype) >= 0)
			continue;
		st = name_bucket(r, b);
		drop_works(r);
		return st;
	}
	meet(r);
	return CT_OK;
}
