/* The server's internals, shared by server.c (thread, listening, stopping), conn.c (input and output), requests.c (what
 * each request does) and record.c (members and the failure record). All of it runs on one thread, except for the
 * mailbox. */
#ifndef CT_DIST_STORE_SERVER_IMPL_H
#define CT_DIST_STORE_SERVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/thread.h"
#include "dist/store/table.h"
#include "dist/store/wire.h"

#define SRV_MAX_CONNS 16384
#define SRV_MAX_HANDSHAKES 256 /* limit of unauthenticated connections, in addition to two for each rank */
#define SRV_MAX_BYTES ((size_t)64 << 20)
#define SRV_MAX_WAITS 256  /* limit of pending waits of one connection */
#define SRV_MAX_UNSENT 256 /* limit of unsent replies; at the limit, the connection's requests wait */
#define SRV_HANDSHAKE_NS (5 * CT_SEC)

struct ct_srv_conn;

struct ct_srv_member {
	struct ct_member_state state; /* beat_age_s is filled in on request */
	int64_t beat_ns;              /* 0: no heartbeat yet */
	struct ct_srv_conn *conn;     /* its first connection; NULL after this connection has ended */
	bool reported;                /* it has reported its own failure, so the end of its connection is ignored */
};

/* A request that waits for a key. */
struct ct_srv_wait {
	struct ct_srv_wait *next;
	struct ct_srv_conn *conn;
	uint64_t tag, hash;
	char key[CT_STORE_MAX_KEY + 1];
};

struct ct_srv_out {
	struct ct_srv_out *next;
	struct ct_blob *blob;
};

enum ct_srv_stage { SRV_MAGIC, SRV_HEADER, SRV_BODY, SRV_SKIP };

struct ct_srv_conn {
	struct ct_srv_conn *prev, *next; /* in srv->handshakes (oldest first) or srv->ready */
	struct ct_srv_conn *next_gone;
	ct_store_server *srv;
	int fd;                    /* -1: no socket (fuzzer) */
	char peer[64], host[64];   /* peer: its address; host: the host name that it sent */
	bool ready, closing, gone; /* closing: sends the refusal and reads nothing more */
	bool challenged;           /* has been sent the server's nonce */
	struct ct_nonces nonces;   /* server: zero without a socket (fuzzer) */
	bool confirmed, bye;       /* confirmed: has read its welcome; bye: has sent BYE */
	int err;                   /* why the connection ended: errno, or 0 if the peer closed it */
	int64_t deadline;          /* of the handshake */
	enum ct_wire_role role;
	int node, pid;                /* of a launcher that knows the number of nodes; node is -1 otherwise */
	struct ct_srv_member *member; /* NULL for observers */
	int n_waits;
	enum ct_srv_stage stage;
	struct ct_wire_frame frame;
	uint8_t *in;
	size_t in_len, in_cap, want;
	struct ct_srv_out *out_first, **out_end;
	size_t n_out, out_sent; /* bytes of out_first already sent */
	bool out_broken;
	uint32_t events; /* epoll interest */
};

/* The launcher of a node. Other threads read this. */
struct ct_srv_node {
	_Atomic int n_conns;
	_Atomic bool left; /* its last connection ended with BYE */
};

struct ct_srv_list {
	struct ct_srv_conn *first, *last;
	int n;
};

struct ct_store_server {
	struct ct_store_opts opts;
	int port, listen_fd, epoll_fd, wake_fd;
	struct ct_thread thread;

	pthread_mutex_t lock; /* guards the mailbox; held to write failed and failure, which other threads read */
	bool stop, have_mail;
	int64_t stop_deadline;
	struct ct_failure mail;

	struct ct_srv_list handshakes, ready;
	int max_handshakes;
	struct ct_srv_node *nodes; /* [opts.n_nodes] */
	struct ct_srv_conn *gone;  /* ended; to be freed at the end of the round */
	bool listening;
	int64_t listen_again; /* when to listen again after running out of descriptors */
	uint64_t n_refused;
	bool quiet;
	size_t used; /* bytes of keys, values and buffers */
	struct ct_store_table table;
	struct ct_srv_wait *waits;
	struct ct_srv_member **members; /* [n_members] by rank */
	int n_members, cap_members;

