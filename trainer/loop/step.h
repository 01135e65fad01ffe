/* The optimizer steps of one rank, for the training loop and the step bench: batches -> forward -> backward, with
 * buckets reduced as they become final -> update.
 *
 * A step is posted as a whole: ct_stepper_post waits for data, and on an asynchronous device for the work that reads the oldest of
 * the batches that may be out. Its results are taken later by ct_stepper_take, which waits for
 * them. The loop takes the results of step t - lag after it has posted step t, in every step, so that all ranks act at the same step.
 * The lag is 0 where posting is doing and CT_STEP_LAG on asynchronous devices. */
#ifndef CT_TRAINER_LOOP_STEP_H
#define CT_TRAINER_LOOP_STEP_H

#include "trainer/loop/session.h"
#include "trainer/loop/step_clock.h"

enum { CT_STEP_LAG = 2 };

struct ct_step_request {
	uint64_t step; /* of the run: keys dropout */
	double lr;
	bool stop, save; /* requests of this rank; in the result: of any rank */
};

struct ct_step_result {
	struct ct_step_request request;
	double loss_sum;  /* over all ranks and micro-batches */
	double grad_norm; /* before clipping; -1 without clipping */
	enum ct_update_outcome outcome;
	bool stop, save;
	uint32_t n_global, n_own; /* samples of all ranks, of this rank */
	bool last_of_epoch;
	int64_t compile_ns; /* spent on compiling for another image size; not included in any other time */
	uint64_t bad;       /* bad samples of the epoch so far, over all ranks */
	struct ct_step_times times;
};

typedef struct ct_stepper ct_stepper;

/* Borrows the session; starts at the position in its state. */
enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out) CT_MUST_CHECK;
void ct_stepper_destroy(ct_stepper *p);
/* Posts one step: the gradients of the global batch's mean loss, reduced over all ranks, and the update. At most lag +
 * 1 posted steps may wait to be taken. */
enum ct_status ct_stepper_post(ct_stepper *p, const struct ct_step_request *req, bool *last_of_epoch) CT_MUST_CHECK;
/* Waits for the oldest step that was not taken and returns its results. CT_DATA if the epoch has more bad samples than
 * data.max_bad. */
enum ct_status ct_stepper_take(ct_stepper *p, struct ct_step_result *out) CT_MUST_CHECK;
int ct_stepper_lag(const ct_stepper *p);
int ct_stepper_pending(const ct_stepper *p); /* steps posted and not taken */
/* Statistics of the loader since ct_stepper_create. */
void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out);

#endif
