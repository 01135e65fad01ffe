/* The parts of the stepper: step_programs.c compiles programs, step_input.c copies batches to the device, step_work.c
 * posts the work of a step, step_stage.c that of a stage of a pipeline, step_record.c records this work, and step.c
 * contains the functions of step.h. */
#ifndef CT_TRAINER_RUN_STEP_STEP_IMPL_H
#define CT_TRAINER_RUN_STEP_STEP_IMPL_H

#include "trainer/run/step/lent.h"
#include "trainer/run/step/step.h"
#include "trainer/run/step/step_input.h"

/* A micro-batch of a step. */
struct step_micro {
	struct ct_batch batch;
	float scale;      /* of its gradients */
	bool first, last; /* of the step */
};

/* A posted step whose results have not been taken. */
struct step_slot {
	/* Pinned host memory [CT_SCALAR_N]. up: the scalars of this rank; down: the reduced scalars and the results of
	 * the update. A single rank reads its requests from `up`, which is not copied to the device. */
	float *up, *down;
	struct ct_step_args *args; /* pinned, too */
	ct_event *done;
	struct ct_step_clock clock;
	struct ct_step_result result;
	/* The slot whose `done` and clock apply to this step: the first one of a group that was posted as one
	 * recording, otherwise the slot itself. */
	const struct step_slot *head;
	int n_same_end; /* number of slots after this one that have the same head */

	/* Only if ct_stepper.copies is not NULL: the micro-batches of the step, which have been copied to `input`. */
	struct ct_step_input input;
	struct step_micro *micros; /* [accumulate] */
	int n_micros;
	struct step_micro *recorded; /* [n_recorded] those of the recorded step */
	int n_recorded;
};

/* The communicators that recorded steps use: group and norm_comm of the session. There are no recordings in a pipeline.
 */
enum { CT_STEP_COMMS = 2 };

/* `group` consecutive slots, whose steps are recorded together. The first full group is posted as usual, because some
 * memory is allocated when it is first used. The second one is recorded, and the recording is posted for the second and
 * all later groups. */
struct step_group {
	bool warm;
	ct_recording *recording; /* the clock of the first slot keeps the phases that were marked in it */
	ct_comm_recorded *collectives[CT_STEP_COMMS];
};
/* Groups of an asynchronous device: one is being filled, and two have been posted. */
enum { CT_STEP_GROUPS = CT_STEP_LAG + 1 };

struct ct_stepper {
	struct ct_session *s;
	ct_loader *loader;
	ct_stream *stream;
	ct_stream *copies; /* copies batches to the input of the slots; NULL: work reads the batches of the loader */
	int lag, group, n_groups;
	struct step_group groups[CT_STEP_GROUPS];
	struct step_slot *slots;    /* [n_groups * group] */
	struct step_slot **pending; /* [n_groups * group] ring of the slots of the steps that have not been taken */
	uint64_t posted, taken;     /* steps */
	int next, n_gathered;       /* next slot; number of slots before it whose work has not been posted yet */
	struct ct_lent lent;
	int64_t timeout_ns; /* of waits for work that needs other ranks */
	/* Remainder programs, for the row counts of an epoch's last, smaller step, and the programs of all contexts but
	 * the first. They are compiled when they are first needed. */
	struct step_tail {
		int n, context;
		ct_program *program;
	} *tails;
	int n_tails, cap_tails;
	struct step_micro
		*in_flight; /* [contexts] micro-batches whose backward passes have not been posted; NULL: no pipeline */
	uint64_t n_bad;     /* bad samples of the epoch on this rank; rank 0 also counts those from before a resume */
	bool records;
	uint64_t n_programs; /* ct_net_programs_made when the recordings were made */
	uint64_t weights;    /* generation of the parameters after the last posted step */
	uint64_t n_replayed;
	ct_phase_fn on_phase; /* NULL: none */
	void *phase_user;
};

/* step.c */

/* Waits for the posted work, `what`, which needs other ranks. The message names it if the deadline passes. */
enum ct_status ct__step_sync(const ct_stepper *p, const char *what) CT_MUST_CHECK;

/* step_programs.c */

/* Gets the training program for n rows in a context of the net. */
enum ct_status ct__step_program(ct_stepper *p, int n, int context, ct_program **out) CT_MUST_CHECK;
/* Fails if the model cannot be trained on the smaller batches at the end of an epoch. */
enum ct_status ct__step_check_tail(ct_stepper *p, const struct ct_sampler *sampler) CT_MUST_CHECK;
/* Progressive resizing: compiles another program if images have another size from now on, and sets *compile_ns to the
 * time that this has taken. */
enum ct_status ct__step_fit_size(ct_stepper *p, struct ct_shape shape, int64_t *compile_ns) CT_MUST_CHECK;
bool ct__step_fits_size(const ct_stepper *p, struct ct_shape shape);
void ct__step_drop_tails(ct_stepper *p);

/* step_work.c */

/* Loads all micro-batches of a step and posts their copies to the slot's input. */
enum ct_status ct__step_load_all(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;
/* Returns the number of bytes of one input of the model. */
size_t ct__step_image_bytes(const ct_stepper *p);
/* Borrows the next batch from the loader until ct_lent_posted is called. */
enum ct_status ct__step_load(ct_stepper *p, struct step_slot *slot, struct step_micro *out) CT_MUST_CHECK;
enum ct_status ct__step_forward(ct_stepper *p, struct step_slot *slot, const struct step_micro *m,
				int context) CT_MUST_CHECK;
/* dy and dx are those of struct ct_backward_opts. */
enum ct_status ct__step_backward(ct_stepper *p, struct step_slot *slot, const struct step_micro *m, int context,
				 const float *dy, float *dx) CT_MUST_CHECK;
/* Does the work of a micro-batch without rows: a rank without rows contributes zero gradients. */
enum ct_status ct__step_empty(ct_stepper *p, const struct step_micro *m) CT_MUST_CHECK;
/* Posts the scalars of this rank. */
enum ct_status ct__step_post_scalars(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;
/* Posts all work of a step, from its arguments to the copies of its results. */
enum ct_status ct__step_post_work(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;
/* Posts the work of n steps, which were loaded with ct__step_load_all if p->copies is not NULL. */
enum ct_status ct__step_post_each(ct_stepper *p, struct step_slot *first, int n) CT_MUST_CHECK;

/* step_stage.c */

/* Runs all micro-batches of a step on a stage of a pipeline. */
enum ct_status ct__step_run_stage(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;
/* Sums the scalars over all ranks, whose update has to agree. */
enum ct_status ct__step_sum_scalars(ct_stepper *p) CT_MUST_CHECK;

/* step_record.c */

/* Decides whether steps are recorded, and how many in one recording (train.cuda_graph, train.graph_steps). */
enum ct_status ct__step_choose_recording(ct_stepper *p) CT_MUST_CHECK;
/* Does the same as ct__step_post_each for all steps of a group, if possible by posting the recording of an earlier
 * group. */
enum ct_status ct__step_post_group(ct_stepper *p, struct step_slot *first) CT_MUST_CHECK;
void ct__step_drop_recordings(ct_stepper *p);

#endif
