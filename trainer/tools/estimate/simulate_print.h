/* The result of `ctrain plan --simulate`, and its output. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_PRINT_H
#define CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_PRINT_H

#include "trainer/config/config.h"
#include "trainer/tools/estimate/simulate.h"

#define CT__SIM_GOOD_EFFICIENCY 0.8

/* Nets whose gradients are reduced in fp32, and in a type of 16 bits. */
enum { CT__SIM_FULL, CT__SIM_HALF, CT__SIM_N_NETS };

struct ct__simulation {
	struct ct_config *cfg;
	int64_t global_batch; /* batch.global, which was divided among divided_by ranks; 0: not set */
	int divided_by;
	double measured_ms; /* the complete step; 0: not measured */
	double *costs;      /* [n_nodes] of the graph, in the backward pass */
	struct ct_sim_work work[CT__SIM_N_NETS];
	struct ct_bucket_slice *slices[CT__SIM_N_NETS];
	double *ready[CT__SIM_N_NETS];
	struct ct_sim_cluster cluster; /* without the numbers of nodes and devices */
	struct ct_sim_shape shapes[CT_SIM_MAX_SHAPES];
	enum ct_dtype types[CT_SIM_MAX_SHAPES]; /* in which gradients are reduced */
	struct ct_sim_result results[CT_SIM_MAX_SHAPES];
	uint64_t steps[CT_SIM_MAX_SHAPES]; /* of the complete training; 0: unknown */
	int n_shapes, low;                 /* low: the first shape with a low efficiency, or n_shapes */
	struct ct_sim_change changes[CT_SIM_CHANGES];
	int n_changes;
	int advised; /* the shape to which the changes apply; -1: none */
};

/* Returns the name of an algorithm, as for --allreduce. */
const char *ct_simulate_algorithm(enum ct_sim_algorithm a);
enum ct_status ct_simulate_print_table(const struct ct__simulation *m) CT_MUST_CHECK;
enum ct_status ct_simulate_print_json(const struct ct__simulation *m) CT_MUST_CHECK;

#endif
