/* Stop signals are blocked in all threads and read from a signalfd, so the code that handles them runs in an ordinary
 * thread and may do anything. The mask is inherited by threads and over fork and exec; therefore signals must be
 * blocked before the first thread is started. A child keeps the stop signals blocked until the new program has its own
 * descriptor, so none gets lost in between; all others are unblocked. The kernel protects PID 1 from signals with
 * default dispositions, so there real handlers are set, which only end the process. */
#include "trainer/job/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

static void add_stop_signals(sigset_t *set)
{
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

_Noreturn static void end_process(int sig)
{
	_exit(128 + sig);
}

void ct_signals_prepare_init_process(void)
{
	static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

	if (getpid() != 1)
		return;
	for (size_t i = 0; i < CT_ARRAY_LEN(ending); i++) {
		struct sigaction now;

		if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
			signal(ending[i], end_process);
	}
}

void ct_signals_end_self(int sig)
{
	signal(sig, SIG_DFL);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, sig);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	end_process(sig); /* PID 1 of a container, for which the kernel has ignored the signal */
}

enum ct_status ct_signals_open(bool children, int *out)
{
	sigset_t set;

	sigemptyset(&set);
	add_stop_signals(&set);
	if (children) {
		sigaddset(&set, SIGCHLD);
		sigaddset(&set, SIGHUP);
		sigaddset(&set, SIGTSTP);
	}
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGTTOU, SIG_IGN); /* rank 0 writes to the terminal from a separate process group, which `stty tostop`
				     would stop */
	int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		return CT_FAIL(CT_BUG, "signalfd: %s", strerror(errno));
	*out = fd;
	return CT_OK;
}

int ct_signals_next(int fd)
{
	struct signalfd_siginfo si;

	return read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si) ? (int)si.ssi_signo : 0;
}

int ct_signals_wait(int fd, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		(void)poll(&p, 1, ct_deadline_poll_ms(deadline_ns));
		int sig = ct_signals_next(fd);
		if (sig == SIGTSTP)
			ct_signals_suspend_self();
		else if (sig != 0 && sig != SIGCHLD)
			return sig;
		else if (sig == 0 && ct_now_ns() >= deadline_ns)
			return 0;
	}
}

void ct_signals_suspend_self(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* the process stops here */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void ct_signals_reset_in_child(void)
{
	sigset_t set;

	sigemptyset(&set);
	add_stop_signals(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_DFL);
}

void ct_signals_close(int fd)
{
	if (fd >= 0)
		close(fd);
}
