/* Linked into every program of a build that counts lines. Processes write their counters when they call exit. Forked
 * tests end with _exit, as do handlers of signals, and failpoints kill their process; without this file, the lines that
 * such a process ran would count as never run. What a process killed from outside has run is still lost. A fork of a
 * program that counts would store and reset the counters first; here, both processes keep them, which is faster, and
 * only whether a line has run matters. */
#include <signal.h>
#include <unistd.h>

void __gcov_dump(void);
pid_t __wrap___gcov_fork(void);
_Noreturn void __real__exit(int code);
int __real_raise(int sig);
_Noreturn void __wrap__exit(int code);
int __wrap_raise(int sig);

_Noreturn void __wrap__exit(int code)
{
	__gcov_dump();
	__real__exit(code);
}

int __wrap_raise(int sig)
{
	if (sig == SIGKILL)
		__gcov_dump();
	return __real_raise(sig);
}

pid_t __wrap___gcov_fork(void)
{
	return fork();
}
