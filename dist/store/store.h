/* The rendezvous store: a small key-value server to which all ranks of a run connect over TCP. Ranks use it to exchange
 * addresses and to check at start-up that they have the same configuration. The store also notifies all ranks within
 * milliseconds when a rank is lost.
 *
 * Handshake: the client and the server exchange nonces. The client sends the run id, the number of ranks, its member
 * number, its host and its pid, with a proof that it knows the secret (dist/net/proof.h), and the server answers with a
 * proof of its own. The secret itself is never sent. The server checks the client's proof first. A client that is not
 * ctrain, has a wrong token or belongs to another run is refused with a reason, and the server logs a warning with the
 * number of refused clients. Only a client with the right token learns the run's id. Limits: 256 bytes per key, 16 MiB
 * per value, 16,384 connections, 64 MiB in total. docs/DISTRIBUTED.md describes the wire format. Every call has a
 * deadline.
 *
 * Failure: when a member's connection ends without BYE, or a member reports a failure, the server creates the run's
 * failure record. Only the first failure counts. The server sends the record to all watchers immediately. When the
 * server's process ends, the clients detect that their connections have ended, and treat this as a failure of the
 * server's owner. */
#ifndef CT_DIST_STORE_STORE_H
#define CT_DIST_STORE_STORE_H

#include <stdint.h>

#include "base/process/position.h"
#include "base/status.h"
#include "dist/net/net.h"
#include "dist/net/token.h"

/* Values of ct_store_opts.member that are not ranks. It is not a failure when such a member leaves. */
#define CT_STORE_OBSERVER (-1) /* reads and waits */
#define CT_STORE_LAUNCHER (-2) /* a node's launcher: also reports failures of the ranks on its host */

typedef struct ct_store_server ct_store_server;
typedef struct ct_store ct_store;

struct ct_store_opts {
	char run_id[64];
	char token[CT_TOKEN_HEX]; /* shared secret, any string; "" for an open network or loopback */
	int member;               /* rank, or one of the above; for a server: rank, or -1 for a launcher */
	char host[64];
	int pid;
	int world;                  /* the number of ranks that this side expects; 0: not checked */
	int max_world;              /* of a server whose world is 0: the most ranks that may join; 0: unknown */
	int n_nodes;                /* the number of nodes that this side expects; 0: not checked */
	int node;                   /* of a launcher: its node rank */
	struct ct_port_range ports; /* of a server without a port */
	bool last_error_only; /* when a client cannot connect in time: its error is that of the last attempt, without
				 the time */
};

/* The failure that ended the run. */
struct ct_failure {
	int rank, pid; /* the rank that failed; -1: the launcher */
	char host[64];
	int status;            /* enum ct_status of the failed rank */
	struct ct_position at; /* where it was */
	char message[640];     /* a sentence that names the rank */
	char hint[256];
};
/* Sets this thread's error chain from the failure and returns CT_PEER_LOST. */
enum ct_status ct_failure_raise(const struct ct_failure *f);

/* What the store knows about a member. */
struct ct_member_state {
	int rank, pid;
	char host[64];
	bool connected, left;  /* left: has sent BYE */
	double beat_age_s;     /* seconds since its last heartbeat; < 0: none yet */
	struct ct_position at; /* of its last heartbeat */
};

/* Starts a server on host:port in its own thread. If port is 0, it is one of opts->ports, or the system chooses one. If
 * host is NULL, the server listens on all interfaces, IPv6 and IPv4. opts contains the run id and the secret that
 * clients must know. Fails with CT_COMM if the port is in use; the message contains the port and a remedy. */
enum ct_status ct_store_server_start(const char *host, int port, const struct ct_store_opts *opts,
				     ct_store_server **out) CT_MUST_CHECK;
int ct_store_server_port(const ct_store_server *s);
/* Waits until all members have left or are lost, or until the deadline; then stops and frees the server. */
void ct_store_server_stop(ct_store_server *s, int64_t deadline_ns);
/* For a launcher whose child process has died: records the failure if it is the first one. */
void ct_store_server_fail(ct_store_server *s, const struct ct_failure *f);
/* Gets the run's failure record, including what the rank was last seen doing. Returns false while there is none. May be
 * called from any thread. */
bool ct_store_server_failure(ct_store_server *s, struct ct_failure *out);

/* Returns true if the launcher of a node is connected; had_node also returns true if it has ended its connection with
 * BYE, so that it may connect again. node is less than the n_nodes of the server's options. May be called from any
 * thread. */
bool ct_store_server_has_node(const ct_store_server *s, int node);
bool ct_store_server_had_node(const ct_store_server *s, int node);

/* Connects to the server. Retries at intervals of 2 ms to 200 ms until the server answers or the deadline has passed.
 * If the server refuses the client because of its token, its run id, its number of ranks or nodes, or a rank or node
 * rank that is already taken, the function immediately returns CT_MISMATCH with the server's reason. If the client has
 * the right token and run id, and some ranks have not joined yet, the mismatch also becomes the run's failure record: a
 * node or a rank was started with a wrong number, and the missing ranks will never arrive. */
