/* Finds and removes what is no longer needed in run directories: runs that failed or were lost before their first
 * checkpoint, checkpoints of finished runs except the last and the best one, and temporary files that killed processes
 * have left. */
#ifndef CT_TRAINER_TOOLS_RUNS_CLEAN_H
#define CT_TRAINER_TOOLS_RUNS_CLEAN_H

#include "trainer/tools/runs/run_info.h"

struct ct_clean_item {
	const struct ct_run_info *run; /* borrowed */
	char *path;                    /* owned: the run directory, or a checkpoint or a temporary file in it */
	bool leftover;                 /* a temporary file */
	const char *why;
	uint64_t bytes;
	double changed; /* when the run wrote to metrics.jsonl; NaN: never */
};

struct ct_clean_plan {
	struct ct_clean_item *items; /* [n] */
	size_t n, cap;
	uint64_t bytes;
	struct ct_str kept; /* lines about runs that contain files which ctrain has not written, and are therefore not
			       changed */
};

/* Borrows the list. Runs that are running are not included. Release the plan even if this function fails. */
enum ct_status ct_clean_find(const struct ct_run_list *l, struct ct_clean_plan *out) CT_MUST_CHECK;
/* Locks the run of the item, checks that it has not changed since ct_clean_find, and removes the item. *removed is
 * false if the run is in use or has changed. */
enum ct_status ct_clean_remove(const struct ct_clean_item *item, bool *removed) CT_MUST_CHECK;
void ct_clean_release(struct ct_clean_plan *p);

#endif
