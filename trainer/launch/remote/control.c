/* Standard input is moved to another descriptor and replaced by /dev/null, because children must not read from it. The
 * variables are read before any thread starts, since setenv is not safe with threads. Then a thread turns lines into
 * signals to this process, so that stopping works as if the user had sent them here. It waits until a signal was taken
 * before it sends the next one: two pending signals of the same number become one, and the second request to stop would
 * be lost. Empty lines only show that the other side lives. Silence and the end of the input mean the same, since a
 * broken connection may not be reported for a long time. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/remote/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#define SILENCE_NS (60 * CT_SEC)
#define SAVE_NS (20 * CT_SEC) /* time to save before the process ends at once */
#define TAKEN_NS (5 * CT_SEC) /* for the main thread to take a signal */
#define MAX_LINE 65536

/* Reads a line without its end. Returns false at the end of the input, or if nothing arrives until the deadline. Reads
 * single bytes, because what follows belongs to the next reader. */
static bool read_line(int fd, char *buf, size_t size, int64_t deadline)
{
	size_t n = 0;
	char c;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		const int ready = poll(&p, 1, ct_deadline_poll_ms(deadline));
		ssize_t got;

		if (ready == 0)
			return false;
		got = ready > 0 ? read(fd, &c, 1) : -1;
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return false;
		if (c == '\n')
			break;
		if (n + 1 < size)
			buf[n++] = c;
	}
	buf[n] = '\0';
	return true;
}

static bool is_pending(int sig)
{
	sigset_t set;

	return sigpending(&set) == 0 && sigismember(&set, sig) == 1;
}

/* Waits until the main thread has taken the signal, because another one of the same number would merge with it. This
 * thread blocks all signals (base/thread.h), so a signal that is pending for the process is pending for this thread. */
static void send_signal(int sig)
{
	const int64_t deadline = ct_deadline_in(TAKEN_NS);

	kill(getpid(), sig);
	while (is_pending(sig) && ct_now_ns() < deadline)
		(void)poll(NULL, 0, 1);
}

static void send_named(const char *name)
{
	static const struct {
		const char *name;
		int signal;
	} known[] = {{"INT", SIGINT}, {"TERM", SIGTERM}, {"USR1", SIGUSR1}};

	for (size_t i = 0; i < CT_ARRAY_LEN(known); i++) {
		if (strcmp(name, known[i].name) == 0)
			send_signal(known[i].signal);
	}
}

static void *control_thread(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	char line[16];

	while (read_line(fd, line, sizeof(line), ct_deadline_in(SILENCE_NS)))
		send_named(line);
	CT_WARN("the connection to `ctrain launch` has ended: saving and stopping");
	send_signal(SIGTERM);
	const struct timespec time = {.tv_sec = SAVE_NS / CT_SEC};
	(void)nanosleep(&time, NULL);
	kill(getpid(), SIGTERM);
	return NULL;
}

static enum ct_status read_variables(int fd)
{
	char *line;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(line = ct_calloc(MAX_LINE, 1));
	for (;;) {
		char *eq;

		if (!read_line(fd, line, MAX_LINE, ct_deadline_in(SILENCE_NS))) {
			st = CT_FAIL(CT_COMM, "the connection to `ctrain launch` has ended");
			break;
		}
		if (line[0] == '\0')
			break;
		if ((eq = strchr(line, '=')) != NULL) {
			*eq = '\0';
			setenv(line, eq + 1, 1);
		}
	}
	ct_free(line);
	return st;
}

enum ct_status ct_control_start(void)
{
	static struct ct_thread thread; /* runs until the process ends */
	const char *control = getenv(CT_CONTROL_VARIABLE);
	int fd, null;

	if (!control || strcmp(control, "stdin") != 0)
		return CT_OK;
	unsetenv(CT_CONTROL_VARIABLE);
	fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0)
		return CT_FAIL(CT_IO, "standard input: %s", strerror(errno));
	close(null);
	CT_TRY(read_variables(fd));
	return ct_thread_start(&thread, "control", control_thread, (void *)(intptr_t)fd);
}
