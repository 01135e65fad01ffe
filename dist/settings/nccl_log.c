#include "dist/settings/nccl_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_LINE = 2000 };

struct ct_nccl_log {
	int from;    /* the end of the pipe that the thread reads; NCCL writes the other end */
	int wake[2]; /* closing wake[1] ends the thread */
	struct ct_thread thread;
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

static void *run(void *arg)
{
	ct_nccl_log *l = arg;
	struct pollfd fds[] = {{.fd = l->from, .events = POLLIN}, {.fd = l->wake[0], .events = POLLIN}};

	while (drain(l) && !fds[1].revents)
		(void)poll(fds, 2, -1);
	drain(l);
	flush_line(l);
	return NULL;
}

static bool is_wanted(void)
{
	const char *level = getenv("NCCL_DEBUG"), *file = getenv("NCCL_DEBUG_FILE");

	return level && (!file || !*file) &&
	       (strcasecmp(level, "WARN") == 0 || strcasecmp(level, "INFO") == 0 || strcasecmp(level, "ABORT") == 0 ||
		strcasecmp(level, "TRACE") == 0);
}

static enum ct_status start(ct_nccl_log *l, int to)
{
	char name[32];

	fcntl(l->from, F_SETFL, O_NONBLOCK);
	if (pipe2(l->wake, O_CLOEXEC) != 0)
		return CT_FAIL(CT_IO, "cannot create a pipe for the messages of NCCL: %m");
	CT_TRY(ct_thread_start(&l->thread, "ct-nccl-log", run, l));
	/* NCCL opens it, and also keeps it open after the last communicator has been closed. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", to);
	setenv("NCCL_DEBUG_FILE", name, 1);
	return CT_OK;
}

enum ct_status ct_nccl_log_start(ct_nccl_log **out)
{
	ct_nccl_log *l;
	int fds[2];
	enum ct_status st;

	*out = NULL;
	if (!is_wanted())
		return CT_OK;
	CT_TRY_ALLOC(l = CT_NEW(ct_nccl_log));
	l->wake[0] = l->wake[1] = -1;
	if (pipe2(fds, O_CLOEXEC) != 0) {
		ct_free(l);
		return CT_FAIL(CT_IO, "cannot create a pipe for the messages of NCCL: %m");
	}
	l->from = fds[0];
	st = start(l, fds[1]);
	if (st < 0) {
		close(fds[0]);
		close(fds[1]);
		if (l->wake[0] >= 0)
			close(l->wake[0]);
		if (l->wake[1] >= 0)
			close(l->wake[1]);
		ct_free(l);
		return st;
	}
	*out = l;
	return CT_OK;
}

/* Leaves both ends of the pipe open: NCCL's threads may still write, and must not get SIGPIPE. */
void ct_nccl_log_stop(ct_nccl_log *l)
{
	if (!l)
		return;
	close(l->wake[1]);
	ct_thread_join(&l->thread);
	close(l->wake[0]);
	ct_free(l);
}
