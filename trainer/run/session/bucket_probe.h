/* Chooses the size of the reduce buckets at the start of a run. With dist.bucket_mib=auto and several ranks,
 * all-reduces of a few sizes are measured on the communicator of the run. The measurement takes at most about 0.2 s; a
 * slow network is measured with fewer and smaller all-reduces. Rank 0 decides for all ranks. */
#ifndef CT_TRAINER_RUN_SESSION_BUCKET_PROBE_H
#define CT_TRAINER_RUN_SESSION_BUCKET_PROBE_H

#include "trainer/run/session/session.h"

/* Collective. Needs s->net, s->comm and the gradients of s, which must be zero. Sets *out. */
enum ct_status ct_bucket_probe(struct ct_session *s, struct ct_bucket_choice *out) CT_MUST_CHECK;

#endif
