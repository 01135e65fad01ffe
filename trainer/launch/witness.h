/* Collects what the launcher knows about its ranks for the report after a failure
 * (trainer/job/postmortem/postmortem.h): their pages, how their processes ended, and whether the kernel has killed one
 * because memory ran out. */
#ifndef CT_TRAINER_LAUNCH_WITNESS_H
#define CT_TRAINER_LAUNCH_WITNESS_H

#include "dist/store/store.h"
#include "trainer/launch/workers_impl.h"

struct ct_witness {
	int n;
	char *states;      /* [n] states of processes before they were killed; 0: unknown */
	int64_t oom_kills; /* at the start; -1: unknown */
	double started;
};

enum ct_status ct_witness_open(struct ct_witness *w, int n) CT_MUST_CHECK;
void ct_witness_close(struct ct_witness *w); /* a zeroed struct is allowed */
/* Stores the states of the processes that still run. Call it before the launcher kills them. */
void ct_witness_note_states(struct ct_witness *w, const struct ct_worker *workers);
/* Adds to the hint of the current error chain why a rank may have been killed by SIGKILL. less: what to use if memory
 * ran out, such as "a smaller batch". */
void ct_witness_explain_kill(const struct ct_witness *w, const char *less);
/* Adds the ranks [n] of this node to the report of the run, and the path of the report to the hint of the current error
 * chain. Does nothing if the failure was found before the ranks began to work, because then the message says
 * everything. failure: of the run; NULL: unknown. first: index of the rank that failed first, or -1. */
void ct_witness_report(const struct ct_witness *w, const struct ct_worker *workers, int node, int world,
		       const char *run_dir, const struct ct_failure *failure, int first);

#endif
