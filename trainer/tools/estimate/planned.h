/* What `ctrain plan` finds out about a run: its plan, its graphs, and the memory and buckets of the compiled model. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_PLANNED_H
#define CT_TRAINER_TOOLS_ESTIMATE_PLANNED_H

#include "trainer/plan/assume.h"
#include "trainer/plan/run_plan.h"

struct planned {
	struct ct_ranks ranks;
	struct ct_run_plan plan;
	ct_dataset *train, *val; /* NULL if the data are assumed */
	struct ct_dataset_info assumed[2];
	const struct ct_dataset_info *train_info, *val_info; /* val_info: NULL without evaluation */
	ct_graph *graph, *size_graph, *val_graph;
	/* With a pipeline, net, programs and memory are those of one stage, and these are its graphs. */
	struct ct_stages stages;
	int first[CT_MAX_STAGES + 1];
	ct_graph *part, *size_part, *val_part;
	ct_program *more[CT_MAX_STAGES]; /* training programs for the other micro-batches in flight */
	ct_device *device;
	ct_engine *engine;
	struct ct_net_plan net_plan; /* the one of train.plan, or the one that the engine suggests */
	ct_net *net;
	ct_program *program, *eval;
	struct ct_bucket *buckets;
	int n_buckets;
	double *ready; /* [n_slices] of the gradients, from ct_plan_ready */
	struct ct_net_memory memory;
	bool estimated; /* memory is estimated from smaller batches, because the host has too little memory for these */
};

/* Makes the plan and compiles the model or, with a pipeline, its first stage. Opens the data, unless `assumed`
 * describes them. *p is zeroed before. Release it even if this function fails. */
enum ct_status ct_planned_make(const struct ct_config *c, const struct ct_assumed *assumed,
			       struct planned *p) CT_MUST_CHECK;
/* Compiles stage k instead of the one that was compiled before. */
enum ct_status ct_planned_compile_stage(const struct ct_config *c, struct planned *p, int k) CT_MUST_CHECK;
void ct_planned_release(struct planned *p);

#endif
