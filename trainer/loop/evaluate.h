/* Evaluation that counts every sample exactly once, for any number of ranks. */
#ifndef CT_TRAINER_LOOP_EVALUATE_H
#define CT_TRAINER_LOOP_EVALUATE_H

#include "trainer/loop/session.h"

struct ct_eval_result {
	double loss, top1, top5; /* means over all samples of all ranks; top1, top5 < 0 for regression */
	uint64_t count;          /* evaluated */
	uint64_t bad;            /* left out: they could not be read or decoded */
	double seconds;
};

/* Collective: broadcasts rank 0's running statistics first (as DDP, rank 0's are the ones that count), evaluates with
 * the averaged weights when EMA is on. All ranks get the same result. progress (may be NULL) is called now and then. */
enum ct_status ct_evaluate(struct ct_session *s, void (*progress)(void *user, double done), void *user,
			   struct ct_eval_result *out) CT_MUST_CHECK;

#endif
