/* Batches that the loader has lent to posted work, in training steps and in evaluations. Each batch is returned to
 * the loader when the work that reads it is done. The host can therefore post the next batches without waiting. On a
 * device that is not asynchronous, work is done when it is posted, and the batch is returned at once. */
#ifndef CT_TRAINER_LOOP_LENT_H
#define CT_TRAINER_LOOP_LENT_H

#include "data/loader/loader.h"

enum { CT_LENT_MAX = 16 }; /* maximum number of lent batches on an asynchronous device */

struct ct_lent {
	ct_loader *loader;
	ct_stream *stream;
	int max;
	int64_t timeout_ns;
	struct {
		struct ct_loader_batch batch;
		ct_event *read; /* NULL: the device is not asynchronous */
	} ring[CT_LENT_MAX];
	uint64_t n_lent, n_returned;
};

/* Returns the number of batches that can be lent at a time, for ct_loader_opts.max_out. `ahead` is the number of
 * batches whose work the host may post before it waits for the first one. The result is at most CT_LENT_MAX, which is
 * enough to keep a device busy. It is 1 if the device is not asynchronous. */
int ct_lent_max(const ct_device *d, uint64_t ahead);
/* Borrows the loader and the stream. max comes from ct_lent_max. timeout_ns is the maximum time to wait for the work
 * that reads a batch; after it, the wait fails with CT_TIMEOUT. It is CT_FOREVER if that work does not depend on
 * other ranks. In every case, release *l before the loader. */
enum ct_status ct_lent_init(struct ct_lent *l, ct_loader *loader, ct_stream *s, int max, int64_t timeout_ns) CT_MUST_CHECK;
/* Returns all batches. After a failure, posted work may still read some of them, so this waits for the work, for at
 * most a second. A zeroed *l is allowed. */
void ct_lent_release(struct ct_lent *l);
/* Borrows the next batch from the loader. Post the work that reads it to the stream, then call ct_lent_posted. The
 * fields of *out stay valid until the next call of ct_lent_next. */
enum ct_status ct_lent_next(struct ct_lent *l, struct ct_loader_batch **out) CT_MUST_CHECK;
enum ct_status ct_lent_posted(struct ct_lent *l) CT_MUST_CHECK;

#endif
