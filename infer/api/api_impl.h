/* Declarations shared by model.c and session.c. */
#ifndef CT_INFER_API_API_IMPL_H
#define CT_INFER_API_API_IMPL_H

#include "infer/api/ctrain_infer.h"
#include "infer/description.h"

struct ctrain_model {
	struct ct_description description;
	ct_graph *graph;
	float *values; /* all parameters and then all buffers, in the logical layout and the order of the graph */
	struct ctrain_info info;
};

/* Returns parameter i or, after the last one, a buffer of the graph. */
const struct ct_param *ct__api_tensor(const ct_graph *g, int i);
int ct__api_n_tensors(const ct_graph *g);
/* Returns the code of st. If st is a failure, stores its message in *error and clears the error chain. */
int ct__api_result(enum ct_status st, struct ctrain_error *error);

#endif
