/* Measures how the time of a step is divided into phases. Each mark is an event in the engine's stream. On an
 * asynchronous device, the times are therefore those of execution, not of posting. On the CPU, an event reads the
 * clock. A step clock may be used by only one thread. */
#ifndef CT_TRAINER_LOOP_STEP_CLOCK_H
#define CT_TRAINER_LOOP_STEP_CLOCK_H

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
	bool paused; /* no marks are made until the next ct_step_clock_begin */
};

/* Allocates room for `cap` phases. Borrows the stream. Call release even if this fails. */
enum ct_status ct_step_clock_init(struct ct_step_clock *c, ct_stream *s, int cap) CT_MUST_CHECK;
void ct_step_clock_release(struct ct_step_clock *c);
enum ct_status ct_step_clock_begin(struct ct_step_clock *c) CT_MUST_CHECK;
/* Ends a phase. The time since the previous mark is added to this phase. */
enum ct_status ct_step_clock_mark(struct ct_step_clock *c, enum ct_phase phase) CT_MUST_CHECK;
/* The phases of the marks, from mark `first` on, that were made during a recording. Their events are recorded again each
 * time the recording is posted. */
enum { CT_STEP_PHASES = 24 };
struct ct_step_phases {
	int first, n;
	enum ct_phase phase[CT_STEP_PHASES];
};
/* Gets the phases of the marks from `first` on. There must be at most CT_STEP_PHASES. */
void ct_step_clock_keep(const struct ct_step_clock *c, int first, struct ct_step_phases *out);
/* Call this when the recording is posted again, after p->first marks have been made. */
void ct_step_clock_repeat(struct ct_step_clock *c, const struct ct_step_phases *p);
/* Returns the times of the step. Call this after the work of the step has finished. */
enum ct_status ct_step_clock_read(const struct ct_step_clock *c, struct ct_step_times *out) CT_MUST_CHECK;

#endif
