/* The server's internals, shared by server.c (thread, listening, stop), conn.c (bytes in and out), requests.c (what
 * each request does) and record.c (members and the failure record). One thread runs all of it, except for the
 * mailbox. */
#ifndef CT_DIST_STORE_SERVER_IMPL_H
#define CT_DIST_STORE_SERVER_IMPL_H

#include <pthread.h>

#include "base/clock.h"
#include "base/thread.h"
#include "dist/store/table.h"
#include "dist/store/wire.h"

#define SRV_MAX_CONNS 4096
#define SRV_MAX_HANDSHAKES 256 /* limit of unauthenticated connections */
#define SRV_MAX_BYTES ((size_t)64 << 20)
#define SRV_MAX_WAITS 256  /* pending waits of one connection */
#define SRV_MAX_UNSENT 256 /* replies; above it the connection's requests wait */
#define SRV_HANDSHAKE_NS (5 * CT_SEC)

struct ct_srv_conn;

struct ct_srv_member {
	struct ct_member_state state; /* beat_age_s is filled in when asked for */
	int64_t beat_ns;              /* 0: none yet */
	struct ct_srv_conn *conn;     /* its first connection, NULL when ended */
	bool reported;                /* it has reported its own failure: the end of its connection adds nothing */
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
	struct ct_srv_conn *prev, *next; /* of srv->handshakes (oldest first) or srv->ready */
	struct ct_srv_conn *next_gone;
	ct_store_server *srv;
	int fd;                    /* -1: none (fuzzer) */
	char peer[64], host[64];   /* address; the host name it gave */
	bool ready, closing, gone; /* closing: answer the refusal, read no more */
	bool confirmed, bye;       /* has read its welcome; has sent BYE */
	int err;                   /* why it is gone: errno, 0 for an orderly end */
	int64_t deadline;          /* of the handshake */
	enum ct_wire_role role;
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

struct ct_srv_list {
	struct ct_srv_conn *first, *last;
	int n;
};

struct ct_store_server {
	struct ct_store_opts opts;
	int port, listen_fd, epoll_fd, wake_fd;
	struct ct_thread thread;

	pthread_mutex_t lock; /* guards the mailbox, and failed and failure against readers of other threads */
	bool stop, have_mail;
	int64_t stop_deadline;
	struct ct_failure mail;

	struct ct_srv_list handshakes, ready;
	struct ct_srv_conn *gone; /* to be finished at the end of the round */
	bool listening;
	int64_t listen_again; /* when out of descriptors */
	uint64_t n_refused;
	bool quiet;
	size_t used; /* bytes of keys, values, buffers */
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
/* Ends the connections that were marked lost. Ending one may lose others, which get the failure record. */
void ct__srv_finish_gone(ct_store_server *s);

/* conn.c. A connection that is lost is marked and finished by ct__srv_finish_gone, never freed inside a call. */
struct ct_srv_conn *ct__srv_conn_open(ct_store_server *s, int fd, const char *peer);
void ct__srv_conn_free(struct ct_srv_conn *c);
void ct__srv_conn_read(struct ct_srv_conn *c);
void ct__srv_conn_input(struct ct_srv_conn *c, const uint8_t *p, size_t n);
void ct__srv_conn_flush(struct ct_srv_conn *c);
/* Takes the reference. */
void ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b);
/* The frame built in b. */
void ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b);
void ct__srv_conn_lost(struct ct_srv_conn *c, int err);
void ct__srv_list_push(struct ct_srv_list *l, struct ct_srv_conn *c);
void ct__srv_list_drop(struct ct_srv_list *l, struct ct_srv_conn *c);
void ct__srv_stranger(struct ct_srv_conn *c, const char *fmt, ...) CT_PRINTF(2, 3);

/* handshake.c */
void ct__srv_handshake(struct ct_srv_conn *c, const struct ct_wire_frame *f);

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
/* Adds what the store knows of the rank to a launcher's record: collective and phase of its last heartbeat. */
void ct__srv_add_last_seen(ct_store_server *s, struct ct_failure *f);
/* A rank that left with BYE after a stop signal is not a failure, whatever its launcher reports. */
bool ct__srv_has_left(ct_store_server *s, const struct ct_failure *f);
struct ct_srv_member *ct__srv_member_find(ct_store_server *s, int rank);
/* NULL on out of memory. */
struct ct_srv_member *ct__srv_member_add(ct_store_server *s, int rank);
void ct__srv_member_remove(ct_store_server *s, struct ct_srv_member *m);
void ct__srv_member_lost(ct_store_server *s, struct ct_srv_member *m, int err);
/* What is known of a failure: a cause that was reported outweighs a connection that ended, which outweighs a
 * consequence. */
enum ct_srv_weight { SRV_CONSEQUENCE = 1, SRV_ENDED, SRV_CAUSE };
void ct__srv_offer_failure(ct_store_server *s, const struct ct_failure *f, enum ct_srv_weight weight);
void ct__srv_record_tick(ct_store_server *s, int64_t now);
void ct__srv_send_failure(struct ct_srv_conn *c);

#endif
