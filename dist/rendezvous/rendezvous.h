/* Identity (which rank is this process: pure, from options and environment) and rendezvous (a store that all ranks reach).
 *
 * init URL           meaning
 *   env://           MASTER_ADDR, MASTER_PORT
 *   tcp://host:port  rank 0 serves the store there
 *   file:///path     rank 0 serves on a free port and publishes address and nonce in that file (atomic rename); a
 *                    stale file is recognised by its nonce and replaced
 *   store://host:port  our launcher serves the store there, and outlives rank 0 (from CTRAIN_STORE; not for users) */
#ifndef CT_DIST_RENDEZVOUS_RENDEZVOUS_H
#define CT_DIST_RENDEZVOUS_RENDEZVOUS_H

#include "dist/store/store.h"

enum ct_launcher {
	CT_LAUNCHER_NONE,
	CT_LAUNCHER_CTRAIN,
	CT_LAUNCHER_TORCHRUN,
	CT_LAUNCHER_ENV,
	CT_LAUNCHER_SLURM,
	CT_LAUNCHER_MPI
};

struct ct_identity {
	enum ct_launcher by;
	int rank, world;
	int local_rank, local_world, node, n_nodes; /* -1: not given by the environment; ct_world_join fills them in */
	char init[256];                             /* URL that follows: never empty when by != NONE */
	char run_id[64]; /* CTRAIN_RUN_ID, else the launcher's name for the run, "" when it has none */
	int restart;     /* generation: 0, 1, ... */
};

typedef const char *(*ct_getenv_fn)(const char *name, void *user);

/* Reads the environment; the first variable of this list that is set decides: CTRAIN_STORE, TORCHELASTIC_RUN_ID, RANK /
 * WORLD_SIZE, OMPI_COMM_WORLD_*, a Slurm step of several tasks, PMI_RANK. (mpirun inside a Slurm job starts its ranks in
 * steps of its own, so its variables come before Slurm's; a step of one task is an interactive shell.) by ==
 * CT_LAUNCHER_NONE: this process was not started as a worker. init_override: URL from --init / config or NULL.
 * Contradictions (RANK >= WORLD_SIZE, half-set variables, values that are not numbers, LOCAL_RANK >= LOCAL_WORLD_SIZE,
 * Slurm against RANK) are CT_USAGE naming both variables and values. Near-miss names (CUDA_VISIBLE_DEVICE, MASTER_IP,
 * WORLDSIZE ...) are warned about. */
enum ct_status ct_identity_detect(ct_getenv_fn get, void *user, const char *init_override,
				  struct ct_identity *out) CT_MUST_CHECK;
/* The same from this process's environment. */
enum ct_status ct_identity_from_env(const char *init_override, struct ct_identity *out) CT_MUST_CHECK;
const char *ct_launcher_name(enum ct_launcher l);

struct ct_peer {
	int rank, pid, node; /* node: index of the host, equal for ranks that can share memory */
	char host[64];
	char host_key[128]; /* boot id + pid namespace: equal = same host and same /proc */
	char addr[64];      /* numeric, routable where the others' is (loopback only when all share one host) */
};

struct ct_world {
	struct ct_identity id;
	ct_store_server *server; /* rank 0 without our launcher, else NULL */
	ct_store *store;         /* NULL in a world of one that our launcher did not start */
	struct ct_peer *peers;   /* [world] */
	int n_hosts;
	int n_agreed;          /* number of calls of ct_world_agree */
	char *rendezvous_file; /* rank 0 of file://: removed on leave */
	char nonce[CT_TOKEN_HEX];
};

struct ct_world_opts {
	const char *run_id; /* NULL: that of the identity; ranks of one run agree */
	const char *token;  /* NULL: see dist/rendezvous/secret.h; it uses run_dir and open_network */
	const char *run_dir;
	bool open_network;
	int64_t timeout_ns; /* for all ranks to meet; after it the missing ranks are reported */
};

/* World of one without our launcher: no store, no sockets. Ranks of one host meet on its loopback interface, where no secret is
 * needed; on several hosts a missing secret is CT_USAGE or, after waiting for rank 0's, CT_TIMEOUT. CT_OK: all ranks have met.
 * CT_TIMEOUT: the message has a table of the ranks that have arrived. CT_MISMATCH: the ranks belong to different runs. Fills in the
 * unknown values of the identity. */
enum ct_status ct_world_join(const struct ct_identity *id, const struct ct_world_opts *opts,
			     struct ct_world *out) CT_MUST_CHECK;
/* Leaves the run; rank 0 serves until all have left, for at most 10 s. A zeroed world is allowed. failed: ends the
 * connection without BYE. */
void ct_world_leave(struct ct_world *w, bool failed);

/* Compares named values over all ranks (config digest, graph digest ...): items are "key=value" lines, in one order
 * on all ranks. A difference is CT_MISMATCH on every rank, naming rank, host and the first key that differs with
 * both values. */
enum ct_status ct_world_agree(struct ct_world *w, const char *what, const char *lines,
			      int64_t deadline_ns) CT_MUST_CHECK;

/* This rank's collective `seq` timed out: which rank caused it? Sends this rank's position to the store, waits up to
 * 2.5 s for the others' heartbeats, and picks the rank that is gone, else one without a heartbeat (stopped or hung
 * process, silent host), else the one that is furthest behind. CT_OK: *out is filled, status CT_TIMEOUT,
 * "rank 1 (pid 4711 on host x) has not answered for 12 s; last seen at collective 1234, step 120". CT_NOT_FOUND
 * (no error chain): no rank stands out. */
enum ct_status ct_world_attribute_failure(struct ct_world *w, int64_t seq, struct ct_failure *out) CT_MUST_CHECK;

#endif
