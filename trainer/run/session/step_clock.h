/* Measures how the time of a step is divided into phases. Each mark is an event in the engine's stream. On an
 * asynchronous device, the times are therefore those of execution, not of posting, also within a recording. On the CPU,
 * an event reads the clock. A step clock may be used by only one thread.
 *
 * Exposed communication is the time for which the engine's stream waits for collectives: those of gradients after the
 * backward pass, and those of batch norm within both passes. In a world of one, nothing is marked as exposed. */
#ifndef CT_TRAINER_RUN_SESSION_STEP_CLOCK_H
#define CT_TRAINER_RUN_SESSION_STEP_CLOCK_H

#include "base/device/device.h"

enum ct_phase { CT_PHASE_DATA, CT_PHASE_FORWARD, CT_PHASE_BACKWARD, CT_PHASE_EXPOSED, CT_PHASE_OPTIM, CT_PHASE_NONE };

struct ct_step_times { /* nanoseconds */
	int64_t data_ns, forward_ns, backward_ns, exposed_ns, optim_ns;
	int64_t step_ns; /* the complete step, except for phases of type CT_PHASE_NONE (compiling) */
};
void ct_step_times_add(struct ct_step_times *to, const struct ct_step_times *t);

struct ct_step_mark {
	ct_event *event;
	enum ct_phase phase;
};

/* The marks of one step. */
struct ct_step_clock {
	ct_stream *stream;
	struct ct_step_mark *marks; /* [cap], the first n are in use; mark 0 is the start of the step */
	int n, cap;
	bool paused;         /* no marks are made until the next ct_step_clock_begin */
	enum ct_phase phase; /* of the work that is being posted */
	/* The phases of marks first_kept to first_kept + n_kept - 1, which were made in a recording. */
	enum ct_phase *kept; /* [cap] */
	int first_kept, n_kept;
};

/* Allocates room for `cap` phases. Borrows the stream. Call release even if this fails. */
enum ct_status ct_step_clock_init(struct ct_step_clock *c, ct_stream *s, int cap) CT_MUST_CHECK;
void ct_step_clock_release(struct ct_step_clock *c);
enum ct_status ct_step_clock_begin(struct ct_step_clock *c) CT_MUST_CHECK;
/* Ends a phase. The time since the previous mark is added to this phase. */
enum ct_status ct_step_clock_mark(struct ct_step_clock *c, enum ct_phase phase) CT_MUST_CHECK;
/* Post a collective for which the stream waits, in the middle of the current phase (c->phase), between these calls. */
enum ct_status ct_step_clock_pause_phase(struct ct_step_clock *c) CT_MUST_CHECK;
enum ct_status ct_step_clock_resume_phase(struct ct_step_clock *c) CT_MUST_CHECK;
/* Stores the phases of the marks from `first` on, which were made in a recording, and removes these marks. Their events
 * are recorded each time the recording is posted. */
void ct_step_clock_keep(struct ct_step_clock *c, int first);
/* Call this when the recording is posted, after the marks before it have been made. */
void ct_step_clock_repeat(struct ct_step_clock *c);
/* Passes each phase of the step to fn, in order, with its begin and end since the start of the step. Call this after
 * the work of the step has finished. */
typedef void (*ct_phase_fn)(void *user, enum ct_phase phase, int64_t begin_ns, int64_t end_ns);
enum ct_status ct_step_clock_each(const struct ct_step_clock *c, ct_phase_fn fn, void *user) CT_MUST_CHECK;
/* Returns the times of the step. Call this after the work of the step has finished. */
enum ct_status ct_step_clock_read(const struct ct_step_clock *c, struct ct_step_times *out) CT_MUST_CHECK;

#endif
