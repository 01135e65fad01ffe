/* Any thread that waits may become the reader: it sets `reading`, waits in poll without the lock, then takes all frames
 * that have arrived, hands replies to the calls with their tags, and wakes all others, one of which becomes the next
 * reader. wake_fd interrupts the poll. A call is on the stack of its caller, so it must be unlinked before the caller
 * returns; a reply without a call is dropped.
 *
 * Frames are sent under a lock of their own, completely or not at all: if the deadline passes within a frame, the
 * connection is ended, because the server could not find the start of the next one. An error of sending is not reported
 * at once. The server may have sent a failure record before it closed the connection, which explains more; so input is
 * read first, and the first failure that is stored stays. */
#include "dist/store/call_impl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/thread.h"
#include "dist/store/failure.h"

#define KEEP_BYTES 65536

/* Call with the lock held, when the connection has ended. */
static void connection_lost(ct_store *s, int err)
{
	if (s->dead)
		return;
	s->dead = true;
	if (!s->failed)
		ct_failure_server_gone(&s->failure, s->owner_rank, s->owner_pid, s->owner_host, err);
	s->failed = true;
}

static void answer(ct_store *s, const struct ct_wire_frame *f)
{
	struct ct_call *c = s->calls;

	while (c && c->tag != f->tag)
		c = c->next;
	if (!c || c->done)
		return; /* its caller does not wait for it any more */
	c->status = (enum ct_status)f->status;
	c->len = f->len;
	c->body = ct_calloc((size_t)f->len + 1, 1);
	if (c->body && f->len > 0)
		memcpy(c->body, f->body, f->len);
	if (!c->body)
		c->status = CT_NOMEM;
	c->done = true;
}

/* Processes the complete frames in the input buffer. Returns false if the input is not our protocol. */
static bool take_frames(ct_store *s)
{
	size_t at = 0;

	while (s->in_len - at >= CT_WIRE_HEADER_LEN) {
		struct ct_wire_frame f;

		ct_wire_decode_header(s->in + at, &f);
		if (f.len > CT_WIRE_MAX_BODY)
			return false;
		if (s->in_len - at < CT_WIRE_HEADER_LEN + (size_t)f.len)
			break;
		f.body = s->in + at + CT_WIRE_HEADER_LEN;
		if (f.op == CT_WIRE_REPLY)
			answer(s, &f);
		else if (f.op == CT_WIRE_FAILED && !s->failed)
			s->failed = ct_wire_get_failure(&f, &s->failure);
		at += CT_WIRE_HEADER_LEN + (size_t)f.len;
	}
	if (at > 0)
		memmove(s->in, s->in + at, s->in_len - at);
	s->in_len -= at;
	if (s->in_len == 0 && s->in_cap > KEEP_BYTES) {
		ct_free(s->in);
		s->in = NULL;
		s->in_cap = 0;
	}
	return true;
}

bool ct__call_begin(ct_store *s)
{
	bool good;

	pthread_mutex_lock(&s->lock);
	good = take_frames(s);
	pthread_mutex_unlock(&s->lock);
	return good;
}

/* Makes room for the rest of a partly received frame, at least 4 KiB. */
static bool reserve(ct_store *s)
{
	size_t want = s->in_len + 4096;
	struct ct_wire_frame f;
	uint8_t *in;

	if (s->in_len >= CT_WIRE_HEADER_LEN) {
		ct_wire_decode_header(s->in, &f);
		if (want < CT_WIRE_HEADER_LEN + (size_t)f.len)
			want = CT_WIRE_HEADER_LEN + (size_t)f.len;
	}
	if (want <= s->in_cap)
		return true;
	in = ct_realloc(s->in, want, 1);
	if (!in)
		return false;
	s->in = in;
	s->in_cap = want;
	return true;
}

/* Call with the lock held. Never blocks. */
static void read_socket(ct_store *s)
{
	while (!s->dead) {
		ssize_t n;

		if (!reserve(s)) {
			connection_lost(s, ENOMEM);
			return;
		}
		n = recv(s->fd, s->in + s->in_len, s->in_cap - s->in_len, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n > 0) {
			s->in_len += (size_t)n;
			s->silent_since = 0;
		}
		if (n <= 0)
			connection_lost(s, n < 0 ? errno : 0);
		else if (!take_frames(s))
			connection_lost(s, EPROTO);
	}
}

/* Call with the lock held. One round of waiting; reads for all threads unless another thread does. False after the
 * deadline. */
static bool wait_round(ct_store *s, int64_t deadline_ns)
{
	struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake_fd, .events = POLLIN}};
	uint64_t n;

	if (ct_now_ns() >= deadline_ns)
		return false;
	if (s->reading) {
		(void)ct_cond_wait_until(&s->changed, &s->lock, deadline_ns);
		return true;
	}
	s->reading = true;
	pthread_mutex_unlock(&s->lock);
	(void)poll(p, 2, ct_deadline_poll_ms(deadline_ns));
	pthread_mutex_lock(&s->lock);
	if (p[1].revents)
		(void)!read(s->wake_fd, &n, sizeof(n));
	read_socket(s);
	s->reading = false;
	/* The reply of another thread may have arrived. If not, one of the threads must continue to read. */
	pthread_cond_broadcast(&s->changed);
	return true;
}

void ct__call_wake(ct_store *s)
{
	uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
	pthread_cond_broadcast(&s->changed);
}

/* Call with the lock held. Reads what has arrived, even if another thread is waiting in poll. */
static void look(ct_store *s)
{
	read_socket(s);
	ct__call_wake(s);
}

