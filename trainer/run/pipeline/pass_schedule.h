/* The order in which a stage of a pipeline processes the micro-batches of a step: 1F1B with a flush at the end of the
 * step (Narayanan et al., "Memory-efficient pipeline-parallel DNN training", 2021, there called PipeDream-Flush;
 * Megatron-LM uses the same order). Stage k of P runs P - 1 - k forward passes first. Then a forward and a backward
 * pass alternate, and the remaining backward passes follow. Therefore at most P - k micro-batches are in flight, that
 * is, their backward passes have not run yet. Both passes run in the order of the micro-batches, so gradients are
 * summed in the same order as without a pipeline. The schedule has no side effects. */
#ifndef CT_TRAINER_RUN_PIPELINE_PASS_SCHEDULE_H
#define CT_TRAINER_RUN_PIPELINE_PASS_SCHEDULE_H

#include <stdbool.h>

struct ct_pipe_schedule {
	int n_stages, stage, n_micros;
	int n_forward, n_backward; /* passes that have been returned */
};

struct ct_pipe_task {
	bool backward;
	int micro;
};

static inline struct ct_pipe_schedule ct_pipe_begin(int n_stages, int stage, int n_micros)
{
	return (struct ct_pipe_schedule){.n_stages = n_stages, .stage = stage, .n_micros = n_micros};
}
/* Gets the next pass. Returns false if there is none. */
bool ct_pipe_next(struct ct_pipe_schedule *s, struct ct_pipe_task *out);
/* Returns the largest number of micro-batches that are in flight. */
int ct_pipe_in_flight(int n_stages, int stage, int n_micros);
/* Returns the part of a step in which a stage waits, (P - 1) / (M + P - 1), if all passes take the same time. */
double ct_pipe_bubble(int n_stages, int n_micros);

#endif
