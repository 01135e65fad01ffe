/* Child processes with a channel to the test, for tests that kill, stop and starve real processes. Everything waits
 * on the channel or on the child's end, nothing sleeps. Fork before the test starts threads: a child may then
 * start its own. */
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
	int ch;     /* the channel: both sides use the same calls */
	int err_fd; /* the child's standard error when asked for, else -1 */
};
struct note {
	int v;
	char text[1024];
};

typedef void (*proc_fn)(struct proc *me, void *arg);

/* Forks a child that runs fn and exits with 0. It dies with the test. */
void proc_start(struct proc *p, proc_fn fn, void *arg);
/* The same with its standard error going to err_fd. */
void proc_start_quiet(struct proc *p, proc_fn fn, void *arg);
void proc_send(struct proc *p, int v, const char *text);
/* The other side's next note; a side that has ended fails the test. */
struct note proc_hear(struct proc *p);
/* Waits for the child's end; its wait status. Closes the channel. */
int proc_end(struct proc *p);
void proc_kill(struct proc *p, int sig);
/* All that the child wrote to its standard error until its end; call it before proc_end. */
void proc_errors(struct proc *p, char *buf, size_t len);

/* In a child: a failed check ends it with 99 and a line on standard error. */
#define CHECK(cond)                                                                                            \
	do {                                                                                                   \
		if (!(cond)) {                                                                                 \
			fprintf(stderr, "%s:%d: pid %d: %s: [%s]\n", __FILE__, __LINE__, (int)getpid(), #cond, \
				ct_error_message());                                                           \
			_exit(99);                                                                             \
		}                                                                                              \
	} while (0)

#endif
