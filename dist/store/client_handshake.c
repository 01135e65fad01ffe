/* The client's side of the handshake: both sides prove that they know the secret of the run (dist/net/proof.h). The
 * order is HELLO with the client's nonce, the server's challenge, the client's proof, the server's proof, READY. Until
 * the server's proof is valid, its input is limited to the size of a handshake, and nothing that it sends is used,
 * except for the reason of a refusal. READY ends a time in which the server treats the end of the connection not as a
 * failure, because the client may have stopped waiting. A failure record may follow the welcome at once; its bytes stay
 * in the buffer for call.c. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "dist/store/call_impl.h"

#define MAX_ANSWER (CT_WIRE_MAGIC_LEN + CT_WIRE_HEADER_LEN + CT_WIRE_MAX_HANDSHAKE)

static enum ct_status not_a_store(const ct_store *s)
{
	CT_FAIL(CT_MISMATCH, "the server on %s port %d is not a ctrain store of this version", s->host, s->port);
	return ct_error_hint("choose another port (--master-port or MASTER_PORT), or end the program that uses it");
}

static enum ct_status broken(const ct_store *s, int err)
{
	return CT_FAIL(CT_COMM, "the connection to %s port %d broke: %s", s->host, s->port, strerror(err));
}

/* Sends the frame in b and releases b. These few bytes always fit into the buffer of a new socket. */
static enum ct_status send_bytes(const ct_store *s, struct ct_str *b)
{
	enum ct_status st = ct_str_status(b);

	if (st == CT_OK && send(s->fd, b->s, b->len, MSG_NOSIGNAL) != (ssize_t)b->len)
		st = broken(s, errno);
	ct_str_release(b);
	return st;
}

/* Sends the magic and the nonce. */
static enum ct_status send_hello(const ct_store *s, struct ct_nonces *nonces)
{
	const struct ct_wire_frame hello = {.op = CT_WIRE_HELLO, .len = CT_NONCE_BYTES};
	uint8_t header[CT_WIRE_HEADER_LEN];
	struct ct_str b = {0};

	CT_TRY(ct_nonce_make(nonces->client));
	ct_wire_encode_header(header, &hello);
	ct_str_add_bytes(&b, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
	ct_str_add_bytes(&b, header, sizeof(header));
	ct_str_add_bytes(&b, nonces->client, CT_NONCE_BYTES);
	return send_bytes(s, &b);
}

static enum ct_status send_handshake(const ct_store *s, enum ct_wire_role role, const struct ct_nonces *nonces)
{
	struct ct_wire_handshake h = {.role = role,
				      .member = s->opts.member,
				      .pid = s->opts.pid,
				      .world = s->opts.world,
				      .n_nodes = s->opts.n_nodes,
				      .node = s->opts.node};
	struct ct_str b = {0};

	ct_wire_copy(h.run_id, sizeof(h.run_id), s->opts.run_id);
	ct_wire_copy(h.host, sizeof(h.host), s->opts.host);
	ct_wire_begin(&b, CT_WIRE_HANDSHAKE, CT_OK, 0);
	ct_wire_put_handshake(&b, &h);
	ct_wire_put_proof(&b, s->opts.token, CT_PROOF_OF_CLIENT, nonces);
	ct_wire_end(&b, 0);
	return send_bytes(s, &b);
}

/* Reads until s->in contains at least `want` bytes. */
static enum ct_status read_up_to(ct_store *s, size_t want, int64_t deadline_ns)
{
	while (s->in_len < want) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		ssize_t n = recv(s->fd, s->in + s->in_len, s->in_cap - s->in_len, MSG_DONTWAIT);

		if (n > 0) {
			s->in_len += (size_t)n;
			continue;
		}
		if (n == 0)
			return CT_FAIL(CT_COMM, "%s port %d closed the connection", s->host, s->port);
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return broken(s, errno);
		if (ct_now_ns() >= deadline_ns)
			return CT_FAIL(CT_TIMEOUT, "%s port %d accepts connections but does not answer", s->host,
				       s->port);
		(void)poll(&p, 1, ct_deadline_poll_ms(deadline_ns));
	}
	return CT_OK;
}

/* Removes the first n bytes of the input. */
static void consume(ct_store *s, size_t n)
{
	s->in_len -= n;
	memmove(s->in, s->in + n, s->in_len);
}

