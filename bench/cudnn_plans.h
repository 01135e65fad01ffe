/* The table of plans (cudnn_plans.c): its rows, and how they are found, compared and written. */
#ifndef CT_BENCH_CUDNN_PLANS_H
#define CT_BENCH_CUDNN_PLANS_H

#include "nn/cuda/tune/choice.h"
#include "nn/engine.h"

enum { PLANS_DEVICES = 2 };
extern const char *const plans_devices[PLANS_DEVICES];

struct plans_answer { /* of one device */
	int n_plans, n_allowed, n_deterministic;
	/* Of the first deterministic plan, and the smallest workspace of one. */
	int64_t engine, bytes, least_bytes;
};

struct plans_row {
	char *graph;
	enum ct_precision precision;
	struct plans_answer answers[PLANS_DEVICES];
};

struct plans_table {
	const char *devices_dir, *configs_dir, *runs_path, *path;
	bool check, all;
	ct__cudnn_target *targets[PLANS_DEVICES];
	ct_device *device;
	struct plans_row *rows;
	size_t n_rows, rows_cap;
	/* The second part begins after the first n_first rows. --check leaves it out without --all. second: it is being
	 * added. */
	size_t n_first;
	bool second;
	/* Graphs without a plan, plans that break the promise of their filter, and plans that cannot be made again. */
	int n_missing, n_wrong, n_lost;
};

/* cudnn_plans_graphs.c: adds a row for each graph of the configs, and of the runs of the gate. */
enum ct_status plans_add_graphs(struct plans_table *t) CT_MUST_CHECK;
/* cudnn_plans_ask.c: adds the row of a graph, unless there is one, and asks cuDNN about it. */
enum ct_status plans_add_row(struct plans_table *t, const struct ct__cudnn_choice *choice,
			     enum ct_precision p) CT_MUST_CHECK;
/* cudnn_plans_table.c: prints a summary, and writes the table or compares it. Fails if a graph has no plan. */
enum ct_status plans_finish(const struct plans_table *t) CT_MUST_CHECK;

#endif
