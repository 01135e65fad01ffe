/* The store of a job from the launcher's side: node 0's launcher serves it, and on runs of several nodes every launcher
 * has a connection to it. */
#ifndef CT_TRAINER_LAUNCH_JOB_STORE_H
#define CT_TRAINER_LAUNCH_JOB_STORE_H

#include "trainer/launch/store_watch.h"
#include "trainer/plan/run_plan.h"

struct ct_job_store {
	ct_store_server *server;      /* node 0, else NULL */
	ct_store_watch_thread *watch; /* several nodes, else NULL */
	struct ct_store_opts opts;    /* run id, token, host, pid */
	char addr[300];               /* host:port for the workers; "": they meet as launch.init says */
};

/* One node: a random token and, unless the config names one, a free port on the loopback interface. Several: node 0
 * serves on the agreed port, and the secret comes from where dist/rendezvous/secret.h says; other nodes wait for it up
 * to dist.rendezvous_timeout, or a stop signal (CT_INTERRUPTED). run_dir: NULL when there is none. */
enum ct_status ct_job_store_open(const struct ct_config *cfg, const struct ct_ranks *ranks, const char *run_dir,
				 int signals, struct ct_job_store *out) CT_MUST_CHECK;
/* A rank of this node ended: the ranks of all nodes get the reason. */
void ct_job_store_report(struct ct_job_store *j, const struct ct_failure *f);
/* The run's failure record; false while there is none. *store_gone: see trainer/launch/store_watch.h. */
bool ct_job_store_failure(struct ct_job_store *j, struct ct_failure *out, bool *store_gone);
/* Serves until all ranks have left or the deadline is past. Fine on a zeroed one. */
void ct_job_store_close(struct ct_job_store *j, int64_t deadline_ns);

#endif
