/* Each host is one child process, ssh or a shell, in a process group of its own, so that Ctrl-C reaches it only through
 * this process. Its input carries variables, signals and a beat; its output is merged line by line. The first host that
 * fails starts a deadline, after which stronger means follow step by step: a signal, a second one, the end of the
 * input, SIGKILL of the connection. A host that could not start ctrain ends the others at once, because the run cannot
 * begin. Writing never blocks: the pipe is larger than all that is written before a host reads, and a write that fails
 * closes the input. The error is that of the host that failed first, unless this was only a consequence of another
 * failure. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/remote/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "base/process/spawn.h"
#include "trainer/job/signals.h"
#include "trainer/launch/lines.h"
#include "trainer/launch/remote/command_impl.h"
#include "trainer/launch/remote/control.h"

#define END_NS (10 * CT_SEC) /* after the first failure, for the hosts to end by themselves */
#define STEP_NS (5 * CT_SEC) /* between the ways to end a host, each stronger than the one before */

enum { SSH_FAILED = 255, NOT_EXECUTABLE = 126, NOT_FOUND = 127 }; /* exit codes of ssh and of shells */

/* The process that runs ctrain on a host: ssh, or a shell on this host. */
struct connection {
	const struct ct_host *host;
	char prefix[80]; /* of its lines */
	pid_t pid;       /* 0: not started */
	int in_fd;       /* its standard input; -1: closed */
	struct ct_lines out, err;
	bool ended;
	int wait_status;
};

struct job {
	const struct ct_remote_opts *o;
	struct connection *all; /* [n] */
	int n, signals;
	int first_failed;        /* -1: none */
	int n_stops;             /* requests to stop, by signals or after a failure */
	int64_t beat_at, end_at; /* end_at: CT_FOREVER until a failure */
};

/* ---- processes */

/* Signals of the terminal do not reach the program, which has its own process group. If this process is killed, the
 * program ends because of the end of its input. */
static enum ct_status spawn(const char *const *argv, const int files[3], pid_t *pid)
{
	struct ct_spawn s = {.argv = argv, .files = {files[0], files[1], files[2]}};

	sigemptyset(&s.blocked);
	sigemptyset(&s.defaults);
	sigaddset(&s.defaults, SIGPIPE);
	const int rc = ct_spawn(&s, pid);
	if (rc == 0)
		return CT_OK;
	return CT_FAIL(rc == ENOENT ? CT_NOT_FOUND : CT_NOMEM, "cannot run %s: %s", argv[0], strerror(rc));
}

static enum ct_status start(struct connection *c, const char *const *argv)
{
	int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	enum ct_status st = CT_OK;

