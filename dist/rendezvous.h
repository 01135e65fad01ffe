/* Who am I (identity: pure, from options and environment) and how do we meet (rendezvous: a store all ranks reach).
 *
 * init URL        meaning
 *   env://          MASTER_ADDR, MASTER_PORT
 *   tcp://host:port rank 0 serves the store there
 *   file:///path    rank 0 serves on a free port and publishes address and nonce in that file (atomic rename); a stale file
 *                   is recognised by its nonce and replaced
 * When CTRAIN_STORE is set (our launcher), the launcher serves the store and outlives rank 0. */
#ifndef CT_DIST_RENDEZVOUS_H
#define CT_DIST_RENDEZVOUS_H

#include "dist/store.h"

enum ct_launcher { CT_LAUNCHER_NONE, CT_LAUNCHER_CTRAIN, CT_LAUNCHER_TORCHRUN, CT_LAUNCHER_ENV, CT_LAUNCHER_SLURM, CT_LAUNCHER_MPI };

struct ct_identity {
	enum ct_launcher by;
	int rank, world, local_rank, local_world, node, n_nodes;
	char init[256];   /* URL that follows: never empty when by != NONE */
	int restart;      /* generation: 0, 1, ... */
};

typedef const char *(*ct_getenv_fn)(const char *name, void *user);

/* Reads the environment in the order of DESIGN 3.5 (notes/dist.md 6d). by == CT_LAUNCHER_NONE: nobody started us as a worker.
 * init_override: URL from --init / config or NULL. Contradictions (RANK >= WORLD_SIZE, half-set variables, values that are no
 * numbers, LOCAL_RANK >= LOCAL_WORLD_SIZE, Slurm against RANK) are CT_USAGE naming both variables and values.
 * Near-miss names (CUDA_VISIBLE_DEVICE, MASTER_IP, WORLDSIZE ...) are warned about. */
enum ct_status ct_identity_detect(ct_getenv_fn get, void *user, const char *init_override, struct ct_identity *out) CT_MUST_CHECK;
const char *ct_launcher_name(enum ct_launcher l);

struct ct_peer {
	int rank, pid, node; /* node: index of the host, equal for ranks that can share memory */
	char host[64];
	char host_key[128];  /* boot id + pid namespace: equal = same host and same /proc */
	char addr[64];       /* numeric, routable where the others' is (loopback only when all share one host) */
};

struct ct_world {
	struct ct_identity id;
	ct_store_server *server; /* rank 0 without our launcher, else NULL */
	ct_store *store;
	struct ct_peer *peers;   /* [world] */
	int n_hosts;
};

struct ct_world_opts {
	const char *run_id;      /* from config / environment; ranks of one run agree */
	const char *token;       /* NULL: CTRAIN_TOKEN, else a fixed text derived from the run id */
	int64_t timeout_ns;      /* to get all ranks together; then who is missing is named */
};

/* World of one without a launcher: no store, no sockets. */
enum ct_status ct_world_join(const struct ct_identity *id, const struct ct_world_opts *opts, struct ct_world *out) CT_MUST_CHECK;
/* Goodbye; rank 0 serves until all have left or 10 s. Zeroed worlds are fine. failed: end without goodbye. */
void ct_world_leave(struct ct_world *w, bool failed);

/* Compares named values over all ranks (config digest, graph digest ...): items are "key=value" lines, in one order on all ranks.
 * A difference is CT_MISMATCH on every rank, naming rank, host and the first key that differs with both values. */
enum ct_status ct_world_agree(struct ct_world *w, const char *what, const char *lines, int64_t deadline_ns) CT_MUST_CHECK;

#endif
