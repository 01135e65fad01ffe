/* Batches that posted work reads. Each one goes back to the loader when the work that reads it is done, so that the host can post the
 * next batches without waiting. On a device that is not asynchronous the work is done when it is posted, and the batch goes back at
 * once. Used by training steps and by evaluations. */
#ifndef CT_TRAINER_LOOP_LENT_H
#define CT_TRAINER_LOOP_LENT_H

#include "data/loader/loader.h"

enum { CT_LENT_MAX = 16 }; /* batches at a time on an asynchronous device, at most */

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

/* For ct_loader_opts.max_out: the number of batches that are out at a time if the host may post the work of `ahead` batches before
 * it waits for the first. At most CT_LENT_MAX, which is enough to keep a device busy; 1 if the device is not asynchronous. */
int ct_lent_max(const ct_device *d, uint64_t ahead);
/* Borrows both. max: of ct_lent_max. timeout_ns: how long to wait for the work that reads a batch (CT_TIMEOUT); CT_FOREVER if it does
 * not depend on other ranks. Release *l in every case, before the loader. */
enum ct_status ct_lent_init(struct ct_lent *l, ct_loader *loader, ct_stream *s, int max, int64_t timeout_ns) CT_MUST_CHECK;
/* After a failure, posted work may still read batches: waits up to a second for it. A zeroed one is allowed. */
void ct_lent_release(struct ct_lent *l);
/* The next batch. Post the work that reads it to the stream, then call ct_lent_posted; its numbers stay valid until the next batch. */
enum ct_status ct_lent_next(struct ct_lent *l, struct ct_loader_batch **out) CT_MUST_CHECK;
enum ct_status ct_lent_posted(struct ct_lent *l) CT_MUST_CHECK;

#endif
