/* Encoding and bounds-checked decoding of the frames of the store protocol, without sockets or state.
 *
 * The first 8 bytes that a client sends are CT_WIRE_MAGIC, and so are the first 8 bytes that a server sends. Frames
 * follow: a header of 16 bytes (u32 len, u16 op, i16 status, u64 tag) and a body of `len` bytes. All integers are
 * little endian. A string is a u32 length followed by its bytes. docs/DISTRIBUTED.md lists the bodies. */
#ifndef CT_DIST_STORE_WIRE_H
#define CT_DIST_STORE_WIRE_H

#include "base/mem.h"
#include "dist/net/proof.h"
#include "dist/store/store.h"

#define CT_WIRE_MAGIC "CTSTORE4"
#define CT_WIRE_MAGIC_LEN 8
#define CT_WIRE_HEADER_LEN 16
#define CT_STORE_MAX_KEY 256
#define CT_STORE_MAX_VALUE ((size_t)16 << 20)
#define CT_WIRE_MAX_HANDSHAKE 1024
#define CT_WIRE_MAX_BODY (CT_STORE_MAX_VALUE + 1024) /* a value and its key */

enum ct_wire_op {
	/* Client to server. The server answers each with a REPLY that has the same tag, except for HELLO, HANDSHAKE,
	 * READY and BEAT. */
	CT_WIRE_HANDSHAKE = 1,
	CT_WIRE_SET,
	CT_WIRE_GET,
	CT_WIRE_ADD,
	CT_WIRE_DELETE = 6,
	CT_WIRE_CANCEL = 8,
	CT_WIRE_BEAT,
	CT_WIRE_MEMBERS,
	CT_WIRE_REPORT,
	CT_WIRE_BYE,
	CT_WIRE_READY, /* the client has read its welcome; only after this is the end of its connection a failure */
	CT_WIRE_HELLO, /* the client's nonce; before HANDSHAKE */
	/* Server to client. */
	CT_WIRE_WELCOME = 64,
	CT_WIRE_REFUSED,
	CT_WIRE_REPLY,
	CT_WIRE_FAILED,
	CT_WIRE_CHALLENGE /* the server's nonce, in answer to HELLO */
};

struct ct_wire_frame {
	uint32_t len;
	uint16_t op;
	int16_t status;
	uint64_t tag;
	const uint8_t *body; /* [len] borrowed */
};

/* Encode and decode a header of 16 bytes. Decoding does not set f->body. */
void ct_wire_decode_header(const uint8_t *p, struct ct_wire_frame *f);
void ct_wire_encode_header(uint8_t *p, const struct ct_wire_frame *f);

/* Build a frame in b: begin, add fields, end. `extra` is the number of further bytes of the body that the caller sends
 * after b; ct_wire_end includes them in the length. */
void ct_wire_begin(struct ct_str *b, enum ct_wire_op op, enum ct_status status, uint64_t tag);
void ct_wire_end(struct ct_str *b, size_t extra);
void ct_wire_put_u8(struct ct_str *b, uint8_t v);
void ct_wire_put_u32(struct ct_str *b, uint32_t v);
void ct_wire_put_i64(struct ct_str *b, int64_t v);
void ct_wire_put_bytes(struct ct_str *b, const void *p, size_t n);
void ct_wire_put_str(struct ct_str *b, const char *s);

/* Reads the fields of a body. If a field is beyond the end, or if a string does not fit its buffer or contains a NUL,
 * the reader sets `bad`, and this and all further values are 0. */
struct ct_wire_reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};
struct ct_wire_reader ct_wire_reader(const struct ct_wire_frame *f);
uint8_t ct_wire_u8(struct ct_wire_reader *r);
uint32_t ct_wire_u32(struct ct_wire_reader *r);
int64_t ct_wire_i64(struct ct_wire_reader *r);
const uint8_t *ct_wire_bytes(struct ct_wire_reader *r, size_t *len);
void ct_wire_str(struct ct_wire_reader *r, char *buf, size_t size);
/* Returns true if all fields were valid and no bytes remain. */
bool ct_wire_done(const struct ct_wire_reader *r);

enum ct_wire_role { CT_ROLE_MEMBER, CT_ROLE_AUXILIARY, CT_ROLE_OBSERVER, CT_ROLE_LAUNCHER };
struct ct_wire_handshake {
	char run_id[64], host[64];
	enum ct_wire_role role;
	int member, pid;
	int world;   /* 0: not checked */
	int n_nodes; /* 0: not checked */
	int node;    /* of a launcher */
};
void ct_wire_put_handshake(struct ct_str *b, const struct ct_wire_handshake *h);
/* Adds the proof of everything that the body of the frame in b contains. */
void ct_wire_put_proof(struct ct_str *b, const char *secret, const char *label, const struct ct_nonces *n);
/* Checks the proof at the end of the body, and removes it from *f. */
bool ct_wire_take_proof(struct ct_wire_frame *f, const char *secret, const char *label, const struct ct_nonces *n);
bool ct_wire_get_handshake(const struct ct_wire_frame *f, struct ct_wire_handshake *h);

void ct_wire_put_position(struct ct_str *b, const struct ct_position *at);
/* Sets r->bad if the phase is not one of enum ct_rank_phase. */
struct ct_position ct_wire_read_position(struct ct_wire_reader *r);
void ct_wire_put_failure(struct ct_str *b, const struct ct_failure *x);
/* If the status in the frame does not denote a failure, it is replaced by CT_PEER_LOST. */
bool ct_wire_get_failure(const struct ct_wire_frame *f, struct ct_failure *x);
void ct_wire_put_member(struct ct_str *b, const struct ct_member_state *m);
/* Reads one member of a list in a body. */
void ct_wire_read_member(struct ct_wire_reader *r, struct ct_member_state *m);

/* Copies a string into a field of fixed size. A longer string is cut at a character boundary. */
void ct_wire_copy(char *dst, size_t size, const char *src);

#endif
