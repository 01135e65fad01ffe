/* One connection of the store server: reads frames and sends replies. Input is a machine with four stages (magic,
 * header, body, skip). The magic is compared while it arrives, so a foreign protocol is noticed early, and the buffer
 * grows with what has arrived, not with the length that a header claims. Before the handshake, only its frames are
 * accepted, and they must be small. A frame for which the store has no room is skipped and answered with an error.
 *
 * Output is a list of shared blobs. If a client does not read its replies, its requests are not read, either, so it
 * cannot make the server collect memory. An error of sending ends only the output: a BYE may still be in the input.
 * Neither input nor output frees a connection; they mark it as lost (server.c). */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "dist/net/net.h"
#include "dist/store/server_impl.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

#define READ_BYTES 65536
#define KEEP_BYTES 65536 /* a larger input buffer is freed after its frame */
#define MAX_IOV 16

void ct__srv_list_push(struct ct_srv_list *l, struct ct_srv_conn *c)
{
	c->prev = l->last;
	c->next = NULL;
	*(l->last ? &l->last->next : &l->first) = c;
	l->last = c;
	l->n++;
}

void ct__srv_list_drop(struct ct_srv_list *l, struct ct_srv_conn *c)
{
	*(c->prev ? &c->prev->next : &l->first) = c->next;
	*(c->next ? &c->next->prev : &l->last) = c->prev;
	l->n--;
}

struct ct_srv_conn *ct__srv_conn_open(ct_store_server *s, int fd, const char *peer)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct ct_srv_conn *c = CT_NEW(struct ct_srv_conn);

	if (!c)
		return NULL;
	ev.data.ptr = c;
	if (fd >= 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
		ct_free(c);
		return NULL;
	}
	c->srv = s;
	c->fd = fd;
	c->events = EPOLLIN;
	c->deadline = ct_deadline_in(SRV_HANDSHAKE_NS);
	c->want = CT_WIRE_MAGIC_LEN;
	c->out_end = &c->out_first;
	ct_wire_copy(c->peer, sizeof(c->peer), peer);
	ct__srv_list_push(&s->handshakes, c);
	return c;
}

static void drop_output(struct ct_srv_conn *c)
{
	while (c->out_first) {
		struct ct_srv_out *o = c->out_first;

		c->out_first = o->next;
		ct_blob_unref(o->blob);
		ct_free(o);
	}
	c->out_end = &c->out_first;
	c->n_out = 0;
	c->out_sent = 0;
}

static void drop_input(struct ct_srv_conn *c)
{
	c->srv->used -= c->in_cap;
	ct_free(c->in);
	c->in = NULL;
	c->in_cap = 0;
}

