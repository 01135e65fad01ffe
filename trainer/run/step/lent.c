/* The batches form a ring in the order in which they were borrowed. An event after the work of each batch tells when
 * it has been read, and batches are returned in that order. ct_lent_posted makes room at once if the ring is full, so
 * ct_lent_next never has to. After a failure, posted work may wait for other ranks, and a lent batch cannot be freed
 * while it is read: the release waits for up to one second in all, warns, and keeps the first error. */
#define CT_LOG_COMPONENT "loop"
#include "trainer/run/step/lent.h"

#include "base/clock.h"
#include "base/log.h"

int ct_lent_max(const ct_device *d, uint64_t ahead)
{
	if (!ct_device_caps(d)->async)
		return 1;
	return ahead < CT_LENT_MAX ? (int)ahead + 1 : CT_LENT_MAX;
}

enum ct_status ct_lent_init(struct ct_lent *l, ct_loader *loader, ct_stream *s, int max, int64_t timeout_ns)
{
	ct_device *d = ct_stream_device(s);

	CT_ASSERT(max >= 1 && max <= CT_LENT_MAX);
	*l = (struct ct_lent){.loader = loader, .stream = s, .max = max, .timeout_ns = timeout_ns};
	for (int i = 0; ct_device_caps(d)->async && i < max; i++)
		CT_TRY(ct_event_create(d, true, &l->ring[i].read));
	return CT_OK;
}

void ct_lent_release(struct ct_lent *l)
{
	int64_t deadline = ct_deadline_in(CT_SEC);
	struct ct_error keep;

	ct_error_save(&keep);
	for (; l->n_returned < l->n_lent; l->n_returned++) {
		ct_event *read = l->ring[l->n_returned % (uint64_t)l->max].read;

		if (read && ct_event_wait(read, deadline) < 0) {
			if (keep.status == CT_OK)
				CT_WARN("%s", ct_error_message());
			ct_error_clear();
		}
		ct_loader_release(l->loader, &l->ring[l->n_returned % (uint64_t)l->max].batch);
	}
	for (int i = 0; i < CT_LENT_MAX; i++)
		ct_event_destroy(l->ring[i].read);
	*l = (struct ct_lent){0};
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}

enum ct_status ct_lent_next(struct ct_lent *l, struct ct_loader_batch **out)
{
	struct ct_loader_batch *b = &l->ring[l->n_lent % (uint64_t)l->max].batch;

	/* No deadline: the loader does not wait for other ranks, and returns the errors of its files. */
	CT_TRY(ct_loader_next(l->loader, CT_FOREVER, b));
	l->n_lent++;
	*out = b;
	return CT_OK;
}

static enum ct_status wait_read(const struct ct_lent *l, ct_event *read)
{
	int64_t deadline = ct_deadline_in(l->timeout_ns);
	enum ct_status st = ct_event_wait(read, deadline);

	if (st == CT_TIMEOUT && ct_now_ns() >= deadline)
		return ct_error_wrap("waited %g s for the posted work that reads a batch",
				     (double)l->timeout_ns * 1e-9);
	return st;
}

/* Waits for the work that reads the oldest batch. */
static enum ct_status return_one(struct ct_lent *l)
{
	const int slot = (int)(l->n_returned % (uint64_t)l->max);

	if (l->ring[slot].read)
		CT_TRY(wait_read(l, l->ring[slot].read));
	if (l->finished)
		l->finished(l->user, slot, &l->ring[slot].batch);
	ct_loader_release(l->loader, &l->ring[slot].batch);
	l->n_returned++;
	return CT_OK;
}

int ct_lent_slot(const struct ct_lent *l)
{
	return (int)((l->n_lent - 1) % (uint64_t)l->max);
}

enum ct_status ct_lent_posted(struct ct_lent *l)
{
	ct_event *read = l->ring[ct_lent_slot(l)].read;

	if (read)
		CT_TRY(ct_event_record(read, l->stream));
	/* Makes room for the next batch. */
	while (l->n_lent - l->n_returned >= (uint64_t)l->max)
		CT_TRY(return_one(l));
	return CT_OK;
}

enum ct_status ct_lent_finish(struct ct_lent *l)
{
	while (l->n_returned < l->n_lent)
		CT_TRY(return_one(l));
	return CT_OK;
}
