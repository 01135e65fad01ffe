/* The bottleneck report: classifies what limited an epoch of training (data, compute, communication, one slow rank, or
 * other programs on the CPUs) and suggests a setting with a number. A pure function of what the ranks measured. */
#ifndef CT_TRAINER_REPORT_BOTTLENECK_H
#define CT_TRAINER_REPORT_BOTTLENECK_H

#include "base/mem.h"

/* Measurements of one rank over the epoch; times in seconds. All members are doubles, because ranks exchange them as an array. */
struct ct_rank_times {
	double step_s;        /* of all steps */
	double data_s;        /* part of step_s: waiting for batches, or making them if there are no loader threads */
	double compute_s;     /* forward, backward, optimizer */
	double exposed_s;     /* waiting for other ranks and for gradients */
	double loader_s;      /* busy time of the loader threads, summed; 0: unknown */
	double loader_images; /* images made in loader_s */
	double images;        /* images trained on */
	double damaged;       /* of loader_images: decoded although the codec reported damage */
	/* From trainer/report/cpu_use.h; all 0: unknown. */
	double wall_s;   /* since the last report */
	double queued_s; /* part of wall_s: the main thread was ready to run, but had no CPU */
	double own_s;    /* CPU time of this rank */
	double host_s;   /* CPU time of everything on its host */
};
#define CT_RANK_TIMES_N (sizeof(struct ct_rank_times) / sizeof(double))

struct ct_bottleneck_facts {
	const struct ct_rank_times *ranks;
	int world;
	uint64_t steps;
	uint32_t per_rank;   /* samples per step and rank */
	int loader_threads;  /* per rank; 0: the main thread makes batches between steps */
	int compute_threads; /* per rank */
	int cpus;            /* CPUs that a rank may use */
	int local_world;     /* ranks per host, to compute the CPU time of other programs; 0: unknown */
	int host_cpus;       /* CPUs of a host */
	double flops;        /* per image, forward */
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
/* Appends one sentence to out: "bound by data: 31 % of the time ..."; nothing if there were no steps. Returns the bottleneck. */
enum ct_bottleneck ct_bottleneck_report(const struct ct_bottleneck_facts *f, struct ct_str *out);

#endif
