/* Starts other programs. */
#ifndef CT_BASE_PROCESS_SPAWN_H
#define CT_BASE_PROCESS_SPAWN_H

#include <signal.h>
#include <sys/types.h>

struct ct_spawn {
	const char *const *argv; /* argv[0] is searched for in PATH; NULL-terminated */
	const char *const *env;  /* NULL: the environment of this process */
	int files[3];            /* what become its standard input, output and error, in any order; -1: /dev/null */
	pid_t group;             /* its process group; 0: a new one */
	sigset_t blocked, defaults;
};

/* Starts the program with the signals `blocked` blocked, and `defaults` at their default dispositions. All other open
 * files must be close-on-exec. Returns 0 and sets *pid, or returns an errno. The memory of this process is not copied,
 * so the call is cheap in a large process. The program may use all CPUs that this process could use before
 * ct_cpu_bind. */
int ct_spawn(const struct ct_spawn *s, pid_t *pid);

#endif
