/* Execution plans: how cuDNN computes an operation graph on a device.
 *
 * cuDNN's heuristics propose engine configurations, best first. Each one that cuDNN can finalize becomes a plan. The
 * filter keeps plans whose arithmetic is allowed. For example, true fp32 allows neither tensor cores nor the rounding
 * of inputs to a smaller type.
 *
 * The device is either the current one or one that is described in JSON (cuDNN 9.8 or later). A JSON description needs
 * neither a GPU nor a driver, so that plans for a GPU can be listed on any machine. Engines that are compiled at run
 * time cannot be finalized in this way and are only counted. */
#ifndef CT_NN_CUDA_CUDNN_PLAN_H
#define CT_NN_CUDA_CUDNN_PLAN_H

#include "nn/cuda/cudnn/config.h"

typedef struct ct__cudnn_target ct__cudnn_target;
typedef struct ct__cudnn_plan ct__cudnn_plan;

/* The CUDA device with this index, which must be the current device of the calling thread. The caller owns the target.
 * Several threads may find plans at the same time if each of them has its own target and graphs. */
enum ct_status ct__cudnn_target_create(int device, ct__cudnn_target **out) CT_MUST_CHECK;
/* json contains the device properties as cuDNN writes them. */
enum ct_status ct__cudnn_target_from_json(const char *json, ct__cudnn_target **out) CT_MUST_CHECK;
void ct__cudnn_target_destroy(ct__cudnn_target *t);

/* Plans with the notes DOWN_CONVERT_INPUTS and REDUCED_PRECISION_REDUCTION are never allowed: all precisions add in
 * fp32. */
struct ct__cudnn_filter {
	bool exact;         /* excludes the note TENSOR_CORE, with which fp32 inputs are rounded to tf32 */
	bool deterministic; /* excludes the note NONDETERMINISTIC */
	bool precompiled;   /* excludes the note RUNTIME_COMPILATION */
	int64_t max_workspace_bytes;
};

struct ct__cudnn_plan_info {
	int64_t engine; /* index of the engine in cuDNN */
	int64_t workspace_bytes;
	char config[CT__CUDNN_CONFIG_MAX]; /* string form of the configuration (config.h) */
	bool executed;                     /* ct__cudnn_plan_execute has succeeded */
	bool tensor_core, down_convert, reduced_reduction, deterministic, compiled_at_run_time;
};

struct ct__cudnn_candidates {
	ct__cudnn_plan **plans; /* [n], in the order of the heuristics; owned */
	int n;
	int n_refused;  /* configurations that cuDNN did not finalize */
	int n_filtered; /* not allowed by the filter, most of them not finalized */
	int n_failed;   /* failed with another error than "not supported", when they were finalized or measured */
	struct ct_error failure; /* of the last one that failed when it was finalized */
};

/* Finds at most `max` plans: those of heuristic A, or the fallbacks if it has none, not even one that is compiled at
 * run time. Fails with CT_UNSUPPORTED if there are none; the message contains the string form of the graph and the
 * counts. Configurations that cuDNN does not support are skipped. Those that fail in another way are skipped, too, with
 * a message in the log at level debug. If there is no plan because of them, the last one's error is returned with the
 * same message. A lack of memory, and an error of the heuristics, are returned. On failure, the counts are valid. */
enum ct_status ct__cudnn_plan_find(const ct__cudnn_graph *g, const ct__cudnn_target *t,
				   const struct ct__cudnn_filter *filter, int max,
				   struct ct__cudnn_candidates *out) CT_MUST_CHECK;
/* Makes the plan of a configuration (ct__cudnn_plan_info.config). Fails with CT_UNSUPPORTED if cuDNN has no such plan
 * or the filter does not allow it, and with CT_DATA if the string is malformed. */
enum ct_status ct__cudnn_plan_make(const ct__cudnn_graph *g, const ct__cudnn_target *t,
				   const struct ct__cudnn_filter *filter, const char *config,
				   ct__cudnn_plan **out) CT_MUST_CHECK;
void ct__cudnn_candidates_release(struct ct__cudnn_candidates *c);
/* Takes plan i from c, which no longer owns it. */
ct__cudnn_plan *ct__cudnn_candidates_take(struct ct__cudnn_candidates *c, int i);
void ct__cudnn_plan_destroy(ct__cudnn_plan *p);
const struct ct__cudnn_plan_info *ct__cudnn_plan_info(const ct__cudnn_plan *p);

/* The memory on which a plan operates when it is executed ("variant pack"). pointers[id - 1] is the device memory of
 * tensor id, aligned to 16 bytes (ignored for virtual tensors); the size of workspace is info.workspace_bytes. A plan
 * can have several packs. Executing a plan allocates no memory. */
typedef struct ct__cudnn_pack ct__cudnn_pack;
enum ct_status ct__cudnn_pack_create(const ct__cudnn_graph *g, void *const *pointers, void *workspace,
				     ct__cudnn_pack **out) CT_MUST_CHECK;
void ct__cudnn_pack_destroy(ct__cudnn_pack *p);
/* Makes the plan of the same configuration again, for a handle instead of the properties of the device. Plans are made
 * from properties, because this needs no handle; cuDNN documents both ways. If it fails, p is as before. */
enum ct_status ct__cudnn_plan_rebuild(ct__cudnn_plan *p, const ct__cudnn_graph *g, const ct__cudnn_target *t,
				      cudnnHandle_t handle) CT_MUST_CHECK;
/* Posts the plan to the stream of the handle. */
enum ct_status ct__cudnn_plan_execute(ct__cudnn_plan *p, const ct__cudnn_pack *pack,
				      cudnnHandle_t handle) CT_MUST_CHECK;

#endif
