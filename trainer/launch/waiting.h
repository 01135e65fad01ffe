/* Shows which nodes have joined while the launcher waits for the others: as a line that is updated on a terminal,
 * otherwise as lines at increasing intervals. */
#ifndef CT_TRAINER_LAUNCH_WAITING_H
#define CT_TRAINER_LAUNCH_WAITING_H

#include "base/clock.h"
#include "trainer/launch/job_store.h"

struct ct_waiting {
	bool done, live, shown; /* live: updates one line on the terminal; shown: something has been printed */
	int64_t start_ns, look_at_ns, print_at_ns;
	struct ct_backoff pause;
	double limit_s;     /* dist.rendezvous_timeout */
	struct ct_str last; /* the last text that was printed as a line */
};

/* Begins to wait, or is done at once if the job has one node or no store. */
void ct_waiting_begin(struct ct_waiting *w, const struct ct_job_store *j, const struct ct_config *cfg);
/* Returns when to call ct_waiting_look next; CT_FOREVER if all nodes have joined. */
int64_t ct_waiting_due(const struct ct_waiting *w);
/* If it is due, asks the store which ranks have joined, and prints. */
void ct_waiting_look(struct ct_waiting *w, struct ct_job_store *j);
/* Stops; erases the line on the terminal. May be called on a zeroed struct, and repeatedly. */
void ct_waiting_end(struct ct_waiting *w);

#endif
