/* Integers are encoded byte by byte, so the bytes do not depend on the machine. A reader never fails at once: after the
 * first error it returns zeros, and ct_wire_done shows at the end whether everything was valid. So decoding needs no
 * checks between fields, but values that are used as an index or an enum must be checked afterwards. The length of a
 * frame is written last, by ct_wire_end, because fields and a proof are appended before. A proof covers the body in
 * front of it and not the header. */
#include "dist/store/wire.h"

#include <string.h>

static void le_put(uint8_t *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t le_get(const uint8_t *p, int n)
{
	uint64_t v = 0;

	for (int i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

void ct_wire_decode_header(const uint8_t *p, struct ct_wire_frame *f)
{
	f->len = (uint32_t)le_get(p, 4);
	f->op = (uint16_t)le_get(p + 4, 2);
	f->status = (int16_t)(uint16_t)le_get(p + 6, 2);
	f->tag = le_get(p + 8, 8);
}

void ct_wire_encode_header(uint8_t *p, const struct ct_wire_frame *f)
{
	le_put(p, f->len, 4);
	le_put(p + 4, f->op, 2);
	le_put(p + 6, (uint16_t)f->status, 2);
	le_put(p + 8, f->tag, 8);
}

void ct_wire_begin(struct ct_str *b, enum ct_wire_op op, enum ct_status status, uint64_t tag)
{
	const struct ct_wire_frame f = {.op = (uint16_t)op, .status = (int16_t)status, .tag = tag};
	uint8_t header[CT_WIRE_HEADER_LEN];

	ct_str_clear(b);
	ct_wire_encode_header(header, &f);
	ct_str_add_bytes(b, header, sizeof(header));
}

void ct_wire_end(struct ct_str *b, size_t extra)
{
	if (!b->failed)
		le_put((uint8_t *)b->s, b->len - CT_WIRE_HEADER_LEN + extra, 4);
}

void ct_wire_put_u8(struct ct_str *b, uint8_t v)
{
	ct_str_add_bytes(b, &v, 1);
}

void ct_wire_put_u32(struct ct_str *b, uint32_t v)
{
	uint8_t p[4];

	le_put(p, v, 4);
	ct_str_add_bytes(b, p, 4);
}

void ct_wire_put_i64(struct ct_str *b, int64_t v)
{
	uint8_t p[8];

	le_put(p, (uint64_t)v, 8);
	ct_str_add_bytes(b, p, 8);
}

void ct_wire_put_bytes(struct ct_str *b, const void *p, size_t n)
{
	ct_wire_put_u32(b, (uint32_t)n);
	ct_str_add_bytes(b, p, n);
}

void ct_wire_put_str(struct ct_str *b, const char *s)
{
	ct_wire_put_bytes(b, s, strlen(s));
}

struct ct_wire_reader ct_wire_reader(const struct ct_wire_frame *f)
{
	return (struct ct_wire_reader){.p = f->body, .left = f->len};
}

static const uint8_t *take(struct ct_wire_reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	if (n > 0)
		r->p += n;
	r->left -= n;
	return p;
}

uint8_t ct_wire_u8(struct ct_wire_reader *r)
{
	const uint8_t *p = take(r, 1);

	return p ? p[0] : 0;
}

uint32_t ct_wire_u32(struct ct_wire_reader *r)
{
	const uint8_t *p = take(r, 4);

	return p ? (uint32_t)le_get(p, 4) : 0;
}

int64_t ct_wire_i64(struct ct_wire_reader *r)
{
	const uint8_t *p = take(r, 8);

	return p ? (int64_t)le_get(p, 8) : 0;
}

const uint8_t *ct_wire_bytes(struct ct_wire_reader *r, size_t *len)
{
	size_t n = ct_wire_u32(r);
	const uint8_t *p = take(r, n);

	*len = r->bad ? 0 : n;
	return p;
}

void ct_wire_str(struct ct_wire_reader *r, char *buf, size_t size)
{
	size_t n;
	const uint8_t *p = ct_wire_bytes(r, &n);

	if (n >= size || (n > 0 && memchr(p, 0, n)))
		r->bad = true;
	if (r->bad)
		n = 0;
	if (n > 0)
		memcpy(buf, p, n);
	buf[n] = '\0';
}

bool ct_wire_done(const struct ct_wire_reader *r)
{
	return !r->bad && r->left == 0;
}

void ct_wire_put_handshake(struct ct_str *b, const struct ct_wire_handshake *h)
{
	ct_wire_put_str(b, h->run_id);
	ct_wire_put_u8(b, (uint8_t)h->role);
	ct_wire_put_u32(b, (uint32_t)h->member);
	ct_wire_put_u32(b, (uint32_t)h->pid);
	ct_wire_put_str(b, h->host);
	ct_wire_put_u32(b, (uint32_t)h->world);
	ct_wire_put_u32(b, (uint32_t)h->n_nodes);
	ct_wire_put_u32(b, (uint32_t)h->node);
}

void ct_wire_put_proof(struct ct_str *b, const char *secret, const char *label, const struct ct_nonces *n)
{
	uint8_t proof[CT_PROOF_BYTES];

	if (b->failed)
		return;
	ct_proof_make(secret, label, n, b->s + CT_WIRE_HEADER_LEN, b->len - CT_WIRE_HEADER_LEN, proof);
	ct_str_add_bytes(b, proof, sizeof(proof));
}

bool ct_wire_take_proof(struct ct_wire_frame *f, const char *secret, const char *label, const struct ct_nonces *n)
{
	if (!ct_proof_check(secret, label, n, f->body, f->len))
		return false;
	f->len -= CT_PROOF_BYTES;
	return true;
}

bool ct_wire_get_handshake(const struct ct_wire_frame *f, struct ct_wire_handshake *h)
{
	struct ct_wire_reader r = ct_wire_reader(f);
	uint8_t role;

	*h = (struct ct_wire_handshake){0};
	ct_wire_str(&r, h->run_id, sizeof(h->run_id));
	role = ct_wire_u8(&r);
	h->member = (int)ct_wire_u32(&r);
	h->pid = (int)ct_wire_u32(&r);
	ct_wire_str(&r, h->host, sizeof(h->host));
	h->world = (int)ct_wire_u32(&r);
	h->n_nodes = (int)ct_wire_u32(&r);
	h->node = (int)ct_wire_u32(&r);
	h->role = (enum ct_wire_role)role;
	return ct_wire_done(&r) && role <= CT_ROLE_LAUNCHER && h->world >= 0 && h->n_nodes >= 0 && h->node >= 0 &&
	       (h->member >= 0) == (role == CT_ROLE_MEMBER || role == CT_ROLE_AUXILIARY);
}

void ct_wire_put_position(struct ct_str *b, const struct ct_position *at)
{
	ct_wire_put_u8(b, (uint8_t)at->phase);
	ct_wire_put_i64(b, at->step);
	ct_wire_put_i64(b, at->collective);
}

struct ct_position ct_wire_read_position(struct ct_wire_reader *r)
{
	const uint8_t phase = ct_wire_u8(r);
	const int64_t step = ct_wire_i64(r), collective = ct_wire_i64(r);

	if (phase >= CT_RANK_N_PHASES)
		r->bad = true;
	if (r->bad)
		return CT_POSITION_UNKNOWN;
	return (struct ct_position){.phase = (enum ct_rank_phase)phase, .step = step, .collective = collective};
}

void ct_wire_put_failure(struct ct_str *b, const struct ct_failure *x)
{
	ct_wire_put_u32(b, (uint32_t)x->rank);
	ct_wire_put_u32(b, (uint32_t)x->pid);
	ct_wire_put_str(b, x->host);
	ct_wire_put_u32(b, (uint32_t)x->status);
	ct_wire_put_position(b, &x->at);
	ct_wire_put_str(b, x->message);
	ct_wire_put_str(b, x->hint);
}

bool ct_wire_get_failure(const struct ct_wire_frame *f, struct ct_failure *x)
{
	struct ct_wire_reader r = ct_wire_reader(f);

	*x = (struct ct_failure){0};
	x->rank = (int)ct_wire_u32(&r);
	x->pid = (int)ct_wire_u32(&r);
	ct_wire_str(&r, x->host, sizeof(x->host));
	x->status = (int)ct_wire_u32(&r);
	if (!ct_status_is_failure(x->status))
		x->status = CT_PEER_LOST;
	x->at = ct_wire_read_position(&r);
	ct_wire_str(&r, x->message, sizeof(x->message));
	ct_wire_str(&r, x->hint, sizeof(x->hint));
	return ct_wire_done(&r);
}

void ct_wire_put_member(struct ct_str *b, const struct ct_member_state *m)
{
	ct_wire_put_u32(b, (uint32_t)m->rank);
	ct_wire_put_u32(b, (uint32_t)m->pid);
	ct_wire_put_str(b, m->host);
	ct_wire_put_u8(b, (uint8_t)((m->connected ? 1 : 0) | (m->left ? 2 : 0)));
	ct_wire_put_i64(b, m->beat_age_s < 0 ? -1 : (int64_t)(m->beat_age_s * 1e6));
	ct_wire_put_position(b, &m->at);
}

void ct_wire_read_member(struct ct_wire_reader *r, struct ct_member_state *m)
{
	uint8_t flags;
	int64_t age_us;

	*m = (struct ct_member_state){0};
	m->rank = (int)ct_wire_u32(r);
	m->pid = (int)ct_wire_u32(r);
	ct_wire_str(r, m->host, sizeof(m->host));
	flags = ct_wire_u8(r);
	m->connected = flags & 1;
	m->left = flags & 2;
	age_us = ct_wire_i64(r);
	m->beat_age_s = age_us < 0 ? -1 : (double)age_us / 1e6;
	m->at = ct_wire_read_position(r);
}

void ct_wire_copy(char *dst, size_t size, const char *src)
{
	size_t n = strnlen(src, size - 1);

	/* If the cut is inside a UTF-8 character, remove the complete character. */
	if (src[n] != '\0') {
		while (n > 0 && ((unsigned char)src[n] & 0xC0) == 0x80)
			n--;
	}
	memmove(dst, src, n);
	dst[n] = '\0';
}
