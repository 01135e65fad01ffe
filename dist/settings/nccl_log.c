/* NCCL can write to a file only, so NCCL_DEBUG_FILE names the end of a pipe in /proc/self/fd, and a thread turns what
 * arrives there into lines of the log. NCCL keeps the file open and its threads may write until the process ends, so
 * the pipe and its thread remain forever: after the close, the thread discards what it reads.
 *
 * From ct_nccl_log_start on, the struct belongs to the thread, which frees it. The close sends a byte through a pair of
 * sockets and waits until the other end is closed; by then everything that NCCL wrote before has been logged. */
#include "dist/settings/nccl_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_LINE = 2000 };

struct ct_nccl_log {
	int from, to; /* the pipe: the thread reads `from`, and NCCL opens `to` by its name */
	/* A pair of sockets. After a byte from control[0], the thread logs what is left, and then closes control[1]. */
	int control[2];
	bool started;
	char line[MAX_LINE];
	size_t len;
};

/* The user wants these messages, whatever the level of the log. */
static void flush_line(ct_nccl_log *l)
{
	enum ct_log_level level = CT_LOG_INFO;

	l->line[l->len] = '\0';
	if (strstr(l->line, " NCCL WARN "))
		level = CT_LOG_WARN;
	if (l->len > 0) /* NCCL begins warnings with an empty line */
		ct_log_write(level, "nccl", "%s", l->line);
	l->len = 0;
}

/* Logs what can be read without waiting. Returns false if there will be no more. */
static bool drain(ct_nccl_log *l)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(l->from, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR)) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == '\n' || l->len == sizeof(l->line) - 1)
				flush_line(l);
			if (buf[i] != '\n')
				l->line[l->len++] = buf[i];
		}
	}
	return n < 0 && errno == EAGAIN;
}

/* Logs until the log is closed, then discards: NCCL's threads may still write. They would wait if no one read, and get
 * SIGPIPE if the pipe had no reader. */
static void *run(void *arg)
{
	ct_nccl_log *l = arg;
	struct pollfd fds[] = {{.fd = l->from, .events = POLLIN}, {.fd = l->control[1], .events = POLLIN}};
	const int from = l->from, control = l->control[1];
	char buf[4096];
	ssize_t n;

	while (drain(l) && !fds[1].revents)
		(void)poll(fds, 2, -1);
	while (read(control, buf, 1) < 0 && errno == EINTR)
		;
	drain(l);
	flush_line(l);
	ct_free(l);
	close(control);
	fcntl(from, F_SETFL, 0);
	while ((n = read(from, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		;
	return NULL;
}

static bool is_wanted(void)
{
	const char *level = getenv("NCCL_DEBUG"), *file = getenv("NCCL_DEBUG_FILE");

	return level && (!file || !*file) &&
	       (strcasecmp(level, "WARN") == 0 || strcasecmp(level, "INFO") == 0 || strcasecmp(level, "ABORT") == 0 ||
		strcasecmp(level, "TRACE") == 0);
}

enum ct_status ct_nccl_log_open(ct_nccl_log **out)
{
	char name[32];
	ct_nccl_log *l;
	int fds[2];

	*out = NULL;
	if (!is_wanted())
		return CT_OK;
	CT_TRY_ALLOC(l = CT_NEW(ct_nccl_log));
	if (pipe2(fds, O_CLOEXEC) != 0) {
		ct_free(l);
		return CT_FAIL(CT_IO, "cannot create a pipe for the messages of NCCL: %m");
	}
	l->from = fds[0];
	l->to = fds[1];
	/* NCCL opens it, and also keeps it open after the last communicator has been closed. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", l->to);
	setenv("NCCL_DEBUG_FILE", name, 1);
	*out = l;
	return CT_OK;
}

enum ct_status ct_nccl_log_start(ct_nccl_log *l)
{
	struct ct_thread thread = {0};
	enum ct_status st;

	if (!l)
		return CT_OK;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, l->control) != 0)
		return CT_FAIL(CT_IO, "cannot create a socket for the messages of NCCL: %m");
	fcntl(l->from, F_SETFL, O_NONBLOCK);
	st = ct_thread_start(&thread, "ct-nccl-log", run, l);
	if (st < 0) {
		close(l->control[0]);
		close(l->control[1]);
		return st;
	}
	pthread_detach(thread.id);
	l->started = true;
	return CT_OK;
}

void ct_nccl_log_close(ct_nccl_log *l)
{
	char byte;

	if (!l)
		return;
	if (l->started) {
		const int control = l->control[0];

		while (write(control, "", 1) < 0 && errno == EINTR)
			;
		while (read(control, &byte, 1) < 0 && errno == EINTR)
			;
		close(control);
	} else {
		close(l->from);
		close(l->to);
		ct_free(l);
	}
	unsetenv("NCCL_DEBUG_FILE");
}
