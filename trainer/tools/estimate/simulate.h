/* Predicts the time of a training step on a cluster, for `ctrain plan --simulate`. The functions have no side effects.
 *
 * The model of a link has a latency alpha and a bandwidth 1/beta (Hockney 1994): a message of n bytes takes
 * alpha + n beta. The times of all-reduces follow from it, for p ranks on N nodes with M devices each:
 * - RING: 2 (p-1) messages of n/p bytes (Thakur, Rabenseifner, Gropp 2005), of which 2 (N-1) pass a link between nodes
 *   (NCCL, src/graph/tuning.cc). The slowest link of the ring determines the bandwidth.
 * - TREE: NCCL's double binary tree: up and down through M-1 devices and log2 N nodes; each link carries n bytes in
 *   each direction, at 0.92 of its bandwidth.
 * - FASTEST: the faster one of RING and TREE, as NCCL chooses.
 * - HIER: a reduction within each node, a ring of the nodes, and a broadcast within each node (dist/comm/gloo/hier.c);
 *   for one node, as RING.
 *
 * A step is simulated with two streams. The compute stream runs the forward and the backward pass of each micro-batch.
 * The communication stream reduces one bucket at a time, in order. A bucket is posted when its gradients are final. The
 * update follows the last bucket. Communication does not slow computation down. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_H
#define CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_H

#include "dist/bucket.h"

enum ct_sim_algorithm { CT_SIM_RING, CT_SIM_TREE, CT_SIM_FASTEST, CT_SIM_HIER };

struct ct_sim_link {
	char name[48];
	double base_s;         /* fixed part of the time of an all-reduce */
	double ring_s, tree_s; /* latency alpha of a message in a ring and in a tree */
	double bytes_per_s;    /* in each direction: of a device, or of all ports of a node to other nodes */
};

/* Reads a link: a name of the table ("ib400"), a name and a number of ports per node, from 1 to 64
 * ("ib400:8"), or a latency in microseconds and a bandwidth in GB/s ("30,1.17"). `option` is named in errors, which are
 * CT_USAGE. */
enum ct_status ct_sim_link_parse(const char *option, const char *text, struct ct_sim_link *out) CT_MUST_CHECK;
/* Returns named link i, or NULL if i is past the end of the table. */
const struct ct_sim_link *ct_sim_link_at(size_t i);

struct ct_sim_cluster {
	int nodes, devices;              /* devices per node */
	struct ct_sim_link intra, inter; /* within a node; between nodes. Unused if there is one device, or one node */
	enum ct_sim_algorithm algorithm;
};
/* Returns the seconds of an all-reduce; 0 for one rank. */
double ct_sim_allreduce(const struct ct_sim_cluster *c, double bytes);

/* What one rank does in a step. */
struct ct_sim_work {
	double forward_s,
		backward_s; /* of one micro-batch; everything that is not the backward pass or the update is forward */
	double optim_s;
	int accumulate;                       /* micro-batches per step; gradients are reduced in the last one */
	double images;                        /* per rank and step */
	const struct ct_bucket_slice *slices; /* [n_slices] in completion order, borrowed */
	const double *ready; /* [n_slices] fraction of the backward pass after which a slice is final */
	int n_slices;
	size_t first_cap_bytes, cap_bytes; /* of ct_bucket_plan */
};

struct ct_sim_result {
	int n_buckets;
	double step_s, comm_s; /* comm_s: all buckets, hidden or not */
	double exposed_s;      /* between the end of the backward pass and the end of the last bucket */
	double images_per_s;   /* of all ranks */
	double efficiency;     /* images per second of all ranks, divided by the ranks and by those of a single rank */
};

/* Simulates one step. */
enum ct_status ct_sim_step(const struct ct_sim_work *w, const struct ct_sim_cluster *c,
			   struct ct_sim_result *out) CT_MUST_CHECK;

/* A change of a setting, and its predicted effect. */
struct ct_sim_change {
	char setting[96];
	double gain; /* relative increase of the images per second */
};
enum { CT_SIM_CHANGES = 5 };
/* Simulates a larger batch per rank, more accumulation, the best bucket size, a link of twice the speed, and gradients
 * that are reduced in bf16, one at a time. `half` is the work with such gradients, or NULL to leave them out. Stores
 * the changes in *out, in the order of decreasing gain, and their number in *n. */
enum ct_status ct_sim_changes(const struct ct_sim_work *w, const struct ct_sim_work *half,
			      const struct ct_sim_cluster *c, struct ct_sim_change out[CT_SIM_CHANGES],
			      int *n) CT_MUST_CHECK;

/* The shape of a cluster. */
struct ct_sim_shape {
	int nodes, devices;
};
enum { CT_SIM_MAX_SHAPES = 64, CT_SIM_MAX_RANKS = 1 << 20 };
/* Reads a list such as "1x1,1x2,2x2", NODESxDEVICES each. A range "1x8..128x8" doubles the nodes, and "1x1..1x8" the
 * devices. Errors are CT_USAGE. */
enum ct_status ct_sim_shapes_parse(const char *option, const char *text, struct ct_sim_shape out[CT_SIM_MAX_SHAPES],
				   int *n) CT_MUST_CHECK;

#endif
