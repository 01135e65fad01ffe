/* The launcher's child processes: starts them, prefixes their output with the rank, reaps and kills them. */
#ifndef CT_TRAINER_LAUNCH_WORKERS_IMPL_H
#define CT_TRAINER_LAUNCH_WORKERS_IMPL_H

#include <sys/types.h>

#include "base/process/rank_page.h"
#include "trainer/launch/lines.h"

struct ct_worker {
	int rank;
	pid_t pid;           /* 0: not started */
	struct ct_lines out; /* out.fd: also -1 if the rank writes directly to the launcher's output */
	struct ct_rank_page *page;
	bool ended;
	int wait_status; /* status from waitpid */
};

/* Sets the rank and the page of a worker that has not been started. Borrows the page. */
void ct__worker_init(struct ct_worker *w, int rank, struct ct_rank_page *page);
/* Forks, and executes this program again with argv and the additional environment variables extra_env [n_env] (strings
 * of the form NAME=VALUE, which replace existing variables). If inherit_output is true, the worker (rank 0) writes
 * directly to the launcher's output. pages_fd: the descriptor of the pages, which the worker inherits. Fails with
 * CT_NOMEM if the system cannot create another pipe or process. */
enum ct_status ct__worker_start(struct ct_worker *w, char **argv, char *const *extra_env, size_t n_env,
				bool inherit_output, int pages_fd) CT_MUST_CHECK;
/* Copies the available output with the prefix "[rank N] " on each line. Does not block. */
void ct__worker_drain(struct ct_worker *w);
/* If the worker has ended, reads its remaining output and reaps it. Returns true only once, in the first call after the
 * worker has ended. */
bool ct__worker_reap(struct ct_worker *w);
/* The kernel makes PID 1 of a container the parent of processes whose parent has ended, for example of those that
 * `docker exec` started. Reaps those that have ended, but none of the workers. Does nothing in any other process. */
void ct__workers_reap_orphans(const struct ct_worker *workers, int n);
/* Returns the error that the worker has delivered, or NULL. It is complete when the worker has ended. */
const struct ct_error *ct__worker_error(const struct ct_worker *w);
/* Returns how the worker ended: the status of the error that it delivered, CT_PEER_LOST if a signal killed it,
 * otherwise the status that corresponds to the exit code. */
enum ct_status ct__worker_status(const struct ct_worker *w);
/* Returns true if the worker ended because another rank had failed, and is therefore not the cause of the failure. */
bool ct__worker_is_consequence(const struct ct_worker *w);
/* Sends a signal to the process group of the worker. */
void ct__worker_signal(const struct ct_worker *w, int sig);
void ct__worker_release(struct ct_worker *w);

#endif
