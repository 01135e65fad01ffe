/* Child processes with a channel to the test, for tests that kill, stop and delay real processes. A test waits for a
 * message on the channel or for the end of a child, and never sleeps. Fork the children before the test starts threads,
 * so that the children can start threads themselves. */
#ifndef CT_TESTS_DIST_PROCS_H
#define CT_TESTS_DIST_PROCS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

struct proc {
	pid_t pid;
	int ch;     /* the channel; both sides use the same functions */
	int err_fd; /* the child's standard error if captured, else -1 */
};
struct note {
	int v;
	char text[1024];
};

typedef void (*proc_fn)(struct proc *me, void *arg);

/* Forks a child that runs fn and exits with 0. The child is killed when the test ends. */
void proc_start(struct proc *p, proc_fn fn, void *arg);
/* Does the same, but captures the child's standard error, which can be read from err_fd. */
void proc_start_quiet(struct proc *p, proc_fn fn, void *arg);
void proc_send(struct proc *p, int v, const char *text);
/* Receives the next message from the other side. The test fails if the other side has ended. */
struct note proc_hear(struct proc *p);
/* Waits until the child has ended, closes the channel, and returns the child's wait status. */
int proc_end(struct proc *p);
void proc_kill(struct proc *p, int sig);
/* Reads the captured standard error of the child until the child ends. Call it before proc_end. */
void proc_errors(struct proc *p, char *buf, size_t len);

/* For use in a child: a failed check prints a line on standard error and exits with 99. */
#define CHECK(cond)                                                                                            \
	do {                                                                                                   \
		if (!(cond)) {                                                                                 \
			fprintf(stderr, "%s:%d: pid %d: %s: [%s]\n", __FILE__, __LINE__, (int)getpid(), #cond, \
				ct_error_message());                                                           \
			_exit(99);                                                                             \
		}                                                                                              \
	} while (0)

#endif
