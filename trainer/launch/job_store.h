/* The launcher's side of the store of a job. The launcher of node 0 runs the store, or that of another node that has
 * taken its place (trainer/launch/leader.h); below, "node 0" is this node. In runs on several nodes, the launchers of
 * all nodes also connect to it. */
#ifndef CT_TRAINER_LAUNCH_JOB_STORE_H
#define CT_TRAINER_LAUNCH_JOB_STORE_H

#include "dist/rendezvous/roll_call.h"
#include "trainer/launch/rejoin.h"
#include "trainer/launch/store_watch.h"
#include "trainer/plan/run_plan.h"

struct ct_job_store {
	ct_store_server *server;      /* on node 0, otherwise NULL */
	ct_store_watch_thread *watch; /* in runs on several nodes, otherwise NULL */
	struct ct_roll roll;          /* which ranks belong to which node; no nodes if there is no store */
	char master[300];             /* "HOST port N", for messages */
	bool elastic;                 /* the number of nodes may change */
	bool over;                    /* the job ended before this node had ranks; there is no attempt */
	struct ct_store_opts opts;    /* run id, token, host, pid */
	char host[256];               /* where the store runs: name or address, and port */
	int port;
	char addr[300]; /* host:port for the workers; "" if they use the rendezvous of launch.init */
};

/* Opens the store of a job. With one node, it uses a random token (or the one in the environment) and, unless the
 * config sets a port, a free port on the loopback interface. With several nodes, node 0 runs the store on
 * launch.master_port (default 29400); launch.master_addr must lead to this host (dist/rendezvous/place.h).
 * dist/rendezvous/secret.h describes where the secret comes from. Other nodes wait for the secret for up to
 * dist.rendezvous_timeout. A stop signal ends the wait with CT_INTERRUPTED. run_dir is NULL if the ranks
 * do not train; the secret is in the run directory of the config nevertheless.
 *
 * attempt is NULL if there are no restarts. attempt->number is the number of attempts before this one; ranks of earlier
 * attempts are refused. With launch.restarts, the launchers of other nodes than node 0 wait for its store, and set
 * *attempt (trainer/launch/rejoin.h). If the number of nodes may change, the launcher that leads the job
 * (trainer/launch/leader.h) first waits for them (trainer/launch/form.h), and *ranks becomes that of this attempt. */
enum ct_status ct_job_store_open(const struct ct_config *cfg, struct ct_ranks *ranks, const char *run_dir, int signals,
				 struct ct_rejoin_attempt *attempt, struct ct_job_store *out) CT_MUST_CHECK;
/* For node 0, if the number of nodes may change: returns true if another attempt could have more ranks. */
bool ct_job_store_can_grow(const struct ct_job_store *j, const struct ct_config *cfg);
/* For node 0: returns the number of other nodes that are connected without ranks in this attempt; if with_ranks is
 * true, also of those with ranks whose launchers have not disappeared. */
int ct_job_store_others(const struct ct_job_store *j, bool with_ranks);
/* For launch.restarts, after the ranks of this node have ended with success: waits until those of all nodes have. Rank
 * 0 saves a checkpoint when the others have already left. Node 0 waits until all ranks have left, and the other nodes
 * wait for the result that it publishes. Returns the failure of a rank, or the result. Returns CT_OK after a stop
 * signal, and if the store is lost and no other node takes the place of node 0. */
enum ct_status ct_job_store_agree(const struct ct_config *cfg, const char *run_dir, int signals,
				  struct ct_job_store *j) CT_MUST_CHECK;
/* For node 0: reports the current error, or success, to n_others launchers that are connected. Keeps the error chain.
 */
void ct_job_store_publish_end(const struct ct_job_store *j, int signals, int n_others);
/* For node 0, after a failure: serves another store to report the current error to n_others launchers that wait for
 * attempt `number`. Keeps the error chain. */
void ct_job_store_serve_end(const struct ct_config *cfg, const struct ct_ranks *ranks, const char *run_dir, int signals,
			    int number, int n_others);
/* Gets the ranks that have joined so far. The caller owns *out (ct_free). If this node has no connection to the store,
 * returns CT_COMM; the message is the reason, or "" if there is none yet. Waits for at most half a second. */
enum ct_status ct_job_store_members(struct ct_job_store *j, struct ct_member_state **out, int *n) CT_MUST_CHECK;
/* Reports to the ranks of all nodes that this node has failed before its launcher could open the store, for the reason
 * in the error chain, which stays as it is. Node 0 serves a store for this purpose for a moment; the other nodes wait
 * for the store for up to a second. Does nothing with one node, or if no secret is found. */
void ct_job_store_report_early(const struct ct_config *cfg, const char *run_dir);
/* Reports to the ranks of all nodes how a rank of this node ended. */
void ct_job_store_report(struct ct_job_store *j, const struct ct_failure *f);
/* Returns the run's failure record, or false if there is none. For *store_gone, see trainer/launch/store_watch.h. */
bool ct_job_store_failure(struct ct_job_store *j, struct ct_failure *out, bool *store_gone);
/* Runs the store until all ranks have left or the deadline has passed, and then closes it. May be called on a zeroed
 * struct. */
void ct_job_store_close(struct ct_job_store *j, int64_t deadline_ns);

#endif
