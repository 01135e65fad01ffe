#include "tests/dist/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define WAIT_MS 60000

/* cmocka's signal handlers would continue the parent's tests in the child. */
static void forget_handlers(void)
{
	static const int faults[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};

	for (size_t i = 0; i < CT_ARRAY_LEN(faults); i++)
		signal(faults[i], SIG_DFL);
}

static void start(struct proc *p, proc_fn fn, void *arg, bool quiet)
{
	int ch[2], err[2] = {-1, -1};
	pid_t parent = getpid();

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ch) == 0);
	CHECK(!quiet || pipe2(err, O_CLOEXEC) == 0);
	fflush(NULL);
	p->pid = fork();
	CHECK(p->pid >= 0);
	if (p->pid == 0) {
		forget_handlers();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(98);
		p->ch = ch[1];
		close(ch[0]);
		if (quiet)
			dup2(err[1], STDERR_FILENO);
		close(err[0]);
		close(err[1]);
		fn(p, arg);
		fflush(NULL);
		exit(0);
	}
	close(ch[1]);
	close(err[1]);
	p->ch = ch[0];
	p->err_fd = err[0];
}

void proc_start(struct proc *p, proc_fn fn, void *arg)
{
	start(p, fn, arg, false);
}

void proc_start_quiet(struct proc *p, proc_fn fn, void *arg)
{
	start(p, fn, arg, true);
}

void proc_send(struct proc *p, int v, const char *text)
{
	struct note n = {.v = v};

	snprintf(n.text, sizeof(n.text), "%s", text ? text : "");
	CHECK(send(p->ch, &n, sizeof(n), MSG_NOSIGNAL) == sizeof(n));
}

struct note proc_hear(struct proc *p)
{
	struct pollfd pfd = {.fd = p->ch, .events = POLLIN};
	struct note n = {0};

	CHECK(poll(&pfd, 1, WAIT_MS) == 1);
	CHECK(recv(p->ch, &n, sizeof(n), 0) == sizeof(n));
	return n;
}

int proc_end(struct proc *p)
{
	int status;

	while (waitpid(p->pid, &status, 0) < 0)
		CHECK(errno == EINTR);
	close(p->ch);
	if (p->err_fd >= 0)
		close(p->err_fd);
	return status;
}

void proc_kill(struct proc *p, int sig)
{
	CHECK(kill(p->pid, sig) == 0);
}

void proc_errors(struct proc *p, char *buf, size_t len)
{
	size_t have = 0;
	ssize_t n;

	while (have + 1 < len && (n = read(p->err_fd, buf + have, len - 1 - have)) != 0) {
		CHECK(n > 0 || errno == EINTR);
		have += n > 0 ? (size_t)n : 0;
	}
	buf[have] = '\0';
}