/* Sends both parts completely. Returns 0 or an errno. EAGAIN means that nothing was sent; it is returned only if `drop`
 * is true. */
static int send_parts(ct_store *s, struct iovec *iov, int64_t deadline_ns, bool drop)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};

	while (iov[0].iov_len + iov[1].iov_len > 0) {
		struct pollfd p = {.fd = s->fd, .events = POLLOUT};
		ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		for (int i = 0; i < 2 && n > 0; i++) {
			size_t k = (size_t)n < iov[i].iov_len ? (size_t)n : iov[i].iov_len;

			iov[i].iov_base = (char *)iov[i].iov_base + k;
			iov[i].iov_len -= k;
			n -= (ssize_t)k;
			drop = false;
		}
		if (n >= 0 || errno == EINTR)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return errno;
		if (drop)
			return EAGAIN;
		if (ct_now_ns() >= deadline_ns)
			return ETIMEDOUT;
		(void)poll(&p, 1, ct_deadline_poll_ms(deadline_ns));
	}
	return 0;
}

static int send_frame(ct_store *s, struct ct_str *b, const void *extra, size_t extra_len, int64_t deadline_ns,
		      bool drop)
{
	struct iovec iov[2] = {{b->s, b->len}, {(void *)(uintptr_t)extra, extra_len}};
	int err;

	pthread_mutex_lock(&s->send_lock);
	err = send_parts(s, iov, deadline_ns, drop);
	pthread_mutex_unlock(&s->send_lock);
	/* Part of a frame has been sent, so the server would read anything that follows as the rest of it. */
	if (err == ETIMEDOUT && iov[0].iov_len < b->len)
		(void)shutdown(s->fd, SHUT_RDWR);
	return err;
}

static void unlink_call(ct_store *s, struct ct_call *c)
{
	struct ct_call **at = &s->calls;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static void set_tag(struct ct_str *b, uint64_t tag)
{
	for (int i = 0; i < 8; i++)
		b->s[8 + i] = (char)(uint8_t)(tag >> (8 * i));
}

/* Sets the error chain from a reply with a failure status; the reply contains the message. */
static enum ct_status reply_failed(const ct_store *s, struct ct_call *c)
{
	const struct ct_wire_frame f = {.len = (uint32_t)c->len, .body = (const uint8_t *)c->body};
	struct ct_wire_reader r = ct_wire_reader(&f);
	enum ct_status st = c->status;
	char text[700];

	if (c->body)
		ct_wire_str(&r, text, sizeof(text));
	if (st == CT_PEER_LOST && s->failed)
		(void)ct_failure_raise(&s->failure);
	else if (c->body && !r.bad)
		CT_FAIL(st, "%s", text);
	else
		CT_FAIL(st, "the store refused a request: %s", ct_status_text(st));
	ct_free(c->body);
	c->body = NULL;
	return st;
}

static enum ct_status no_answer(const ct_store *s)
{
	char owner[CT_MEMBER_TEXT];

	ct_member_text(owner, sizeof(owner), s->owner_rank, s->owner_pid, s->owner_host);
	CT_FAIL(CT_TIMEOUT, "no answer in time from the store at %s port %d, served by %s", s->host, s->port, owner);
	return ct_error_caused_by(s->owner_rank, s->owner_pid);
}

enum ct_status ct__call_do(ct_store *s, struct ct_str *b, const void *extra, size_t extra_len, int64_t deadline_ns,
			   struct ct_call *c)
{
	const int64_t began = ct_now_ns();
	enum ct_status st = CT_OK;

	*c = (struct ct_call){0};
	CT_TRY(ct_str_status(b));
	ct_wire_end(b, extra_len);
	pthread_mutex_lock(&s->lock);
	c->tag = ++s->last_tag;
	c->next = s->calls;
	s->calls = c;
	pthread_mutex_unlock(&s->lock);
	set_tag(b, c->tag);
	/* Ignored, because a send error is also reported when reading, after the server's remaining frames. */
	(void)send_frame(s, b, extra, extra_len, deadline_ns, false);
	pthread_mutex_lock(&s->lock);
	while (!c->done && !s->dead && wait_round(s, deadline_ns))
		;
	unlink_call(s, c);
	if (c->done && c->status != CT_OK)
		st = reply_failed(s, c);
	else if (!c->done)
		st = s->dead ? ct_failure_raise(&s->failure) : no_answer(s);
	if (!c->done && !s->silent_since)
		s->silent_since = began;
	pthread_mutex_unlock(&s->lock);
	return st;
}

enum ct_status ct__call_post(ct_store *s, struct ct_str *b)
{
	int err;

	CT_TRY(ct_str_status(b));
	ct_wire_end(b, 0);
	err = send_frame(s, b, NULL, 0, ct_deadline_in(CT_STORE_CALL_NS), true);
	if (err == 0 || err == EAGAIN)
		return CT_OK;
	pthread_mutex_lock(&s->lock);
	look(s); /* a failure record may have arrived, which has more detail than our error */
	connection_lost(s, err);
	(void)ct_failure_raise(&s->failure);
	pthread_mutex_unlock(&s->lock);
	return CT_PEER_LOST;
}

enum ct_status ct__call_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out)
{
	enum ct_status st;

	pthread_mutex_lock(&s->lock);
	if (!s->failed)
		look(s);
	while (!s->failed && !s->cancelled && wait_round(s, deadline_ns))
		;
	st = s->failed ? CT_OK : s->cancelled ? CT_CANCELLED : CT_TIMEOUT;
	if (s->failed)
		*out = s->failure;
	pthread_mutex_unlock(&s->lock);
	return st;
}
