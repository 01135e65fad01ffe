/* A trace of some training steps of all ranks, for `ctrain bench step --trace`: a JSON file in the Trace Event Format
 * (Google, "Trace Event Format", 2016), which Perfetto and chrome://tracing show. Each rank is a process of the trace
 * with these tracks: its steps, their phases, the layers, and one track for each bucket of gradients. */
#ifndef CT_TRAINER_TOOLS_BENCH_STEP_TRACE_H
#define CT_TRAINER_TOOLS_BENCH_STEP_TRACE_H

#include "trainer/run/step/step.h"

struct ct__trace_span {
	int track, id; /* private to step_trace.c; id: a node, a phase or a bucket */
	bool backward;
	uint64_t step;
	int64_t begin_ns, end_ns;
	uint64_t bytes; /* of a bucket */
};

/* A zero-initialized struct with `session` set is an empty trace. */
struct ct__step_trace {
	struct ct_session *session;
	struct ct__trace_span *spans;
	size_t n, cap;
	int64_t origin_ns; /* when the first rank began the first step */
	int64_t step_ns;
	uint64_t first, step;
	enum ct_status status; /* of a callback */
};

enum { CT__TRACE_STEPS = 3 };

/* Call these before and after a step is posted and taken. The program that is traced must be profiled
 * (ct_program_profile). Collective. */
enum ct_status ct_trace_begin(struct ct__step_trace *t, ct_stepper *p, uint64_t step) CT_MUST_CHECK;
enum ct_status ct_trace_end(struct ct__step_trace *t, ct_stepper *p) CT_MUST_CHECK;
/* Writes the traces of all ranks to a file, on rank 0. Collective. */
enum ct_status ct_trace_write(const struct ct__step_trace *t, const char *path) CT_MUST_CHECK;
void ct_trace_release(struct ct__step_trace *t);

#endif