void ct__srv_conn_free(struct ct_srv_conn *c)
{
	drop_output(c);
	drop_input(c);
	/* Closing does not end the registration if a forked process still has the descriptor. */
	if (c->fd >= 0)
		(void)epoll_ctl(c->srv->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	ct_net_close(&c->fd);
	ct_free(c);
}

void ct__srv_conn_count_node(const struct ct_srv_conn *c, int n)
{
	if (!c->ready || c->role != CT_ROLE_LAUNCHER || c->node < 0 || c->node >= c->srv->opts.n_nodes)
		return;
	struct ct_srv_node *node = &c->srv->nodes[c->node];
	int left = atomic_fetch_add(&node->n_conns, n) + n;
	atomic_store(&node->left, left == 0 && c->bye);
}

void ct__srv_conn_lost(struct ct_srv_conn *c, int err)
{
	if (c->gone)
		return;
	c->gone = true;
	c->err = err;
	c->next_gone = c->srv->gone;
	c->srv->gone = c;
}

void ct__srv_warn_refused(struct ct_srv_conn *c, const char *fmt, ...)
{
	uint64_t n = ++c->srv->n_refused, left = n;
	char why[256];
	va_list ap;

	/* Log the first five, and then each power of ten: a port scanner must not fill the log. */
	while (left % 10 == 0)
		left /= 10;
	if (c->srv->quiet || (n > 5 && left != 1))
		return;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	CT_WARN("refused a connection from %s to the store on port %d: %s (%" PRIu64 " refused so far)", c->peer,
		c->srv->port, why, n);
}

/* Does not read requests while the peer does not read its replies. */
static void set_interest(struct ct_srv_conn *c)
{
	uint32_t events = (c->n_out <= SRV_MAX_UNSENT ? EPOLLIN : 0u) | (c->out_first ? EPOLLOUT : 0u);
	struct epoll_event ev = {.events = events};

	if (c->fd < 0 || events == c->events)
		return;
	ev.data.ptr = c;
	if (epoll_ctl(c->srv->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev) == 0)
		c->events = events;
}

static void sent(struct ct_srv_conn *c, size_t n)
{
	c->out_sent += n;
	while (c->out_first && c->out_sent >= c->out_first->blob->len) {
		struct ct_srv_out *o = c->out_first;

		c->out_sent -= o->blob->len;
		c->out_first = o->next;
		if (!c->out_first)
			c->out_end = &c->out_first;
		c->n_out--;
		ct_blob_unref(o->blob);
		ct_free(o);
	}
}

void ct__srv_conn_flush(struct ct_srv_conn *c)
{
	while (c->out_first && !c->out_broken) {
		struct iovec iov[MAX_IOV];
		struct msghdr m = {.msg_iov = iov};
		size_t skip = c->out_sent;
		ssize_t n;

		for (struct ct_srv_out *o = c->out_first; o && m.msg_iovlen < MAX_IOV; o = o->next, skip = 0)
			iov[m.msg_iovlen++] = (struct iovec){o->blob->data + skip, o->blob->len - skip};
		n = c->fd < 0 ? -1 : sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0)
			sent(c, (size_t)n);
		else if (c->fd >= 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		else if (c->fd < 0 || errno != EINTR)
			c->out_broken = true;
	}
	/* Stop only the output: the peer's remaining input (a BYE) must be read before the end of the connection is
	 * processed. */
	if (c->out_broken)
		drop_output(c);
	if (c->closing && !c->out_first && c->fd >= 0)
		(void)shutdown(c->fd, SHUT_WR);
	set_interest(c);
}

void ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b)
{
	struct ct_srv_out *o = b && !c->out_broken && !c->gone ? CT_NEW(struct ct_srv_out) : NULL;

	if (!o) {
		/* There is no memory for a reply, and without one the client would wait forever. */
		if (!c->out_broken && !c->gone)
			ct__srv_conn_lost(c, ENOMEM);
		ct_blob_unref(b);
		return;
	}
	o->blob = b;
	*c->out_end = o;
	c->out_end = &o->next;
	c->n_out++;
}

void ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b)
{
	ct__srv_conn_send(c, b->failed ? NULL : ct_blob_make(&c->srv->used, b->s, b->len));
	ct_str_release(b);
}

static bool reserve_input(struct ct_srv_conn *c, size_t need)
{
	size_t cap = c->in_cap ? c->in_cap : 256;
	uint8_t *in;

	/* The buffer grows with the bytes that have arrived, not with the length in a header. */
	while (cap < need)
		cap *= 2;
	if (cap > c->want)
		cap = c->want > need ? c->want : need;
	if (cap <= c->in_cap)
		return true;
	in = ct_realloc(c->in, cap, 1);
	if (!in)
		return false;
	c->srv->used += cap - c->in_cap;
	c->in = in;
	c->in_cap = cap;
	return true;
}

static void next_frame(struct ct_srv_conn *c)
{
	c->stage = SRV_HEADER;
	c->in_len = 0;
	c->want = CT_WIRE_HEADER_LEN;
	if (c->in_cap > KEEP_BYTES)
		drop_input(c);
}

