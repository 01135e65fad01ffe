/* The program must not outlive this process, even if this process is killed by SIGKILL and can do nothing about it. So
 * a shell, the guard, leads the program's process group and reads a pipe whose other end only this process has: when
 * the pipe is closed, the guard kills the group. It blocks all signals, so nothing else but SIGKILL ends it, and it
 * exists until the program has been waited for, so the id of the group is not reused.
 *
 * Standard output and error are read together, because a program that fills one pipe while its parent reads the other
 * would wait forever. A descendant may keep the pipes open after the program has ended; only the deadline limits
 * this. */
#include "base/process/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process/spawn.h"

#define MAX_OUTPUT ((size_t)16 << 20)
#define REAP_MS 5

/* The shell that leads the process group of the program. */
struct guard {
	pid_t pid;
	int input;
};

static int spawn_guard(int input, pid_t *pid)
{
	static const char *const argv[] = {"/bin/sh", "-c", "read x; kill -9 0", NULL}, *const env[] = {NULL};
	struct ct_spawn s = {.argv = argv, .env = env, .files = {input, -1, -1}};

	sigfillset(&s.blocked);
	sigemptyset(&s.defaults);
	return ct_spawn(&s, pid);
}

static enum ct_status guard_start(struct guard *g)
{
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return CT_FAIL(CT_NOMEM, "pipe: %s", strerror(errno));
	rc = spawn_guard(fds[0], &g->pid);
	close(fds[0]);
	g->input = fds[1];
	if (rc == 0)
		return CT_OK;
	close(fds[1]);
	return CT_FAIL(CT_IO, "cannot run /bin/sh: %s", strerror(rc));
}

/* The other processes of the group go on. */
static void guard_stop(const struct guard *g)
{
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(g->input);
}

static enum ct_status spawn(const char *const *argv, int out, int err, pid_t group, pid_t *pid)
{
	static const int stops[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1};
	struct ct_spawn s = {.argv = argv, .files = {-1, out, err}, .group = group};
	sigset_t blocked;

	sigemptyset(&s.blocked);
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	for (size_t i = 0; i < CT_ARRAY_LEN(stops); i++) {
		if (sigismember(&blocked, stops[i]))
			sigaddset(&s.blocked, stops[i]);
	}
	sigemptyset(&s.defaults);
	sigaddset(&s.defaults, SIGCHLD);
	const int rc = ct_spawn(&s, pid);
	if (rc == 0)
		return CT_OK;
	return CT_FAIL(rc == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot run %s: %s", argv[0], strerror(rc));
}

/* Reads what is available. Closes the descriptor at the end of the output. */
static void drain(int *fd, struct ct_str *text)
{
	char chunk[4096];
	ssize_t n = read(*fd, chunk, sizeof(chunk));

	if (n > 0 && text->len < MAX_OUTPUT) {
		ct_str_add_bytes(text, chunk, (size_t)n);
	} else if (n == 0 || (n < 0 && errno != EINTR)) {
		close(*fd);
		*fd = -1;
	}
}

/* Returns false if the program has not closed its output by the deadline. */
static bool collect(int fds[2], struct ct_str *texts[2], int64_t deadline_ns)
{
	while (fds[0] >= 0 || fds[1] >= 0) {
		struct pollfd p[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};

		if (ct_now_ns() >= deadline_ns)
			return false;
		if (poll(p, 2, ct_deadline_poll_ms(deadline_ns)) <= 0)
			continue;
		for (int i = 0; i < 2; i++) {
			if (fds[i] >= 0 && p[i].revents)
				drain(&fds[i], texts[i]);
		}
	}
	return true;
}

/* Waits until the program has ended. If it has not done so at the deadline, kills it and all processes of its group. */
static enum ct_status reap(const char *name, pid_t pid, pid_t group, bool closed, int64_t deadline_ns, int *status)
{
	bool in_time = closed;
	pid_t got = 0;

	while (got != pid) {
		if (!in_time)
			kill(-group, SIGKILL);
		got = waitpid(pid, status, in_time ? WNOHANG : 0);
		if (got < 0 && errno != EINTR)
			return CT_FAIL(CT_IO, "cannot wait for %s: %s", name, strerror(errno));
		if (got == 0) {
			(void)poll(NULL, 0, REAP_MS);
			in_time = ct_now_ns() < deadline_ns;
		}
	}
	if (in_time)
		return CT_OK;
	return CT_FAIL(CT_TIMEOUT, "%s did not end in time and was killed", name);
}

static const char *last_line(struct ct_str *text)
{
	while (text->len > 0 && strchr(" \r\n", text->s[text->len - 1]))
		text->s[--text->len] = '\0';
	const char *all = ct_str_text(text), *nl = strrchr(all, '\n');

	return nl ? nl + 1 : all;
}

static enum ct_status describe(const char *name, int status, struct ct_str *err)
{
	const char *why = last_line(err);

	if (WIFSIGNALED(status))
		return CT_FAIL(CT_IO, "%s was killed by signal %d (%s)", name, WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) == 0)
		return CT_OK;
	return CT_FAIL(CT_IO, "%s failed with exit code %d%s%.300s", name, WEXITSTATUS(status), *why ? ": " : "", why);
}

enum ct_status ct_subprocess_run(const char *const *argv, int64_t deadline_ns, struct ct_str *out)
{
	int output[2] = {-1, -1}, error[2] = {-1, -1}, status = 0;
	struct ct_str err = {0};
	struct guard guard;
	pid_t pid;
	enum ct_status st = guard_start(&guard);

	if (st < 0)
		return ct_error_wrap("cannot run %s", argv[0]);
	if (pipe2(output, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
		st = CT_FAIL(CT_NOMEM, "cannot run %s: pipe: %s", argv[0], strerror(errno));
		goto out;
	}
	CT_TRY_GOTO(spawn(argv, output[1], error[1], guard.pid, &pid), st, out);
	close(output[1]);
	close(error[1]);
	output[1] = error[1] = -1;
	int ends[2] = {output[0], error[0]};
	bool closed = collect(ends, (struct ct_str *[2]){out, &err}, deadline_ns);
	output[0] = ends[0];
	error[0] = ends[1];
	st = reap(argv[0], pid, guard.pid, closed, deadline_ns, &status);
	if (st == CT_OK)
		st = describe(argv[0], status, &err);
	if (st == CT_OK)
		st = ct_str_status(out);
out:
	guard_stop(&guard);
	for (int i = 0; i < 2; i++) {
		if (output[i] >= 0)
			close(output[i]);
		if (error[i] >= 0)
			close(error[i]);
	}
	ct_str_release(&err);
	return st;
}
