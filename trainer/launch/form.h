/* Which nodes take part in an attempt of a job whose number of nodes may change (launch.nodes: MIN..MAX). The launcher
 * that leads the job decides. Its node, cfg->launch.node_rank, takes part. The nodes that take part keep their order,
 * and the ranks are numbered through. */
#ifndef CT_TRAINER_LAUNCH_FORM_H
#define CT_TRAINER_LAUNCH_FORM_H

#include "dist/rendezvous/roll_call.h"
#include "trainer/plan/run_plan.h"

/* Selects nodes. here [all->n_nodes] are the nodes that can take part, and *all has the ranks of all nodes. Stores the
 * ranks of each node in *out, which has memory for all->n_nodes + 1 elements; nodes that do not take part have no
 * ranks. Returns the number of ranks, or 0 if there are less than launch.nodes's MIN nodes, or if no number of nodes
 * divides batch.global. If batch.global cannot be divided among all of them, the last of the others do not take part.
 */
int ct_form_select(const struct ct_config *cfg, const struct ct_roll *all, const bool *here, struct ct_roll *out);
/* Returns the number of nodes with ranks, and the index of a node among them. */
int ct_form_count(const struct ct_roll *r);
int ct_form_index(const struct ct_roll *r, int node);
/* Waits until all nodes, or enough nodes for launch.join_wait, are connected to the store, and fails with CT_TIMEOUT if
 * they are too few at the deadline; since_ns, for the message, is when the waiting began. *roll has the ranks of all
 * nodes, and becomes that of the nodes that take part. A stop signal ends the wait with CT_INTERRUPTED. */
enum ct_status ct_form_wait(const struct ct_config *cfg, const ct_store_server *server, int signals, int64_t since_ns,
			    int64_t deadline_ns, struct ct_roll *roll) CT_MUST_CHECK;
/* While an attempt runs: returns true if more ranks could take part with the nodes that are connected now. */
bool ct_form_can_grow(const struct ct_config *cfg, const ct_store_server *server, const struct ct_roll *now);

#endif