	for (int i = 0; i < 3 && st == CT_OK; i++) {
		if (pipe2(pipes[i], O_CLOEXEC) != 0)
			st = CT_FAIL(CT_NOMEM, "pipe: %s", strerror(errno));
	}
	if (st == CT_OK)
		st = spawn(argv, (int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, &c->pid);
	if (st == CT_OK) {
		c->in_fd = pipes[0][1];
		c->out.fd = pipes[1][0];
		c->err.fd = pipes[2][0];
		pipes[0][1] = pipes[1][0] = pipes[2][0] = -1;
		fcntl(c->in_fd, F_SETFL, O_NONBLOCK);
		fcntl(c->out.fd, F_SETFL, O_NONBLOCK);
		fcntl(c->err.fd, F_SETFL, O_NONBLOCK);
	}
	for (int i = 0; i < 6; i++) {
		if (pipes[i / 2][i % 2] >= 0)
			close(pipes[i / 2][i % 2]);
	}
	return st;
}

static void close_input(struct connection *c)
{
	if (c->in_fd >= 0)
		close(c->in_fd);
	c->in_fd = -1;
}

/* The pipe is larger than everything that is written before the host reads. A host that reads nothing has failed. */
static void send_text(struct connection *c, const char *text, size_t len)
{
	if (c->in_fd >= 0 && write(c->in_fd, text, len) != (ssize_t)len)
		close_input(c);
}

static void send_all(struct job *j, const char *text)
{
	for (int i = 0; i < j->n; i++)
		send_text(&j->all[i], text, strlen(text));
}

static void drain(struct connection *c)
{
	ct_lines_drain(&c->out, STDOUT_FILENO, c->prefix);
	ct_lines_drain(&c->err, STDERR_FILENO, c->prefix);
}

static bool failed(const struct connection *c)
{
	return c->ended && (!WIFEXITED(c->wait_status) || WEXITSTATUS(c->wait_status) != 0);
}

/* Whether ctrain has not run on the host, so that the run cannot start. */
static bool never_ran(const struct connection *c)
{
	const int code = WIFEXITED(c->wait_status) ? WEXITSTATUS(c->wait_status) : SSH_FAILED;

	return code == SSH_FAILED || code == NOT_EXECUTABLE || code == NOT_FOUND;
}

/* Whether the host ended because another one had failed. */
static bool is_consequence(const struct connection *c)
{
	return WIFEXITED(c->wait_status) && WEXITSTATUS(c->wait_status) == ct_status_exit_code(CT_PEER_LOST);
}

static void note_end(struct job *j, int i)
{
	const struct connection *c = &j->all[i], *first = j->first_failed >= 0 ? &j->all[j->first_failed] : NULL;

	close_input(&j->all[i]);
	if (!failed(c))
		return;
	if (j->end_at == CT_FOREVER)
		j->end_at = never_ran(c) ? ct_now_ns() : ct_deadline_in(END_NS);
	if (!first || (is_consequence(first) && !is_consequence(c) && j->n_stops == 0))
		j->first_failed = i;
}

static void reap(struct job *j)
{
	for (int i = 0; i < j->n; i++) {
		struct connection *c = &j->all[i];

		if (c->ended || c->pid == 0 || waitpid(c->pid, &c->wait_status, WNOHANG) != c->pid)
			continue;
		c->ended = true;
		drain(c);
		note_end(j, i);
	}
}

static int n_running(const struct job *j)
{
	int n = 0;

	for (int i = 0; i < j->n; i++)
		n += j->all[i].pid > 0 && !j->all[i].ended;
	return n;
}

/* ---- ending */

/* A host saves and ends at the first request, and ends at once at the second. Then its input is closed, which has the
 * same effect, and at last the connection is. */
static void stop_harder(struct job *j, const char *signal_line)
{
	j->n_stops++;
	if (j->n_stops <= 2)
		send_all(j, signal_line);
	for (int i = 0; i < j->n; i++) {
		if (j->n_stops == 3)
			close_input(&j->all[i]);
		if (j->n_stops > 3 && j->all[i].pid > 0 && !j->all[i].ended)
			kill(-j->all[i].pid, SIGKILL);
	}
}

static void handle_signals(struct job *j)
{
	for (int sig; (sig = ct_signals_next(j->signals)) != 0;) {
		if (sig == SIGCHLD || sig == SIGTSTP)
			continue;
		if (sig == SIGUSR1) {
			send_all(j, "USR1\n");
			continue;
		}
		if (j->n_stops == 0)
			ct_output_print(
				STDERR_FILENO,
				"ctrain: received %s: ending on %d host%s after saving; send it again to end at once\n",
				strsignal(sig), n_running(j), ct_plural(n_running(j)));
		stop_harder(j, "INT\n");
		if (j->n_stops >= 2)
			j->end_at = ct_deadline_in(STEP_NS);
	}
}

static enum ct_status wait_for_all(struct job *j)
{
	struct pollfd *fds;