static void dispatch(struct ct_srv_conn *c)
{
	c->frame.body = c->in + CT_WIRE_HEADER_LEN;
	if (c->ready)
		ct__srv_request(c, &c->frame);
	else if (c->challenged)
		ct__srv_handshake(c, &c->frame);
	else
		ct__srv_hello(c, &c->frame);
	next_frame(c);
}

static void header_complete(struct ct_srv_conn *c)
{
	size_t limit = c->ready ? CT_WIRE_MAX_BODY : CT_WIRE_MAX_HANDSHAKE;
	enum ct_wire_op first = c->challenged ? CT_WIRE_HANDSHAKE : CT_WIRE_HELLO;

	ct_wire_decode_header(c->in, &c->frame);
	if (c->frame.len > limit || (!c->ready && c->frame.op != first)) {
		ct__srv_warn_refused(c, "it sent a malformed frame (operation %u, %" PRIu32 " bytes)", c->frame.op,
				     c->frame.len);
		ct__srv_conn_lost(c, EPROTO);
		return;
	}
	if (c->srv->used + c->frame.len > SRV_MAX_BYTES && c->frame.len > CT_WIRE_MAX_HANDSHAKE) {
		c->stage = SRV_SKIP;
		c->want = c->frame.len;
		return;
	}
	c->want = CT_WIRE_HEADER_LEN + (size_t)c->frame.len;
	c->stage = SRV_BODY;
	if (c->frame.len == 0)
		dispatch(c);
}

/* Call when all bytes that this stage needs have arrived. */
static void advance(struct ct_srv_conn *c)
{
	switch (c->stage) {
	case SRV_MAGIC:
		next_frame(c);
		break;
	case SRV_HEADER:
		header_complete(c);
		break;
	case SRV_BODY:
		dispatch(c);
		break;
	case SRV_SKIP:
		ct__srv_reply(c, c->frame.tag, CT_NOMEM, "the store is full (64 MiB)");
		next_frame(c);
		break;
	}
}

static size_t skip_bytes(struct ct_srv_conn *c, size_t n)
{
	size_t k = n < c->want ? n : c->want;

	c->want -= k;
	if (c->want == 0)
		advance(c);
	return k;
}

/* The last byte of the magic is the version. */
static void wrong_magic(struct ct_srv_conn *c)
{
	if (c->in_len == CT_WIRE_MAGIC_LEN && memcmp(c->in, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN - 1) == 0) {
		ct__srv_other_version(c);
		return;
	}
	ct__srv_warn_refused(c, "it does not use ctrain's protocol");
	ct__srv_conn_lost(c, EPROTO);
}

void ct__srv_conn_input(struct ct_srv_conn *c, const uint8_t *p, size_t n)
{
	while (n > 0 && !c->closing && !c->gone) {
		size_t k = c->want - c->in_len < n ? c->want - c->in_len : n;

		if (c->stage == SRV_SKIP) {
			k = skip_bytes(c, n);
		} else if (!reserve_input(c, c->in_len + k)) {
			ct__srv_conn_lost(c, ENOMEM);
			return;
		} else {
			memcpy(c->in + c->in_len, p, k);
			c->in_len += k;
			if (c->stage == SRV_MAGIC && memcmp(c->in, CT_WIRE_MAGIC, c->in_len) != 0) {
				wrong_magic(c);
			} else if (c->in_len == c->want) {
				advance(c);
			}
		}
		p += k;
		n -= k;
	}
}

void ct__srv_conn_read(struct ct_srv_conn *c)
{
	uint8_t buf[READ_BYTES];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n > 0) {
		ct__srv_conn_input(c, buf, (size_t)n);
		ct__srv_conn_flush(c);
	} else if (n == 0) {
		ct__srv_conn_lost(c, 0);
	} else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
		ct__srv_conn_lost(c, errno);
	}
}
