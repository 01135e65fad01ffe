/* Which node leads a job whose number of nodes may change: it runs the store, selects the nodes of each attempt and
 * decides about restarts. This is node 0 at first. If its launcher is lost, another one takes its place.
 *
 * RUN/leader names the leader of the newest attempt. Only a process that holds RUN/lock may replace it. The leader
 * holds RUN/lock while it waits for nodes, and rank 0 while it runs. So another launcher can become the leader only if
 * neither is alive, or while a leader has too few nodes to start, and only one launcher can. The nodes must share the
 * run directory; otherwise node 0 remains the leader. */
#ifndef CT_TRAINER_LAUNCH_LEADER_H
#define CT_TRAINER_LAUNCH_LEADER_H

#include "trainer/config/config.h"
#include "trainer/job/run_dir.h"
#include "trainer/launch/rejoin.h"

/* The contents of RUN/leader. Each attempt has another number, so the number identifies the leader. */
struct ct_leader {
	int number;               /* of the attempt; -1: there is no leader */
	int pid, port;            /* of the launcher, and of its store */
	int used;                 /* restarts after failures so far */
	int64_t saves_before;     /* ct_checkpoint_newest_save at the start of the job */
	char host[64], addr[256]; /* name of the host, and the address of the store */
};

/* Reads RUN/leader. If it does not exist, out->number is -1. Appends the attempt's line (struct ct_rejoin_attempt) to
 * *line, which may be NULL. */
enum ct_status ct_leader_read(const char *run_dir, struct ct_leader *out, struct ct_str *line) CT_MUST_CHECK;
/* Locks the run directory if RUN/leader still names attempt `number`. Otherwise, or if another process holds the lock
 * for 2 s, *lock is NULL; the latter is an error if number is -1. */
enum ct_status ct_leader_lock(const char *run_dir, int number, ct_run_lock **lock) CT_MUST_CHECK;
/* Does the same, and makes this process the leader of the next attempt. The caller sets the members of *me except
 * number. */
enum ct_status ct_leader_become(const char *run_dir, int number, struct ct_leader *me, const char *line,
				ct_run_lock **lock) CT_MUST_CHECK;
/* Removes RUN/leader at the end of the job, if it still names attempt `number`. Keeps the error chain. */
void ct_leader_resign(const char *run_dir, int number);

/* Waits until this launcher leads the next attempt, and sets *lock, or takes part in one that another launcher leads,
 * as ct_rejoin_wait does. at->host and at->port become those of this store; the caller sets the other members, and
 * at->port to the port of the job. at->host is borrowed from *leader. Sets the members of *attempt. */
enum ct_status ct_leader_elect(const struct ct_config *cfg, const char *run_dir, struct ct_rejoin_at *at,
			       struct ct_rejoin_attempt *attempt, struct ct_roll *roll, bool *over,
			       struct ct_leader *leader, ct_run_lock **lock) CT_MUST_CHECK;

#endif
