/* Evaluation that counts every sample exactly once, for any number of ranks. */
#ifndef CT_TRAINER_RUN_EVALUATION_EVALUATE_H
#define CT_TRAINER_RUN_EVALUATION_EVALUATE_H

#include "trainer/run/evaluation/predictions.h"
#include "trainer/run/session/session.h"

struct ct_eval_result {
	double loss, top1, top5; /* means over all samples of all ranks; top1, top5 < 0 for regression */
	uint64_t count;          /* samples evaluated */
	uint64_t bad;            /* samples skipped because they could not be read or decoded */
	double seconds;
};

/* Collective. First broadcasts the running statistics of rank 0, which all ranks then use, as in DDP. If EMA is on,
 * evaluates the EMA weights. All ranks get the same result. progress may be NULL; it is called after each batch with
 * the fraction of samples that have been evaluated. predictions is NULL, or gets the predictions of all ranks for each
 * sample, and its n is 0 if there are none (ct_evaluate_predicts). All ranks must agree on whether it is NULL. Release
 * it even if this function fails. */
enum ct_status ct_evaluate(struct ct_session *s, void (*progress)(void *user, double done), void *user,
			   struct ct_predictions *predictions, struct ct_eval_result *out) CT_MUST_CHECK;
/* Returns whether the model predicts classes, and the number of samples is small enough to keep a prediction for each.
 */
bool ct_evaluate_predicts(const struct ct_session *s);

#endif
