/* Executes the optimizer steps of one rank, for the training loop and the step benchmark. A step loads its
 * micro-batches, executes the forward and the backward pass of each, reduces each bucket of gradients as soon as it is
 * final, and updates the parameters.
 *
 * ct_stepper_post posts a complete step. It waits for data and, on an asynchronous device, also for the work that reads
 * the oldest lent batch if no further batch may be lent (trainer/run/step/lent.h). ct_stepper_take waits for the
 * results of a posted step and returns them. In every step, the training loop takes the results of step t - lag after
 * it has posted step t, so that all ranks act on these results at the same step. The lag is CT_STEP_LAG or more on
 * asynchronous devices. On other devices it is 0, because a step has finished when it is posted. It is also 0 with a
 * pipeline: a stage waits for each pass, because messages are in host memory, and reads the batches of the loader.
 *
 * On an asynchronous device, the batches are copied to the device while it still computes earlier steps
 * (trainer/run/step/step_input.h). If the device can record and train.cuda_graph is not "off", full steps are recorded,
 * and the recordings are posted again for later steps. Steps whose work has other arguments (a smaller step at the end
 * of an epoch) are posted without a recording. Recordings are made again after a program has been created, because the
 * memory that programs share may then have moved. All ranks record at the same steps. If one of them cannot, all go on
 * without recordings, or the run ends if train.cuda_graph is "on".
 *
 * A recording contains a group of train.graph_steps consecutive steps. ct_stepper_post then only gathers the steps of a
 * group, and the last one posts the work of all. If the results of a gathered step are taken, the work is posted at
 * once, without a recording. The lag is CT_STEP_LAG groups. */
#ifndef CT_TRAINER_RUN_STEP_STEP_H
#define CT_TRAINER_RUN_STEP_STEP_H

#include "trainer/run/session/session.h"
#include "trainer/run/session/step_clock.h"

enum {
	CT_STEP_LAG = 2,
	CT_STEP_GROUP_MAX = 64, /* of train.graph_steps */
};

struct ct_step_request {
	uint64_t step; /* step number in the run, from which the dropout masks are derived */
	double lr;
	bool stop, save, regroup; /* requests of this rank; in the result: of any rank */
	bool norms;               /* compute the norms of the gradient and of the weights */
};

struct ct_step_result {
	struct ct_step_request request;
	double loss_sum;    /* over all ranks and micro-batches */
	double grad_norm;   /* before clipping; -1 if it was not computed */
	double weight_norm; /* before the update; -1 if it was not computed */
	enum ct_update_outcome outcome;
	/* Loss scale of the next step (0: the loss is not scaled), number of updates since it last changed, and number
	 * of skipped updates of the run (nn/optim/optim.h). */
	double loss_scale;
	uint32_t loss_scale_steps;
	uint64_t skipped_updates;
	bool stop, save, regroup;
	uint32_t n_global, n_own; /* number of samples of all ranks, and of this rank */
	bool last_of_epoch;
	int64_t compile_ns; /* time spent on compiling for another image size; not included in any other time */
	uint64_t bad;       /* unreadable samples of the epoch so far, over all ranks */
	struct ct_step_times times;
	/* Steps that were posted as one recording end at the same time. Number of those whose results are taken after
	 * this one's; otherwise 0. */
	int same_end;
};

typedef struct ct_stepper ct_stepper;

/* Borrows the session. The first step is the one at the position in the session's state. */
enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out) CT_MUST_CHECK;
void ct_stepper_destroy(ct_stepper *p);
/* Posts one step, which computes the gradients of the global batch's mean loss, reduces them over all ranks, and
 * updates the parameters. At most lag + 1 steps may be posted before the results of the first of them are taken. */
enum ct_status ct_stepper_post(ct_stepper *p, const struct ct_step_request *req, bool *last_of_epoch) CT_MUST_CHECK;
/* Waits for the oldest step whose results have not been taken, and returns its results. Fails with CT_DATA if the epoch
 * has more unreadable samples than data.max_bad allows. */
enum ct_status ct_stepper_take(ct_stepper *p, struct ct_step_result *out) CT_MUST_CHECK;
int ct_stepper_lag(const ct_stepper *p);
int ct_stepper_group(const ct_stepper *p);   /* number of steps that are posted together if they can be recorded */
int ct_stepper_pending(const ct_stepper *p); /* number of posted steps whose results have not been taken */
/* Returns the number of steps that were posted by posting the recording of earlier steps. */
uint64_t ct_stepper_replayed(const ct_stepper *p);
/* From now on, ct_stepper_take passes the phases of a step to fn, unless the step was posted as a part of a recording.
 * NULL: none. */
void ct_stepper_on_phase(ct_stepper *p, ct_phase_fn fn, void *user);
/* Statistics of the loader since ct_stepper_create. */
void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out);

#endif
