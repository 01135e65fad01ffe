/* Identity: which rank this process is, determined from options and environment variables only. Rendezvous: how all
 * ranks connect to one store.
 *
 * init URL           meaning
 *   env://           MASTER_ADDR, MASTER_PORT
 *   tcp://host:port  rank 0 serves the store there
 *   file:///path     rank 0 serves on a free port and writes its address and a nonce to that file (atomic rename); a
 *                    file from an earlier run is recognized by its nonce and replaced
 *   store://host:port  ctrain's launcher serves the store there and outlives rank 0 (from CTRAIN_STORE; not for
 *                    users) */
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
	char init[256];                             /* the resulting init URL; never empty if by != NONE */
	char run_id[64];                            /* CTRAIN_RUN_ID, else the launcher's name for the run, else "" */
	int restart;                                /* how many times the run has been restarted */
};

typedef const char *(*ct_getenv_fn)(const char *name, void *user);

/* Determines the identity from environment variables. The first variable in this list that is set determines which
 * launcher started the process: CTRAIN_STORE, TORCHELASTIC_RUN_ID, RANK / WORLD_SIZE, OMPI_COMM_WORLD_*, a Slurm step
 * with several tasks, PMI_RANK. (mpirun inside a Slurm job starts its ranks in separate job steps, so its variables
 * come before Slurm's. A step with one task is assumed to be an interactive shell.) by == CT_LAUNCHER_NONE means that
 * the process was not started as a worker. init_override is the URL from --init or the config, or NULL. Contradictory
 * variables fail with CT_USAGE, and the message names both variables and their values: RANK >= WORLD_SIZE, LOCAL_RANK
 * >= LOCAL_WORLD_SIZE, a variable that is set without the other one of its pair, values that are not numbers, Slurm's
 * rank different from RANK, torchrun in each of several Slurm tasks on a node. In a Slurm task, WORLD_SIZE without RANK
 * is only compared with the number of tasks. Misspelled names (such as CUDA_VISIBLE_DEVICE, MASTER_IP or WORLDSIZE)
 * cause a warning. */
enum ct_status ct_identity_detect(ct_getenv_fn get, void *user, const char *init_override,
				  struct ct_identity *out) CT_MUST_CHECK;
/* Does the same with the environment of this process. */
enum ct_status ct_identity_from_env(const char *init_override, struct ct_identity *out) CT_MUST_CHECK;
const char *ct_launcher_name(enum ct_launcher l);
/* Copies host and port of tcp://HOST:PORT; the host without the brackets of an IPv6 address. Fails with CT_USAGE, and
 * for other URLs with CT_UNSUPPORTED. */
enum ct_status ct_init_url_endpoint(const char *url, char *host, size_t len, int *port) CT_MUST_CHECK;
/* Gets misspelled name i and the name that was probably meant. Returns false if i is past the end of the list. */
bool ct_identity_misspelled_at(size_t i, const char **name, const char **meant);
/* Returns the number of tasks that the Slurm step of this process has on this node, or 0 if it is not in a step. */
int ct_identity_slurm_tasks(ct_getenv_fn get, void *user);

/* Writes the run id of an attempt: `run` (shortened) and, after a restart, the number of restarts. A rank of an earlier
 * attempt is refused because of it. */
void ct_run_id_of_attempt(char out[64], const char *run, int restart);

struct ct_peer {
	int rank, pid, node; /* node: index of the host; ranks with equal indexes can share memory */
	char host[64];
	char host_key[128]; /* boot id and pid namespace; if equal, the ranks share a host and /proc */
	char addr[64];      /* numeric, reachable by all ranks; loopback only if all are on one host */
};

struct ct_world {
	struct ct_identity id;
	ct_store_server *server; /* on rank 0 if our launcher does not serve the store, else NULL */
	ct_store *store;         /* NULL in a world of one without our launcher */
	struct ct_peer *peers;   /* [world] */
	int n_hosts;
	bool watched;          /* this rank has a watchdog, and so have the others, which send heartbeats */
	int n_agreed;          /* number of calls to ct_world_agree */
	char *rendezvous_file; /* on rank 0 with file://; removed by ct_world_leave */
	char nonce[CT_TOKEN_HEX];
};

struct ct_world_opts {
	const char *run_id; /* the same on all ranks of a run; NULL: that of the identity */
	const char *token;  /* the secret; NULL: ct_secret_find looks for it */
	const char *run_dir;
	bool open_network;
	struct ct_port_range ports; /* for the store of a file:// rendezvous */
	int64_t timeout_ns;         /* how long to wait for all ranks; after this the missing ranks are reported */
};

/* Joins the run: returns CT_OK when all ranks have joined, and fills in the unknown values of the identity. A world of
 * one without our launcher uses no store and no sockets. If all ranks are on one host, they use its loopback interface,
 * and no secret is needed. On several hosts, a missing secret causes CT_USAGE, or CT_TIMEOUT after waiting for the
 * secret that rank 0 creates. If not all ranks join in time, the result is CT_TIMEOUT, and the message contains a table
 * of the ranks that have arrived. If the ranks belong to different runs, the result is CT_MISMATCH. */
enum ct_status ct_world_join(const struct ct_identity *id, const struct ct_world_opts *opts,
			     struct ct_world *out) CT_MUST_CHECK;
/* Leaves the run. Rank 0 continues to serve the store until all ranks have left, for at most 10 s. If `failed` is true,
 * the connection is closed without BYE. A zeroed world is allowed. */
void ct_world_leave(struct ct_world *w, bool failed);

/* Makes a world of the ranks q with which[q] == value, for a communicator of these ranks only. This rank must be one of
 * them. Messages contain the ranks in the complete world, which the part borrows. Free out->peers with ct_free; a part
 * is not left. */
enum ct_status ct_world_part(const struct ct_world *w, const int *which, int value, struct ct_world *out) CT_MUST_CHECK;

/* Checks that named values (config digest, graph digest ...) are the same on all ranks. `lines` contains "key=value"
 * lines, in the same order on all ranks. If a value differs, the result is CT_MISMATCH on every rank; the message names
 * the rank, its host, the first key that differs, and both values. */
enum ct_status ct_world_agree(struct ct_world *w, const char *what, const char *lines,
			      int64_t deadline_ns) CT_MUST_CHECK;

/* The collective for which a rank waits. */
struct ct_waiting {
	int64_t seq; /* its number, counted from 1; -1: unknown, for example because the rank waits for a message */
	/* Writes what collective seq is, for example "bucket 2 of step 118 (allreduce sum f32[1024])", or "" if it is
	 * not known. May be NULL. */
	void (*name)(void *user, int64_t seq, char *buf, size_t len);
	void *user;
};

/* Finds the rank that caused a timeout of this rank. Sends this rank's position to the store, waits up to 2.5 s for the
 * heartbeats of the others, and chooses a rank that has left or lost its connection, else one without a heartbeat (a
 * stopped or hung process, an unreachable host), else the one that has posted the fewest collectives. Returns CT_OK if
 * *out is set, with status CT_TIMEOUT and a message such as "rank 3 (pid 4711 on host x) is alive but has never posted
 * bucket 2 of step 118 (allreduce sum f32[1024]); ranks waiting in it: 0, 1, 2; last seen at collective 1234, training,
 * step 118". Returns CT_NOT_FOUND (no error chain) if no such rank was found. */
enum ct_status ct_world_attribute_failure(struct ct_world *w, const struct ct_waiting *at,
					  struct ct_failure *out) CT_MUST_CHECK;

#endif
