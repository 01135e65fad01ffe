/* The launcher's child processes: starting, prefixing output with the rank, reaping, killing. */
#ifndef CT_TRAINER_LAUNCH_WORKERS_IMPL_H
#define CT_TRAINER_LAUNCH_WORKERS_IMPL_H

#include <sys/types.h>

#include "base/mem.h"

struct ct_worker {
	int rank;
	pid_t pid;            /* 0: not started */
	int out_fd, error_fd; /* -1: closed; out_fd is also -1 for a rank that writes to the launcher's output itself */
	struct ct_str line;   /* incomplete line of output */
	bool ended;
	int wait_status; /* status of waitpid */
	bool has_error;
	struct ct_error error;
};

/* Forks and executes this program again with argv and the extra environment [n_env] (NAME=VALUE, which replaces
 * existing variables). inherit_output: the worker (rank 0) writes directly to the launcher's output. pass_fd: a
 * descriptor that the worker inherits; -1: none. CT_NOMEM if the system has no pipe or process left. */
enum ct_status ct__worker_start(struct ct_worker *w, int rank, char **argv, char *const *extra_env, size_t n_env,
				bool inherit_output, int pass_fd) CT_MUST_CHECK;
/* Copies available output, each line with the prefix "[rank N] ", and receives the error message if there is one. Does
 * not block. */
void ct__worker_drain(struct ct_worker *w);
/* Drains and reaps a worker that has ended. Returns true once, when it has ended. */
bool ct__worker_reap(struct ct_worker *w);
/* How the worker ended: the status of the delivered error, CT_PEER_LOST if a signal killed it, otherwise the status
 * that belongs to the exit code. */
enum ct_status ct__worker_status(const struct ct_worker *w);
/* Whether the worker ended because another rank had failed, so that it is not the cause of the failure. */
bool ct__worker_is_consequence(const struct ct_worker *w);
/* Sends a signal to the process group of the worker. */
void ct__worker_signal(const struct ct_worker *w, int sig);
/* Erases the live status line of rank 0, before the launcher itself writes to the terminal. */
void ct__worker_clear_live_line(void);
void ct__worker_release(struct ct_worker *w);

#endif
