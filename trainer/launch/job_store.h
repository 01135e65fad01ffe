/* The launcher's part of a job's store: the launcher of node 0 serves it; in runs on several nodes, the launchers of
 * the other nodes and of node 0 also connect to it. */
#ifndef CT_TRAINER_LAUNCH_JOB_STORE_H
#define CT_TRAINER_LAUNCH_JOB_STORE_H

#include "trainer/launch/store_watch.h"
#include "trainer/plan/run_plan.h"

struct ct_job_store {
	ct_store_server *server;      /* on node 0, otherwise NULL */
	ct_store_watch_thread *watch; /* in runs on several nodes, otherwise NULL */
	struct ct_store_opts opts;    /* run id, token, host, pid */
	char addr[300];               /* host:port for the workers; "": they use the rendezvous of launch.init */
};

/* One node: a random token (or the one in the environment) and, unless the config names one, a free port on the
 * loopback interface. Several nodes: node 0 serves at launch.master_port (default 29400); dist/rendezvous/secret.h
 * describes where the secret comes from. Other nodes wait for it up to dist.rendezvous_timeout, or until a stop signal
 * (CT_INTERRUPTED). run_dir: NULL if there is none. */
enum ct_status ct_job_store_open(const struct ct_config *cfg, const struct ct_ranks *ranks, const char *run_dir,
				 int signals, struct ct_job_store *out) CT_MUST_CHECK;
/* Reports to the ranks of all nodes how a rank of this node ended. */
void ct_job_store_report(struct ct_job_store *j, const struct ct_failure *f);
/* The run's failure record; false if there is none. *store_gone: see trainer/launch/store_watch.h. */
bool ct_job_store_failure(struct ct_job_store *j, struct ct_failure *out, bool *store_gone);
/* Serves until all ranks have left or the deadline has passed, then closes. May be called on a zeroed struct. */
void ct_job_store_close(struct ct_job_store *j, int64_t deadline_ns);

#endif
