/* One optimizer step of one rank, for the training loop and the step bench: batches -> forward -> backward, with
 * buckets going out as they become final -> wait -> fused update. The only wait for other ranks in a step stands in
 * ct_stepper_gradients. */
#ifndef CT_TRAINER_LOOP_STEP_H
#define CT_TRAINER_LOOP_STEP_H

#include "trainer/loop/session.h"

struct ct_step_times { /* nanoseconds */
	int64_t data_ns, forward_ns, backward_ns, exposed_ns, optim_ns;
	int64_t step_ns; /* the whole step, without compiling */
};
void ct_step_times_add(struct ct_step_times *to, const struct ct_step_times *t);

struct ct_step_request {
	uint64_t step;   /* of the run: keys dropout */
	bool stop, save; /* this rank's wishes; the result holds what any rank wished */
};

struct ct_step_result {
	double loss_sum; /* over all ranks and micro-batches */
	uint32_t n_global;
	bool stop, save;
	bool last_of_epoch;
	int64_t compile_ns; /* spent on a program for another image size; in no other time */
	uint64_t bad;       /* bad samples of the epoch so far, over all ranks */
	uint32_t n_own;     /* samples of this rank */
};

typedef struct ct_stepper ct_stepper;

/* Borrows the session, starts at its state's position. */
enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out) CT_MUST_CHECK;
void ct_stepper_destroy(ct_stepper *p);
/* Gradients of the global batch's mean loss into the net's arena, on every rank. Adds to times. */
enum ct_status ct_stepper_gradients(ct_stepper *p, const struct ct_step_request *req, struct ct_step_result *out,
				    struct ct_step_times *times) CT_MUST_CHECK;
/* Of the loader, since the stepper's create. */
void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out);
enum ct_status ct_stepper_update(ct_stepper *p, double lr, double *grad_norm,
				 struct ct_step_times *times) CT_MUST_CHECK;

#endif
