/* The values of a complete model in host memory: the contents of a checkpoint of a model whose stages are on different
 * ranks. All tensors are in the logical layout and in the order of the graph. */
#ifndef CT_TRAINER_RUN_CHECKPOINT_WHOLE_H
#define CT_TRAINER_RUN_CHECKPOINT_WHOLE_H

#include "nn/optim/optim.h"

enum { CT_WHOLE_MAX_GROUPS = 8 };

/* Like struct ct_snapshot_group: the model (""), an optimizer state, or the EMA weights. */
struct ct_whole_group {
	const char *name;
	float *params;  /* [n_params] */
	float *buffers; /* [n_buffers] or NULL */
};

struct ct_whole {
	const ct_graph *graph;      /* borrowed */
	size_t n_params, n_buffers; /* in elements */
	struct ct_whole_group groups[CT_WHOLE_MAX_GROUPS];
	int n_groups;
};

/* Allocates the groups of this model, of the states of an optimizer, and of EMA weights. optim and ema may be NULL;
 * only their names are used. Release *out even after a failure. */
enum ct_status ct_whole_init(const ct_graph *g, const ct_optim *optim, const ct_ema *ema,
			     struct ct_whole *out) CT_MUST_CHECK;
void ct_whole_release(struct ct_whole *w);

#endif
