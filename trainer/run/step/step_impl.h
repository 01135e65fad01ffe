/* The parts of the stepper. step.c has the functions of step.h: it keeps the slots of the posted steps, and leaves what
 * a step consists of to one of four ways of stepping, which it chooses once:
 *
 *   step_plain.c   ct__step_plain: work is posted as the loader delivers batches, and reads them where they are
 *                  ct__step_ahead: the batches of a step are copied to the device before its work is posted
 *   step_record.c  ct__step_recorded: as ahead, but the work of full steps is recorded once and then posted as a whole
 *                  (step_compare.c compares a recording with the same work unrecorded)
 *   step_stage.c   ct__step_stage: the passes of a stage of a pipeline, with messages between them
 *
 * step_work.c has the pieces of which all of them compose a step; step_programs.c compiles programs; step_input.c
 * copies batches to the device. */
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

	/* Only if steps are loaded ahead: the micro-batches of the step, which have been copied to `input`. */
	struct ct_step_input input;
	struct step_micro *micros; /* [accumulate] */
	int n_micros;
	struct step_micro *recorded; /* [n_recorded] those of the recorded step */
	int n_recorded;
};

/* A way of stepping. */
struct step_way {
	/* Prepares what only this way needs; NULL: nothing. */
	enum ct_status (*open)(ct_stepper *p);
	/* Loads the micro-batches of a step before its work is posted; NULL: `run` loads them. */
	enum ct_status (*load)(ct_stepper *p, struct step_slot *slot);
	/* Posts the work of n steps that were posted by ct_stepper_post, n <= the ring's group. */
	enum ct_status (*post)(ct_stepper *p, struct step_slot *first, int n);
	/* Posts the forward and the backward passes of a step. */
	enum ct_status (*run)(ct_stepper *p, struct step_slot *slot);
	/* Follows when all gradients are reduced; NULL: nothing. */
	enum ct_status (*sum)(ct_stepper *p);
	/* Releases what only this way has. It can be called after a failed `open`. NULL: nothing. */
	void (*close)(ct_stepper *p);
};

/* The slots of the steps. Steps are gathered until there are `group` of them, whose work is then posted together. */
struct step_ring {
	int group, n_groups, n;     /* n = group * n_groups */
	struct step_slot *slots;    /* [n] */
	struct step_slot **pending; /* [n] those of the steps that have not been taken */
	uint64_t posted, taken;     /* steps */
	int next, n_gathered;       /* next slot; number of slots before it whose work has not been posted yet */
};

/* Programs that the session does not have: for the row counts of an epoch's last, smaller step, and those of all
 * contexts but the first. They are compiled when they are first needed. */
struct step_programs {
	struct step_tail {
		int n, context;
		ct_program *program;
	} *tails;
	int n, cap;
};

/* The communicators that recorded steps use: group and norm_comm of the session. */
enum { CT_STEP_COMMS = 2 };
/* Groups of an asynchronous device: one is being filled, and two have been posted. */
enum { CT_STEP_GROUPS = CT_STEP_LAG + 1 };

/* Recordings of steps (ct__step_recorded). */
struct step_recorder {
	/* Of each group of slots. The first full group is posted as usual, because some memory is allocated when it is
	 * first used. The second one is recorded and posted as usual. The recording is posted for all later groups. */
	struct step_group {
		bool warm;               /* the first full group has been posted */
		ct_recording *recording; /* the clock of the first slot keeps the phases that were marked in it */
		ct_comm_recorded *collectives[CT_STEP_COMMS];
	} groups[CT_STEP_GROUPS];
	uint64_t n_programs; /* ct_net_programs_made when the last step was posted */
	bool smaller;        /* a step with fewer rows has been posted: no rank needs other programs for later ones */
	bool prepared;       /* ct__step_prepare_compare has been called */
	struct step_compare *compare; /* NULL: no recording is to be compared (any more) */
	bool off;                     /* steps are not recorded any more */
	char why[256];                /* why this rank cannot record; "": it can */
	uint64_t weights;             /* generation of the parameters after the last posted step */
	uint64_t n_replayed;          /* steps */
};

struct ct_stepper {
	struct ct_session *s;
	const struct step_way *way;
	ct_loader *loader;
	struct ct_lent lent;
	uint64_t n_bad; /* bad samples of the epoch on this rank; rank 0 also counts those from before a resume */
	ct_stream *stream;
	ct_stream *copies; /* copies batches to the input of the slots; NULL: work reads the batches of the loader */
	int lag;
	int64_t timeout_ns; /* of waits for work that needs other ranks */
	struct step_ring ring;
	struct step_programs programs;
	struct step_recorder recorder;
	struct step_micro
		*in_flight;   /* [contexts] micro-batches whose backward passes have not been posted (ct__step_stage) */
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
/* Posts the work of n steps, one after the other. */
enum ct_status ct__step_post_each(ct_stepper *p, struct step_slot *first, int n) CT_MUST_CHECK;

/* step_plain.c */

extern const struct step_way ct__step_plain, ct__step_ahead;
/* Loads all micro-batches of a step, and posts their copies to the slot's input. */
enum ct_status ct__step_load_ahead(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;
/* Posts the passes of the micro-batches that were loaded ahead. */
enum ct_status ct__step_run_ahead(ct_stepper *p, struct step_slot *slot) CT_MUST_CHECK;

/* step_stage.c */

extern const struct step_way ct__step_stage;

/* step_record.c */

extern const struct step_way ct__step_recorded;
/* Returns whether steps are recorded, and how many in one recording (train.cuda_graph, train.graph_steps; 1: steps are
 * not recorded, or one by one). Fails if the config wants recordings that are not possible. */
enum ct_status ct__step_plan_recording(ct_stepper *p, bool *records, int *group) CT_MUST_CHECK;
/* Whether so few micro-batches make a step that memory for the input of several steps is small. */
bool ct__step_copies_fit(const ct_stepper *p);
/* Begins from scratch, because the program of full steps is another one from now on. */
void ct__step_drop_recordings(ct_stepper *p);
/* A rank, perhaps another one, cannot record. All ranks call this after they have taken the results of the same step.
 */
void ct__step_stop_recording(ct_stepper *p);

/* step_compare.c */

/* If a recorded step is to be compared, allocates the memory for it (p->recorder.compare), when `step` is recorded.
 * After a failure, no rank may compare. */
enum ct_status ct__step_prepare_compare(ct_stepper *p, uint64_t step) CT_MUST_CHECK;
void ct__step_free_compare(ct_stepper *p);
/* n ranks lack the memory. All ranks call this after they have taken the results of the same step. */
void ct__step_skip_compare(ct_stepper *p, int n);
/* Posts the steps of a group as ct__step_post_each does, and fails with CT_DEVICE if its recording, posted from the
 * same state, leaves other values. Waits for all posted work, and frees p->recorder.compare. */
enum ct_status ct__step_compare(ct_stepper *p, const struct step_group *group, struct step_slot *first) CT_MUST_CHECK;

#endif
