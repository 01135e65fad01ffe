/* The entry of one rank in the report after a failure: how its process ended, and what it was doing. */
#ifndef CT_TRAINER_JOB_POSTMORTEM_ENTRY_H
#define CT_TRAINER_JOB_POSTMORTEM_ENTRY_H

#include "base/json.h"
#include "base/process/rank_page.h"

struct ct_rank_end {
	int rank, pid, node;
	const char *host;
	int wait_status;              /* from waitpid; -1: the process has not ended yet */
	const struct ct_error *error; /* NULL: it has delivered no error */
	bool killed_by_launcher;      /* after the failure of another rank, because it did not end by itself */
	char state;                   /* of the process before that, as in ps: 'T' is stopped; 0: unknown */
	bool out_of_memory;           /* the kernel has killed it */
	uint64_t memory_limit;        /* of its control group; 0: none */
};

/* Returns the path of the file in which the signal handlers of a rank write its backtraces (base/stacks.h); the caller
 * owns it. NULL if there is not enough memory. */
char *ct_postmortem_stacks_path(const char *run_dir, int rank);
/* Lists the ranks that have such files. The caller owns *ranks (ct_free). */
enum ct_status ct_postmortem_stacks_ranks(const char *run_dir, int **ranks, size_t *n) CT_MUST_CHECK;
/* Removes the backtraces that an earlier attempt with more than `world` ranks has left. */
enum ct_status ct_postmortem_remove_stacks(const char *run_dir, int world) CT_MUST_CHECK;
/* Makes the entry from how the rank ended, its page (NULL: unknown), and its backtraces, if there are any.
 * The caller owns the result. */
ct_json *ct_postmortem_entry(const char *run_dir, const struct ct_rank_end *end, const struct ct_rank_page *page);

#endif
