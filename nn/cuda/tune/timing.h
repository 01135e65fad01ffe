/* Executes the plans of a graph, and measures how long they take on the device. */
#ifndef CT_NN_CUDA_TUNE_TIMING_H
#define CT_NN_CUDA_TUNE_TIMING_H

#include "base/device/device.h"
#include "nn/cuda/cudnn/plan.h"

/* Where plans are executed. The handle uses the stream. `progress` is ct_net_opts.tuning. */
struct ct__timing {
	ct_device *device;
	ct_stream *stream;
	cudnnHandle_t handle;
	const ct__cudnn_target *target;
	void (*progress)(void *user, size_t done, size_t total);
	void *user;
};

/* Executes each candidate, and sets *best to the index of the fastest one and *ns to its time. Each one runs once to
 * warm up and once to be measured, or twice if it seems to be slow. If that took less than twice the best time so far,
 * it is measured three more times, and the shortest time counts, because other work can only make a plan slower. The
 * operands are in memory that is allocated for this call; fails with CT_NOMEM if there is too little, and *best is then
 * the first candidate that has not failed. Candidates that cuDNN cannot execute are counted in c->n_failed and skipped,
 * as long as the device still works. If none is left, the error is that of the last one. */
enum ct_status ct__timing_best(const struct ct__timing *t, const ct__cudnn_graph *g, struct ct__cudnn_candidates *c,
			       int *best, int64_t *ns) CT_MUST_CHECK;
/* Sets the offset of each tensor in one block of memory, and returns the number of bytes that they need. */
size_t ct__plan_place(const ct__cudnn_graph *g, size_t offsets[CT__CUDNN_MAX_TENSORS]);
/* Posts a plan. If cuDNN refuses to execute it for the first time, the plan is made again for the handle, and posted
 * again; if that fails, too, the first error is returned. */
enum ct_status ct__plan_execute(const struct ct__timing *t, const ct__cudnn_graph *g, ct__cudnn_plan *p,
				const ct__cudnn_pack *pack) CT_MUST_CHECK;
/* After an error of cuDNN: returns whether the device still works, after it has waited for the stream. Keeps the
 * pending error. */
bool ct__timing_recover(const struct ct__timing *t);

#endif