/* Reads one frame to the beginning of the input; f->body points into it. */
static enum ct_status read_frame(ct_store *s, int64_t deadline_ns, struct ct_wire_frame *f)
{
	CT_TRY(read_up_to(s, CT_WIRE_HEADER_LEN, deadline_ns));
	ct_wire_decode_header(s->in, f);
	if (f->len > CT_WIRE_MAX_HANDSHAKE)
		return not_a_store(s);
	CT_TRY(read_up_to(s, CT_WIRE_HEADER_LEN + f->len, deadline_ns));
	f->body = s->in + CT_WIRE_HEADER_LEN;
	return CT_OK;
}

static enum ct_status refused(const ct_store *s, const struct ct_wire_frame *f)
{
	struct ct_wire_reader r = ct_wire_reader(f);
	const uint8_t reason = ct_wire_u8(&r);
	char why[600];

	ct_wire_str(&r, why, sizeof(why));
	if (f->op != CT_WIRE_REFUSED || !ct_wire_done(&r) || !ct_status_is_failure(f->status) || reason >= CT_REASON_N)
		return not_a_store(s);
	CT_FAIL((enum ct_status)f->status, "the store at %s port %d refused the connection: %s", s->host, s->port, why);
	ct_error_hint(
		"all ranks of a run need the same token, run id, --nodes and --procs; each node needs a different --node-rank, and each rank a different RANK (not LOCAL_RANK); two runs on one host need two ports");
	return ct_error_because((enum ct_reason)reason);
}

static enum ct_status read_challenge(ct_store *s, int64_t deadline_ns, struct ct_nonces *nonces)
{
	struct ct_wire_frame f;

	CT_TRY(read_up_to(s, CT_WIRE_MAGIC_LEN, deadline_ns));
	if (memcmp(s->in, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN) != 0)
		return not_a_store(s);
	consume(s, CT_WIRE_MAGIC_LEN);
	CT_TRY(read_frame(s, deadline_ns, &f));
	if (f.op != CT_WIRE_CHALLENGE)
		return refused(s, &f);
	if (f.len != CT_NONCE_BYTES)
		return not_a_store(s);
	memcpy(nonces->server, f.body, CT_NONCE_BYTES);
	consume(s, CT_WIRE_HEADER_LEN + f.len);
	return CT_OK;
}

static enum ct_status impostor(const ct_store *s)
{
	CT_FAIL(CT_MISMATCH, "the server on %s port %d does not know the secret of this run", s->host, s->port);
	return ct_error_hint("another program answers at this address: check --master-addr and --master-port");
}

static enum ct_status read_welcome(ct_store *s, int64_t deadline_ns, const struct ct_nonces *nonces)
{
	struct ct_wire_frame f;
	struct ct_wire_reader r;
	size_t len;

	CT_TRY(read_frame(s, deadline_ns, &f));
	if (f.op != CT_WIRE_WELCOME)
		return refused(s, &f);
	len = CT_WIRE_HEADER_LEN + (size_t)f.len;
	if (!ct_wire_take_proof(&f, s->opts.token, CT_PROOF_OF_SERVER, nonces))
		return impostor(s);
	r = ct_wire_reader(&f);
	s->owner_rank = (int)ct_wire_u32(&r);
	s->owner_pid = (int)ct_wire_u32(&r);
	ct_wire_str(&r, s->owner_host, sizeof(s->owner_host));
	if (!ct_wire_done(&r))
		return not_a_store(s);
	/* Bytes that follow the handshake (a failure record) stay in the buffer. */
	consume(s, len);
	return CT_OK;
}

/* READY has no reply. If it cannot be sent, the first request fails. */
static void confirm(const ct_store *s)
{
	const struct ct_wire_frame f = {.op = CT_WIRE_READY};
	uint8_t header[CT_WIRE_HEADER_LEN];

	ct_wire_encode_header(header, &f);
	(void)!send(s->fd, header, sizeof(header), MSG_NOSIGNAL);
}

enum ct_status ct__call_handshake(ct_store *s, enum ct_wire_role role, int64_t deadline_ns)
{
	struct ct_nonces nonces;

	s->in_cap = MAX_ANSWER;
	s->in_len = 0;
	ct_free(s->in);
	CT_TRY_ALLOC(s->in = ct_calloc(s->in_cap, 1));
	CT_TRY(send_hello(s, &nonces));
	CT_TRY(read_challenge(s, deadline_ns, &nonces));
	CT_TRY(send_handshake(s, role, &nonces));
	CT_TRY(read_welcome(s, deadline_ns, &nonces));
	confirm(s);
	return ct__call_begin(s) ? CT_OK : not_a_store(s);
}
