/* How the launchers of several nodes make the same attempts of a job (launch.restarts). The launcher of node 0 decides,
 * or that of another node that has taken its place (trainer/launch/leader.h); below, "node 0" is this node. It
 * publishes the number of the attempt and the ranks of each node in the store of the attempt, from which the other
 * launchers read them before they start their ranks. A launcher that is started again by hand thereby joins the next
 * attempt, too. When the job ends, node 0 publishes its result for the launchers that have no ranks at this time. */
#ifndef CT_TRAINER_LAUNCH_REJOIN_H
#define CT_TRAINER_LAUNCH_REJOIN_H

#include "base/mem.h"
#include "dist/rendezvous/roll_call.h"

/* Where the launcher that leads the job runs the store. */
struct ct_rejoin_at {
	const char *host;
	int port;
	const struct ct_store_opts *opts; /* with the run id of the first attempt, for the launchers of other nodes */
	int signals;                      /* from ct_signals_open; a stop signal ends waits with CT_INTERRUPTED */
};

/* An attempt in which a launcher takes part. Zeroed at the start. */
struct ct_rejoin_attempt {
	int pid, number; /* process of node 0's launcher, 0: none; and the number of attempts before this one */
	char host[64];
	char addr[64];   /* of this node, as it was connected to the store; "" at first */
	int64_t seen_ns; /* when it was connected last */
	bool leads;      /* this launcher decides about the attempt; the others follow it */
	bool may_lead;   /* it has taken part in the last attempt, and this failure may be followed by another one */
	bool shared;     /* it has read or written RUN/leader for an attempt */
	int used;        /* restarts after failures so far */
	int64_t saves_before; /* ct_checkpoint_newest_save at the start of the job */
	struct ct_str line;   /* for CT_ENV_RESTART_LINE */
};

/* Node 0: publishes the attempt in its store. */
enum ct_status ct_rejoin_publish(ct_store *s, int number, const struct ct_roll *roll) CT_MUST_CHECK;
/* Node 0: publishes the current error, or success, in its running store, and waits until n_others launchers have read
 * it, for at most 6 s. Keeps the error chain. */
void ct_rejoin_publish_end(const struct ct_rejoin_at *at, int n_others);
/* Other nodes: waits for the store of an attempt other than *last in which this node has ranks, and gets the attempt
 * and the roll, which the caller owns. The deadline applies to the time without a store. *over is true if the job has
 * ended; the function then returns its result. */
enum ct_status ct_rejoin_wait(const struct ct_rejoin_at *at, int64_t timeout_ns, struct ct_rejoin_attempt *last,
			      struct ct_roll *roll, bool *over) CT_MUST_CHECK;
/* If the job has ended, *over is true, and the function returns its result. Waits for at most 100 ms. */
enum ct_status ct_rejoin_read_end(ct_store *s, bool *over) CT_MUST_CHECK;

#endif