enum ct_status ct_store_connect(const char *host, int port, const struct ct_store_opts *opts, int64_t deadline_ns,
				ct_store **out) CT_MUST_CHECK;
/* Does the same if the server's host has several addresses or names. All of them are tried at the same time. An address
 * at which another program answers, or a server that does not know the secret, is ignored if another one succeeds. */
enum ct_status ct_store_connect_any(const char *const *hosts, int n_hosts, int port, const struct ct_store_opts *opts,
				    int64_t deadline_ns, ct_store **out) CT_MUST_CHECK;
/* Opens another connection of the same member from the same process, for example for a watchdog. The end of this
 * connection is not a failure. */
enum ct_status ct_store_connect_aux(const ct_store *first, int64_t deadline_ns, ct_store **out) CT_MUST_CHECK;
/* Sends BYE and closes the connection. No other thread may be using the connection. NULL is allowed. */
void ct_store_close(ct_store *s);
/* Closes the connection without BYE, for processes that end with a failure and for tests. */
void ct_store_drop(ct_store *s);
/* Gets the numeric address of the client's end of the connection; 64 bytes are enough. */
enum ct_status ct_store_local_addr(const ct_store *s, char *buf, size_t len) CT_MUST_CHECK;
/* Describes the connection: "node0 (10.77.0.1) port 29400, through eth0 (10.77.0.2)". */
void ct_store_describe(const ct_store *s, char *buf, size_t len);
/* Gets the rank (-1: the launcher), the pid and the host of the process that runs the server. Each pointer may be
 * NULL. */
void ct_store_owner(const ct_store *s, int *rank, int *pid, char host[64]);

/* Derives a key from the secret of the run, the run id (which differs after each restart of the job) and `purpose`,
 * with HMAC-SHA256. Without the secret, the key depends on no secret but those that `purpose` contains. */
void ct_store_derive_key(const ct_store *s, const char *purpose, char key[CT_TOKEN_HEX]);

/* The functions below are thread safe. A thread that waits does not block the calls of other threads. A function
 * without a deadline parameter returns CT_TIMEOUT if the server does not answer within 30 s. If the connection to the
 * server has ended, all functions return CT_PEER_LOST with the name of the server's owner. */
enum ct_status ct_store_set(ct_store *s, const char *key, const void *value, size_t len) CT_MUST_CHECK;
/* Returns the deadline of a call that need not succeed: ns from now, or much sooner if the server has not answered the
 * call before. */
int64_t ct_store_patience(ct_store *s, int64_t ns);
/* Returns for how many seconds the server has not answered; 0 if it answers. */
double ct_store_silent_s(ct_store *s);
/* Does the same as ct_store_set, and returns CT_TIMEOUT if the server has not answered by then. */
enum ct_status ct_store_set_by(ct_store *s, const char *key, const void *value, size_t len,
			       int64_t deadline_ns) CT_MUST_CHECK;
/* Waits until the key exists and gets its value. The caller owns *value, which has a NUL after its *len bytes. Fails
 * with CT_TIMEOUT after the deadline; the message names the key. Fails with CT_PEER_LOST if the run has failed in the
 * meantime. */
enum ct_status ct_store_get(ct_store *s, const char *key, int64_t deadline_ns, char **value, size_t *len) CT_MUST_CHECK;
enum ct_status ct_store_add(ct_store *s, const char *key, int64_t delta, int64_t *result) CT_MUST_CHECK;
enum ct_status ct_store_add_by(ct_store *s, const char *key, int64_t delta, int64_t deadline_ns,
			       int64_t *result) CT_MUST_CHECK; /* as ct_store_set_by */
enum ct_status ct_store_delete(ct_store *s, const char *key) CT_MUST_CHECK;

/* Sends a heartbeat with the current position of this member. Cheap: does not wait for a reply. */
enum ct_status ct_store_beat(ct_store *s, const struct ct_position *at) CT_MUST_CHECK;
/* Gets the states of all members that have joined so far, sorted by rank. The caller owns *out (ct_free). */
enum ct_status ct_store_members(ct_store *s, struct ct_member_state **out, int *n) CT_MUST_CHECK;
/* Does the same, with a deadline. */
enum ct_status ct_store_members_by(ct_store *s, int64_t deadline_ns, struct ct_member_state **out,
				   int *n) CT_MUST_CHECK;
/* Reports that this member has failed, or, from a launcher, that a rank on its host has failed. A failure that is only
 * a consequence of another one (status CT_PEER_LOST or CT_CANCELLED) is recorded only if no cause is reported within
 * 300 ms. Returns when the server has received the report, or after 2 s. */
enum ct_status ct_store_report(ct_store *s, const struct ct_failure *f) CT_MUST_CHECK;
/* Waits until the run has failed (CT_OK, *out is set), the deadline has passed (CT_TIMEOUT, no error chain) or the
 * watch has been cancelled (CT_CANCELLED, no error chain). The loss of the server counts as a failure of its owner.
 * Cancelling cannot be undone. */
enum ct_status ct_store_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out) CT_MUST_CHECK;
void ct_store_cancel_watch(ct_store *s);

#endif
