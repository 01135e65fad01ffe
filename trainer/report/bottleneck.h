/* The bottleneck report: classifies what limited an epoch of training (data, compute, communication, one slow rank, or
 * other programs on the CPUs) and suggests a setting with a number. A pure function of what the ranks measured. */
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
	/* trainer/report/cpu_use.h; all 0: not known. */
	double wall_s;   /* since the last report */
	double queued_s; /* of these: the main thread was ready to run, but had no CPU */
	double own_s;    /* CPU time of this rank */
	double host_s;   /* CPU time of everything on its host */
};
#define CT_RANK_TIMES_N (sizeof(struct ct_rank_times) / sizeof(double))

struct ct_bottleneck_facts {
	const struct ct_rank_times *ranks;
	int world;
	uint64_t steps;
	uint32_t per_rank;   /* samples of a step and rank */
	int loader_threads;  /* of a rank; 0: batches are made between steps */
	int compute_threads; /* of a rank */
	int cpus;            /* that a rank may use */
	int local_world;     /* ranks on a host, for the CPU time of other programs; 0: not known */
	int host_cpus;       /* of a host */
	double flops;        /* of an image, forward */
	bool encoded;        /* images are decoded */
};

enum ct_bottleneck {
	CT_BOTTLENECK_COMPUTE,
	CT_BOTTLENECK_DATA,
	CT_BOTTLENECK_COMM,
	CT_BOTTLENECK_RANK,
	CT_BOTTLENECK_OTHERS
};

/* "data", "compute", "communication", "rank", "other programs": `bound_by` of metrics.jsonl. */
const char *ct_bottleneck_name(enum ct_bottleneck b);
/* Appends one sentence: "bound by data: 31 % of the time ...". Nothing when there were no steps. */
enum ct_bottleneck ct_bottleneck_report(const struct ct_bottleneck_facts *f, struct ct_str *out);

#endif
