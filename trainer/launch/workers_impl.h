/* The launcher's children: start, output with a rank prefix, reap, kill. */
#ifndef CT_TRAINER_LAUNCH_WORKERS_IMPL_H
#define CT_TRAINER_LAUNCH_WORKERS_IMPL_H

#include <sys/types.h>

#include "base/mem.h"

struct ct_worker {
	int rank;
	pid_t pid;            /* 0 when it was never started */
	int out_fd, error_fd; /* -1 when closed; out_fd is -1 for ranks that write to our own output */
	struct ct_str line;   /* unfinished line of output */
	bool ended;
	int wait_status; /* of waitpid */
	bool has_error;
	struct ct_error error;
};

/* Forks and executes this program again with argv and the given extra environment (NAME=VALUE, n of them, replacing
 * what is there). inherit_output: rank 0 writes straight to our terminal. pass_fd: a descriptor that it inherits; -1:
 * none. CT_NOMEM when the system has no pipe or process for it. */
enum ct_status ct__worker_start(struct ct_worker *w, int rank, char **argv, char *const *extra_env, size_t n_env,
				bool inherit_output, int pass_fd) CT_MUST_CHECK;
/* Copies what there is to read, each line after "[rank N] ", and takes the error message when there is one.
 * Non-blocking. */
void ct__worker_drain(struct ct_worker *w);
/* Reaps if it has ended: true once. Drains first. */
bool ct__worker_reap(struct ct_worker *w);
/* Exit status in the sense of enum ct_status: the delivered error's, PEER_LOST for a signal, else what the exit code
 * stands for. */
enum ct_status ct__worker_status(const struct ct_worker *w);
/* It only repeats another rank's failure: not the cause of the run's end. */
bool ct__worker_is_consequence(const struct ct_worker *w);
/* Sends to its process group. */
void ct__worker_signal(const struct ct_worker *w, int sig);
/* Takes what rank 0's live status line left off our terminal, before we write to it ourselves. */
void ct__worker_clear_live_line(void);
void ct__worker_release(struct ct_worker *w);

#endif
