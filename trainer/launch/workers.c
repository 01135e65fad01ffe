/* A child calls only async-signal-safe functions between fork and exec, because the launcher has threads; its
 * environment is therefore built before the fork. PR_SET_PDEATHSIG ends it with the launcher, and the check of the
 * parent closes the gap before that call. Every descriptor is close-on-exec, and the child clears that flag for the
 * pages. A worker leaves its error in its page, which is read after the worker has been reaped. It is reaped
 * exactly once, after its remaining output has been read. */
#include "trainer/launch/workers_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/output.h"
#include "trainer/job/signals.h"

extern char **environ;

/* Returns the launcher's environment without the variables that are replaced, followed by extra. The array is owned by
 * the caller; the strings are borrowed. */
static char **make_env(char *const *extra, size_t n_extra)
{
	size_t n = 0, k = 0;

	while (environ[n])
		n++;
	char **env = CT_NEW_ARRAY(char *, n + n_extra + 1);
	for (size_t i = 0; env && i < n; i++) {
		size_t name = strcspn(environ[i], "=") + 1;
		bool replaced = false;

		for (size_t j = 0; j < n_extra && !replaced; j++)
			replaced = strncmp(environ[i], extra[j], name) == 0;
		if (!replaced)
			env[k++] = environ[i];
	}
	for (size_t j = 0; env && j < n_extra; j++)
		env[k++] = extra[j];
	return env;
}

/* Not ct_spawn, which cannot ask for a signal when the launcher dies. Makes only async-signal-safe calls, because the
 * launcher has threads. */
static void child_main(pid_t parent, char **argv, char **env, int out, int pages_fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(5); /* the launcher died before the call of prctl */
	setpgid(0, 0);
	ct_signals_reset_in_child();
	if (out >= 0) {
		dup2(out, STDOUT_FILENO);
		dup2(out, STDERR_FILENO);
	}
	fcntl(pages_fd, F_SETFD, 0);
	execve("/proc/self/exe", argv, env);
	_exit(70);
}

static enum ct_status out_of(const char *what, int rank)
{
	CT_FAIL(CT_NOMEM, "cannot start rank %d: %s: %s", rank, what, strerror(errno));

	return ct_error_hint(
		"start fewer ranks, or raise the limits of this shell (ulimit -n: open files, ulimit -u: processes)");
}

void ct__worker_init(struct ct_worker *w, int rank, struct ct_rank_page *page)
{
	*w = (struct ct_worker){.rank = rank, .out.fd = -1, .page = page};
}

enum ct_status ct__worker_start(struct ct_worker *w, char **argv, char *const *extra_env, size_t n_env,
				bool inherit_output, int pages_fd)
{
	int out[2] = {-1, -1};
	char **env = NULL;
	enum ct_status st = CT_OK;

	if (!inherit_output && pipe2(out, O_CLOEXEC) != 0)
		return out_of("pipe", w->rank);
	if (!(env = make_env(extra_env, n_env))) {
		st = CT_NOMEM;
		goto out;
	}
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0)
		child_main(parent, argv, env, out[1], pages_fd);
	if (pid < 0) {
		st = out_of("fork", w->rank);
		goto out;
	}
	setpgid(pid, pid); /* called here and in the child, because either may run first */
	w->pid = pid;
	w->out.fd = out[0];
	out[0] = -1;
	if (w->out.fd >= 0)
		fcntl(w->out.fd, F_SETFL, O_NONBLOCK);
out:
	for (int i = 0; i < 2; i++)
		if (out[i] >= 0)
			close(out[i]);
	ct_free(env);
	return st;
}

void ct__worker_drain(struct ct_worker *w)
{
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "[rank %d] ", w->rank);
	ct_lines_drain(&w->out, STDERR_FILENO, prefix);
}

bool ct__worker_reap(struct ct_worker *w)
{
	if (w->ended || w->pid <= 0 || waitpid(w->pid, &w->wait_status, WNOHANG) != w->pid)
		return false;
	ct__worker_drain(w);
	w->ended = true;
	return true;
}

static bool is_worker(const struct ct_worker *workers, int n, pid_t pid)
{
	for (int i = 0; i < n; i++)
		if (workers[i].pid == pid && !workers[i].ended)
			return true;
	return false;
}

void ct__workers_reap_orphans(const struct ct_worker *workers, int n)
{
	siginfo_t info = {0};

	/* A worker that ends now stops this loop. The next SIGCHLD, which is already pending, continues it. */
	while (getpid() == 1 && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
	       !is_worker(workers, n, info.si_pid)) {
		(void)waitpid(info.si_pid, NULL, WNOHANG);
		info.si_pid = 0;
	}
}

const struct ct_error *ct__worker_error(const struct ct_worker *w)
{
	return ct_rank_page_error(w->page);
}

enum ct_status ct__worker_status(const struct ct_worker *w)
{
	const struct ct_error *e = ct__worker_error(w);

	if (e)
		return e->status;
	if (WIFSIGNALED(w->wait_status))
		return CT_PEER_LOST;
	return ct_status_of_exit_code(WEXITSTATUS(w->wait_status));
}

bool ct__worker_is_consequence(const struct ct_worker *w)
{
	const struct ct_error *e = ct__worker_error(w);

	if (e)
		return e->status == CT_PEER_LOST || e->status == CT_CANCELLED;
	/* If a rank does not react to the failure of another rank, its watchdog ends it. */
	return WIFEXITED(w->wait_status) && WEXITSTATUS(w->wait_status) == ct_status_exit_code(CT_PEER_LOST);
}

void ct__worker_signal(const struct ct_worker *w, int sig)
{
	if (!w->ended && w->pid > 0)
		kill(-w->pid, sig);
}

void ct__worker_release(struct ct_worker *w)
{
	ct_lines_release(&w->out);
}
