/* Who waits for whom in an epoch of training, and the number that would change it. A pure function of what the ranks
 * measured. */
#ifndef CT_TRAINER_REPORT_BOTTLENECK_H
#define CT_TRAINER_REPORT_BOTTLENECK_H

#include "base/mem.h"

/* Of one rank, over the epoch, in seconds. Only doubles: ranks exchange them as they are. */
struct ct_rank_times {
	double step_s;        /* of all steps */
	double data_s;        /* of these: waiting for batches, or making them where there are no loader threads */
	double compute_s;     /* forward, backward, optimizer */
	double exposed_s;     /* waiting for other ranks and for gradients */
	double loader_s;      /* loader threads at work, summed; 0: not known */
	double loader_images; /* made in that time */
	double images;        /* trained on */
	double damaged;       /* of loader_images: decoded although the codec reported damage */
};
#define CT_RANK_TIMES_N (sizeof(struct ct_rank_times) / sizeof(double))

struct ct_verdict_facts {
	const struct ct_rank_times *ranks;
	int world;
	uint64_t steps;
	uint32_t per_rank;   /* samples of a step and rank */
	int loader_threads;  /* of a rank; 0: batches are made between steps */
	int compute_threads; /* of a rank */
	int cpus;            /* that a rank may use */
	double flops;        /* of an image, forward */
	bool encoded;        /* images are decoded */
};

enum ct_bound { CT_BOUND_COMPUTE, CT_BOUND_DATA, CT_BOUND_COMM, CT_BOUND_RANK };

/* "data", "compute", "communication", "rank": as in metrics.jsonl. */
const char *ct_bound_name(enum ct_bound b);
/* Appends one sentence: "bound by data: 31 % of the time ...". Nothing when there were no steps. */
enum ct_bound ct_verdict(const struct ct_verdict_facts *f, struct ct_str *out);

#endif
