/* Whether a write waits is a property of the open file description (O_NONBLOCK), which other processes may share. So a
 * pipe or a terminal is opened again through /proc/self/fd, which gives a description that belongs to this process; if
 * that fails, it is polled before each write. A socket is written with MSG_DONTWAIT.
 *
 * A channel keeps up to 64 KiB that its reader has not accepted. Once a line has been dropped, all further ones are
 * dropped until the kept ones are written, and then one line reports how many are missing; so the gap is at one place
 * and is visible. Transient text is kept, too, if the reader has accepted a part of it, so that its line is complete.
 * The lock is not held while a command waits for its reader. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define KEPT_MAX ((size_t)64 << 10)
#define MAX_PRINT 4096

/* How to write without waiting; it depends on the type of the descriptor. */
enum way {
	WAY_DIRECT, /* files and /dev/null never wait */
	WAY_OWN,    /* through a separate non-blocking file description of the same pipe or terminal */
	WAY_SEND,   /* sockets */
	WAY_POLL,   /* poll first; this may still block if other processes write to the same pipe */
};

struct channel {
	int fd;
	enum way way;
	size_t n_kept;
	uint64_t n_dropped; /* lines */
	char kept[KEPT_MAX];
};

/* The process has one of these, as it has one log. */
static struct {
	pthread_mutex_t lock;
	bool never_wait;
	struct channel channels[2];
	struct channel *of[2]; /* for standard output and standard error; the same channel if both are the same file */
} output = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t write_once(const struct channel *c, const char *text, size_t len)
{
	struct pollfd p = {.fd = c->fd, .events = POLLOUT};

	switch (c->way) {
	case WAY_SEND:
		return send(c->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	case WAY_POLL:
		if (poll(&p, 1, 0) != 1) {
			errno = EAGAIN;
			return -1;
		}
		/* A writable pipe accepts at least this much. */
		return write(c->fd, text, len < PIPE_BUF ? len : PIPE_BUF);
	case WAY_DIRECT:
	case WAY_OWN:
		break;
	}
	return write(c->fd, text, len);
}

/* Returns how many bytes were accepted. After a write error that is len, because nothing can be written any more. */
static size_t write_some(const struct channel *c, const char *text, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write_once(c, text + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n <= 0)
			return len;
		done += (size_t)n;
	}
	return done;
}

static uint64_t count_lines(const char *text, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n > 0 ? n : 1;
}

static void flush(struct channel *c)
{
	size_t done = write_some(c, c->kept, c->n_kept);

	memmove(c->kept, c->kept + done, c->n_kept - done);
	c->n_kept -= done;
	if (c->n_kept == 0 && c->n_dropped > 0) {
		c->n_kept = (size_t)snprintf(c->kept, sizeof(c->kept),
					     "ctrain: %llu lines are missing here: no one read them in time\n",
					     (unsigned long long)c->n_dropped);
		c->n_dropped = 0;
		flush(c);
	}
}

/* Writes, buffers or drops the complete text, unless the reader has already accepted a part of it. */
static void keep(struct channel *c, const char *text, size_t len, bool transient)
{
	size_t done = 0;

	flush(c);
	if (c->n_kept == 0)
		done = write_some(c, text, len);
	if (done == len || (transient && done == 0))
		return;
	/* Once lines have been dropped, further text is dropped until their number has been reported. */
	if (c->n_dropped > 0 || len - done > sizeof(c->kept) - c->n_kept) {
		c->n_dropped += count_lines(text, len);
		return;
	}
	memcpy(c->kept + c->n_kept, text + done, len - done);
	c->n_kept += len - done;
}

static void write_and_wait(int fd, const char *text, size_t len)
{
	const struct channel c = {.fd = fd, .way = WAY_DIRECT};
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	for (;;) {
		size_t done = write_some(&c, text, len);

		if (done == len)
			return;
		/* Another process may have made the descriptor non-blocking. */
		text += done;
		len -= done;
		(void)poll(&p, 1, -1);
	}
}

static void write_to(int fd, const char *text, size_t len, bool transient)
{
	bool waits;

	CT_ASSERT(fd == STDOUT_FILENO || fd == STDERR_FILENO);
	pthread_mutex_lock(&output.lock);
	waits = !output.never_wait;
	if (!waits)
		keep(output.of[fd == STDERR_FILENO], text, len, transient);
	pthread_mutex_unlock(&output.lock);
	if (waits)
		write_and_wait(fd, text, len);
}

void ct_output_write(int fd, const char *text, size_t len)
{
	write_to(fd, text, len, false);
}

void ct_output_transient(int fd, const char *text, size_t len)
{
	write_to(fd, text, len, true);
}

void ct_output_print(int fd, const char *fmt, ...)
{
	char text[MAX_PRINT];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(text)) {
		n = sizeof(text) - 1;
		memcpy(text + n - 4, "...\n", 4);
	}
	if (n > 0)
		ct_output_write(fd, text, (size_t)n);
}

static void find_way(struct channel *c, int fd, const struct stat *sb)
{
	char path[32];
	int own;

	c->fd = fd;
	c->way = WAY_DIRECT;
	if (S_ISSOCK(sb->st_mode)) {
		c->way = WAY_SEND;
	} else if (S_ISFIFO(sb->st_mode) || isatty(fd)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		c->way = own >= 0 ? WAY_OWN : WAY_POLL;
		c->fd = own >= 0 ? own : fd;
	}
}

void ct_output_never_wait(void)
{
	static const int fds[] = {STDOUT_FILENO, STDERR_FILENO};
	struct stat sb[2] = {{0}, {0}};
	bool same;

	pthread_mutex_lock(&output.lock);
	for (int i = 0; i < 2 && !output.never_wait; i++) {
		same = fstat(fds[i], &sb[i]) == 0 && i == 1 && sb[0].st_dev == sb[1].st_dev &&
		       sb[0].st_ino == sb[1].st_ino;
		output.of[i] = &output.channels[same ? 0 : i];
		if (!same)
			find_way(output.of[i], fds[i], &sb[i]);
	}
	output.never_wait = true;
	pthread_mutex_unlock(&output.lock);
}

/* Tries to write the buffered text of both channels. Returns a channel that still has some, or NULL. */
static const struct channel *try_again(void)
{
	const struct channel *left = NULL;

	for (int i = 1; i >= 0 && output.never_wait; i--) {
		flush(output.of[i]);
		if (output.of[i]->n_kept > 0)
			left = output.of[i];
	}
	return left;
}

bool ct_output_pending(void)
{
	bool pending;

	pthread_mutex_lock(&output.lock);
	pending = try_again() != NULL;
	pthread_mutex_unlock(&output.lock);
	return pending;
}

void ct_output_finish(int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.events = POLLOUT};
		const struct channel *c;
		int ms;

		pthread_mutex_lock(&output.lock);
		c = try_again();
		p.fd = c ? c->fd : -1;
		pthread_mutex_unlock(&output.lock);
		if (!c || ct_now_ns() >= deadline_ns)
			return;
		/* Waits only for a short time, so that the other channel gets its turn. */
		ms = ct_deadline_poll_ms(deadline_ns);
		(void)poll(&p, 1, ms >= 0 && ms < 50 ? ms : 50);
	}
}
