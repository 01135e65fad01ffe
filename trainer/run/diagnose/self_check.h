/* The check of the sums over ranks at the start of a run on GPUs. A library or a driver with a defect may compute wrong
 * sums that are the same on all ranks, so that no comparison of the ranks can find them. */
#ifndef CT_TRAINER_RUN_DIAGNOSE_SELF_CHECK_H
#define CT_TRAINER_RUN_DIAGNOSE_SELF_CHECK_H

#include "trainer/run/session/session.h"

/* Sums known values over the ranks with the buckets, streams and memory of training steps, first as posted work and
 * then as a recording that is posted many times, and compares the sums exactly. Does nothing with train.self_check=off,
 * with one rank, or on a synchronous device. Call it before the first step; afterwards, the gradients and scalars are
 * zero. Fails with CT_COMM if a sum is wrong; message and hint name what to switch off. */
enum ct_status ct_self_check(struct ct_session *s) CT_MUST_CHECK;

#endif
