/* The rendezvous store: a small key-value server over TCP that all ranks of one run connect to. It serves addresses, the
 * start-up checks, and it is how a lost rank becomes known everywhere within milliseconds.
 *
 * Handshake: protocol magic, shared token (compared in constant time, before anything else is looked at), run id,
 * number of ranks, member number, host, pid. A client that is not ctrain, has a wrong token or belongs to another run
 * is refused with a reason and counted in a warning; only a client that has the token is given the run's id. Limits: key
 * 256 bytes, value 16 MiB, 4,096 connections, 64 MiB in all. Wire format: docs/DISTRIBUTED.md. Every call has a
 * deadline.
 *
 * Failure: a member whose connection ends without BYE, or that reports a failure itself, becomes the run's failure
 * record (the first one counts); every watcher gets it at once. When the server's process dies, the clients see their
 * connection end and take that as the failure of the server's owner. */
#ifndef CT_DIST_STORE_STORE_H
#define CT_DIST_STORE_STORE_H

#include <stdint.h>

#include "base/status.h"

#define CT_TOKEN_HEX 65

/* Values of ct_store_opts.member that are not ranks. It is not a failure when one of them leaves. */
#define CT_STORE_OBSERVER (-1) /* reads and waits */
#define CT_STORE_LAUNCHER (-2) /* a node's launcher: it also reports failures of the ranks of its own host */

typedef struct ct_store_server ct_store_server;
typedef struct ct_store ct_store;

struct ct_store_opts {
	char run_id[64];
	char token[CT_TOKEN_HEX]; /* shared secret, any string; "": an open network, or loopback */
	int member;               /* rank, or one of the above; of a server: rank, or -1 for a launcher */
	char host[64];
	int pid;
	int world; /* number of ranks that this side expects; 0: not compared */
};

/* Why the run is over. */
struct ct_failure {
	int rank, pid; /* rank -1: the launcher */
	char host[64];
	int status;        /* enum ct_status of the failed rank */
	int64_t seq;       /* its last collective, -1 unknown */
	char phase[48];    /* what it was doing: "step 120", "evaluation", "saving" */
	char message[640]; /* a sentence that names the rank */
	char hint[256];
};
/* Puts the failure on this thread's error chain; returns CT_PEER_LOST. */
enum ct_status ct_failure_raise(const struct ct_failure *f);

/* What the store knows of a member. */
struct ct_member_state {
	int rank, pid;
	char host[64];
	bool connected, left; /* left: has sent BYE */
	double beat_age_s;    /* seconds since its last heartbeat, < 0: none yet */
	int64_t seq;
	char phase[48];
};

/* Fresh 256-bit token as hex, from getrandom(2). */
enum ct_status ct_token_make(char token[CT_TOKEN_HEX]) CT_MUST_CHECK;

/* Serves on host:port (port 0: any; host NULL: all interfaces, IPv6 and IPv4) in its own thread. A port in use is
 * CT_COMM naming port and the remedy. opts: run id and token that clients must send. */
enum ct_status ct_store_server_start(const char *host, int port, const struct ct_store_opts *opts,
				     ct_store_server **out) CT_MUST_CHECK;
int ct_store_server_port(const ct_store_server *s);
/* Waits until no member is connected any more (left or lost) or the deadline is past, then stops and frees. */
void ct_store_server_stop(ct_store_server *s, int64_t deadline_ns);
/* For a launcher that sees a child die: becomes the failure record if it is the first. */
void ct_store_server_fail(ct_store_server *s, const struct ct_failure *f);
/* The run's failure record, with what the rank was last seen doing; false while there is none. Any thread. */
bool ct_store_server_failure(ct_store_server *s, struct ct_failure *out);

/* Retries (2 ms to 200 ms) until the server is there or the deadline is past. Refusals (token, run id, number of
 * ranks, member taken twice) are CT_MISMATCH at once with the server's reason. If a client has the token but expects
 * another number of ranks than the server while ranks are still missing, this also becomes the run's failure record:
 * one side was started wrongly, and the missing ranks will never come. */
enum ct_status ct_store_connect(const char *host, int port, const struct ct_store_opts *opts, int64_t deadline_ns,
				ct_store **out) CT_MUST_CHECK;
/* A further connection of the same member from the same process (a watchdog's own): its end is no failure. */
enum ct_status ct_store_connect_aux(const ct_store *first, int64_t deadline_ns, ct_store **out) CT_MUST_CHECK;
/* Sends BYE and closes; no other thread may be inside a call. NULL is allowed. */
void ct_store_close(ct_store *s);
/* Closes without BYE (tests, and processes that end in failure). */
void ct_store_drop(ct_store *s);
/* Numeric address of our end of the connection as a string (64 bytes are enough). */
enum ct_status ct_store_local_addr(const ct_store *s, char *buf, size_t len) CT_MUST_CHECK;
/* Who runs the server: rank (-1: the launcher), pid, host. Any of them may be NULL. */
void ct_store_owner(const ct_store *s, int *rank, int *pid, char host[64]);

/* Thread safe: calls from several threads are serialised, waits do not block other threads' calls. Calls without a
 * deadline of their own end with CT_TIMEOUT when the server has not answered for 30 s. When the server is gone:
 * CT_PEER_LOST naming its owner. */
enum ct_status ct_store_set(ct_store *s, const char *key, const void *value, size_t len) CT_MUST_CHECK;
/* Waits for the key. Returns owned (NUL-terminated beyond len). CT_TIMEOUT names the key; CT_PEER_LOST when the
 * run failed meanwhile. */
enum ct_status ct_store_get(ct_store *s, const char *key, int64_t deadline_ns, char **value, size_t *len) CT_MUST_CHECK;
enum ct_status ct_store_add(ct_store *s, const char *key, int64_t delta, int64_t *result) CT_MUST_CHECK;
enum ct_status ct_store_delete(ct_store *s, const char *key) CT_MUST_CHECK;

/* Heartbeat with what this member is doing ("": as before). Cheap; waits for no answer. */
enum ct_status ct_store_beat(ct_store *s, int64_t seq, const char *phase) CT_MUST_CHECK;
/* States of all members seen so far, sorted by rank; returns owned (ct_free). */
enum ct_status ct_store_members(ct_store *s, struct ct_member_state **out, int *n) CT_MUST_CHECK;
enum ct_status ct_store_members_by(ct_store *s, int64_t deadline_ns, struct ct_member_state **out,
				   int *n) CT_MUST_CHECK;
/* This member failed (a launcher: a rank of its host did). A status that is a consequence (CT_PEER_LOST, CT_CANCELLED) is recorded
 * only if no cause becomes known within 300 ms. Returns when the server has it; gives up after 2 s. */
enum ct_status ct_store_report(ct_store *s, const struct ct_failure *f) CT_MUST_CHECK;
/* Blocks until the run has failed (CT_OK, *out filled), the deadline is past (CT_TIMEOUT, no error chain) or it is
 * cancelled (CT_CANCELLED, no chain). The loss of the server is a failure of its owner. Cancelling is for good. */
enum ct_status ct_store_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out) CT_MUST_CHECK;
void ct_store_cancel_watch(ct_store *s);

/* The frame parser alone, for the fuzzer: consumes bytes as a server would, never blocks. */
enum ct_status ct_store_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
