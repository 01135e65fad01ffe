/* Keeps the batches that the loader has lent to posted work, in training steps and in evaluations. Each batch is
 * returned to the loader when the work that reads it has finished. The host can therefore post work for further batches
 * without waiting. If the device is not asynchronous, the work has finished when the call that posts it returns, and
 * the batch is returned at once. */
#ifndef CT_TRAINER_RUN_STEP_LENT_H
#define CT_TRAINER_RUN_STEP_LENT_H

#include "data/loader/loader.h"

enum { CT_LENT_MAX = 16 }; /* maximum number of lent batches on an asynchronous device */

struct ct_lent {
	ct_loader *loader;
	ct_stream *stream;
	int max;
	int64_t timeout_ns;
	/* (optional) Called when the work that reads a batch has finished, in the order of the batches. `slot` is the
	 * value of ct_lent_slot when the batch was borrowed. Set them after ct_lent_init. */
	void (*finished)(void *user, int slot, const struct ct_loader_batch *b);
	void *user;
	struct {
		struct ct_loader_batch batch;
		ct_event *read; /* completes when the batch has been read; NULL: the device is not asynchronous */
	} ring[CT_LENT_MAX];
	uint64_t n_lent, n_returned;
};

/* Returns the number of batches that can be lent at a time, for ct_loader_opts.max_out. `ahead` is the number of
 * batches for which the host may post work before it waits for the first one. The result is at most CT_LENT_MAX, which
 * is enough to keep a device busy. It is 1 if the device is not asynchronous. */
int ct_lent_max(const ct_device *d, uint64_t ahead);
/* Borrows the loader and the stream. max comes from ct_lent_max. timeout_ns is the maximum time to wait for the work
 * that reads a batch; when it has passed, the wait fails with CT_TIMEOUT. Pass CT_FOREVER if that work does not depend
 * on other ranks. Release *l before the loader, even if this function fails. */
enum ct_status ct_lent_init(struct ct_lent *l, ct_loader *loader, ct_stream *s, int max,
			    int64_t timeout_ns) CT_MUST_CHECK;
/* Returns all batches. After a failure, posted work may still be reading some of them, so this function waits up to one
 * second for the work. A zeroed *l is allowed. */
void ct_lent_release(struct ct_lent *l);
/* Borrows the next batch from the loader. Post the work that reads it to the stream, then call ct_lent_posted. The
 * fields of *out stay valid until the next call of ct_lent_next. */
enum ct_status ct_lent_next(struct ct_lent *l, struct ct_loader_batch **out) CT_MUST_CHECK;
enum ct_status ct_lent_posted(struct ct_lent *l) CT_MUST_CHECK;
/* Returns the place of the last borrowed batch, from 0 to max - 1, which no other lent batch has. */
int ct_lent_slot(const struct ct_lent *l);
/* Waits for the posted work, and returns all batches. */
enum ct_status ct_lent_finish(struct ct_lent *l) CT_MUST_CHECK;

#endif
