#include "trainer/loop/lent.h"

#include "base/clock.h"

int ct_lent_max(const ct_device *d)
{
	return ct_device_caps(d)->async ? CT_LENT_MAX : 1;
}

enum ct_status ct_lent_init(struct ct_lent *l, ct_loader *loader, ct_stream *s)
{
	ct_device *d = ct_stream_device(s);

	*l = (struct ct_lent){.loader = loader, .stream = s, .max = ct_lent_max(d)};
	for (int i = 0; ct_device_caps(d)->async && i < l->max; i++)
		CT_TRY(ct_event_create(d, true, &l->ring[i].read));
	return CT_OK;
}

void ct_lent_release(struct ct_lent *l)
{
	int64_t deadline = ct_deadline_in(CT_SEC);
	struct ct_error keep;

	ct_error_save(&keep);
	for (; l->n_returned < l->n_lent; l->n_returned++) {
		ct_event *read = l->ring[l->n_returned % CT_LENT_MAX].read;

		if (read && ct_event_wait(read, deadline) < 0)
			ct_error_clear();
		ct_loader_release(l->loader, &l->ring[l->n_returned % CT_LENT_MAX].batch);
	}
	for (int i = 0; i < CT_LENT_MAX; i++)
		ct_event_destroy(l->ring[i].read);
	*l = (struct ct_lent){0};
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}

enum ct_status ct_lent_next(struct ct_lent *l, struct ct_loader_batch **out)
{
	struct ct_loader_batch *b = &l->ring[l->n_lent % CT_LENT_MAX].batch;

	CT_TRY(ct_loader_next(l->loader, CT_FOREVER, b));
	l->n_lent++;
	*out = b;
	return CT_OK;
}

enum ct_status ct_lent_posted(struct ct_lent *l)
{
	ct_event *read = l->ring[(l->n_lent - 1) % CT_LENT_MAX].read;

	if (read)
		CT_TRY(ct_event_record(read, l->stream));
	/* Leaves room for the next batch. */
	while (l->n_lent - l->n_returned >= (uint64_t)l->max) {
		read = l->ring[l->n_returned % CT_LENT_MAX].read;
		if (read)
			CT_TRY(ct_event_wait(read, CT_FOREVER));
		ct_loader_release(l->loader, &l->ring[l->n_returned % CT_LENT_MAX].batch);
		l->n_returned++;
	}
	return CT_OK;
}