	bool failed, have_pending;
	struct ct_failure failure, pending;
	int pending_weight;
	int64_t pending_due;
};

enum ct_status ct__srv_init(ct_store_server *s, const struct ct_store_opts *opts) CT_MUST_CHECK;
void ct__srv_release(ct_store_server *s);
/* Frees the connections that have been marked as lost. Freeing one connection may cause others to be lost, because the
 * failure record is then sent to them. */
void ct__srv_finish_gone(ct_store_server *s);

/* conn.c. These functions never free a connection: they mark it as lost, and ct__srv_finish_gone frees it. */
struct ct_srv_conn *ct__srv_conn_open(ct_store_server *s, int fd, const char *peer);
void ct__srv_conn_free(struct ct_srv_conn *c);
/* Counts the connection of a launcher in srv->nodes: n is 1 when it begins and -1 when it ends. */
void ct__srv_conn_count_node(const struct ct_srv_conn *c, int n);
void ct__srv_conn_read(struct ct_srv_conn *c);
void ct__srv_conn_input(struct ct_srv_conn *c, const uint8_t *p, size_t n);
void ct__srv_conn_flush(struct ct_srv_conn *c);
/* Takes over the reference to b. */
void ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b);
/* Sends the frame in b and releases b. */
void ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b);
void ct__srv_conn_lost(struct ct_srv_conn *c, int err);
void ct__srv_list_push(struct ct_srv_list *l, struct ct_srv_conn *c);
void ct__srv_list_drop(struct ct_srv_list *l, struct ct_srv_conn *c);
void ct__srv_warn_refused(struct ct_srv_conn *c, const char *fmt, ...) CT_PRINTF(2, 3);

/* handshake.c. The frames of a connection that is not ready: HELLO, then HANDSHAKE. */
void ct__srv_hello(struct ct_srv_conn *c, const struct ct_wire_frame *f);
void ct__srv_handshake(struct ct_srv_conn *c, const struct ct_wire_frame *f);
/* Shows a client that uses another version of the protocol which one this is, and ends the connection. */
void ct__srv_other_version(struct ct_srv_conn *c);

/* requests.c */
void ct__srv_request(struct ct_srv_conn *c, const struct ct_wire_frame *f);
void ct__srv_reply(struct ct_srv_conn *c, uint64_t tag, enum ct_status st, const char *fmt, ...) CT_PRINTF(4, 5);

/* waits.c */
void ct__srv_wait_add(struct ct_srv_conn *c, uint64_t tag, const char *key);
void ct__srv_wait_cancel(struct ct_srv_conn *c, uint64_t tag, uint64_t wait_tag);
void ct__srv_waits_key_set(ct_store_server *s, const char *key, struct ct_blob *value);
void ct__srv_waits_drop(struct ct_srv_conn *c);
void ct__srv_waits_fail(ct_store_server *s);

/* record.c */
/* Adds where the rank was to the message of a failure that a launcher has reported. What the launcher does not know is
 * taken from the rank's last heartbeat. */
void ct__srv_add_last_seen(ct_store_server *s, struct ct_failure *f);
/* Returns true if the rank left with BYE after a stop signal: whatever its launcher reports, this is not a failure. */
bool ct__srv_has_left(ct_store_server *s, const struct ct_failure *f);
struct ct_srv_member *ct__srv_member_find(ct_store_server *s, int rank);
/* Returns NULL if out of memory. */
struct ct_srv_member *ct__srv_member_add(ct_store_server *s, int rank);
void ct__srv_member_remove(ct_store_server *s, struct ct_srv_member *m);
void ct__srv_member_lost(ct_store_server *s, struct ct_srv_member *m, int err);
/* How much a report explains. A reported cause takes precedence over the end of a connection, and the end of a
 * connection takes precedence over a consequence. */
enum ct_srv_weight { SRV_CONSEQUENCE = 1, SRV_ENDED, SRV_CAUSE };
void ct__srv_offer_failure(ct_store_server *s, const struct ct_failure *f, enum ct_srv_weight weight);
void ct__srv_record_tick(ct_store_server *s, int64_t now);
void ct__srv_send_failure(struct ct_srv_conn *c);

#endif