	CT_TRY_ALLOC(fds = CT_NEW_ARRAY(struct pollfd, (size_t)j->n * 2 + 1));
	while (n_running(j) > 0) {
		nfds_t k = 0;

		fds[k++] = (struct pollfd){.fd = j->signals, .events = POLLIN};
		for (int i = 0; i < j->n; i++) {
			fds[k++] = (struct pollfd){.fd = j->all[i].out.fd, .events = POLLIN};
			fds[k++] = (struct pollfd){.fd = j->all[i].err.fd, .events = POLLIN};
		}
		(void)poll(fds, k, ct_deadline_poll_ms(j->beat_at < j->end_at ? j->beat_at : j->end_at));
		handle_signals(j);
		for (int i = 0; i < j->n; i++)
			drain(&j->all[i]);
		reap(j);
		if (ct_now_ns() >= j->beat_at) {
			send_all(j, "\n");
			j->beat_at = ct_deadline_in(CT_CONTROL_BEAT_NS);
		}
		if (ct_now_ns() >= j->end_at) {
			stop_harder(j, "INT\n");
			j->end_at = ct_deadline_in(STEP_NS);
		}
	}
	ct_free(fds);
	return CT_OK;
}

/* ---- result */

static enum ct_status describe(const struct connection *c, int node)
{
	const int code = WIFEXITED(c->wait_status) ? WEXITSTATUS(c->wait_status) : SSH_FAILED;
	const bool here = ct__host_is_here(c->host);

	if (code == SSH_FAILED && !here) {
		CT_FAIL(CT_COMM, "the connection to %s (node %d) failed", c->host->name, node);
		return ct_error_hint(
			"`ssh -oBatchMode=yes %s true` must work without a password: use a key, and accept the key of the host once",
			c->host->name);
	}
	if (code == NOT_FOUND || code == NOT_EXECUTABLE) {
		CT_FAIL(CT_NOT_FOUND, "ctrain could not be started on %s (node %d)", c->host->name, node);
		return ct_error_hint("install ctrain at the same path on all hosts");
	}
	const enum ct_status st = ct_status_of_exit_code(code);
	if (st == CT_INTERRUPTED)
		return CT_FAIL(st, "stopped by a signal");
	CT_FAIL(st, "node %d on %s ended with exit code %d", node, c->host->name, code);
	return ct_error_hint("its messages are above, and in RUN/log; `ctrain explain %d` explains the code", code);
}

static enum ct_status run(struct job *j)
{
	struct ct_str variables = {0};
	enum ct_status st = ct__command_variables(&variables);

	for (int i = 0; i < j->n && st == CT_OK; i++) {
		struct ct__command c = {0};

		st = ct__command_make(j->o, i, &c);
		if (st == CT_OK)
			st = start(&j->all[i], (const char *const *)c.argv);
		if (st == CT_OK)
			send_text(&j->all[i], ct_str_text(&variables), variables.len);
		ct__command_release(&c);
	}
	ct_str_release(&variables);
	if (st < 0)
		j->end_at = ct_now_ns();
	struct ct_error first = {0};
	if (st < 0)
		ct_error_save(&first);
	CT_TRY(wait_for_all(j));
	if (st < 0)
		return ct_error_restore(&first);
	return j->first_failed < 0 ? CT_OK : describe(&j->all[j->first_failed], j->first_failed);
}

enum ct_status ct_remote_run(const struct ct_remote_opts *o)
{
	struct job j = {.o = o,
			.n = (int)o->hosts->n,
			.signals = -1,
			.first_failed = -1,
			.beat_at = ct_deadline_in(CT_CONTROL_BEAT_NS),
			.end_at = CT_FOREVER};

	CT_TRY(ct_signals_open(true, &j.signals));
	ct_output_never_wait();
	enum ct_status st = (j.all = CT_NEW_ARRAY(struct connection, o->hosts->n)) ? CT_OK : CT_NOMEM;
	for (int i = 0; st == CT_OK && i < j.n; i++) {
		j.all[i] = (struct connection){.host = &o->hosts->all[i], .in_fd = -1, .out.fd = -1, .err.fd = -1};
		if (i > 0)
			snprintf(j.all[i].prefix, sizeof(j.all[i].prefix), "[%.70s] ",
				 ct_host_address(&o->hosts->all[i]));
	}
	if (st == CT_OK)
		st = run(&j);
	for (int i = 0; j.all && i < j.n; i++) {
		close_input(&j.all[i]);
		ct_lines_release(&j.all[i].out);
		ct_lines_release(&j.all[i].err);
	}
	ct_free(j.all);
	ct_signals_close(j.signals);
	return st;
}
