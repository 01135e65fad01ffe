/* Which nodes take part in an attempt of a job whose number of nodes may change (launch.nodes: MIN..MAX). Node 0 decides.
 * The nodes that take part keep their order, and the ranks are numbered through. */
#ifndef CT_TRAINER_LAUNCH_FORM_H
#define CT_TRAINER_LAUNCH_FORM_H

#include "dist/rendezvous/roll_call.h"
#include "trainer/plan/run_plan.h"

/* Selects nodes. here [all->n_nodes] are the nodes that can take part, and *all has the ranks of all nodes. Stores the
 * ranks of each node in *out, which has memory for all->n_nodes + 1 elements; nodes that do not take part have no ranks.
 * Returns the number of ranks, or 0 if there are less than launch.nodes's MIN nodes, or if no number of nodes divides
 * batch.global. If batch.global cannot be divided among all of them, the last nodes do not take part. */
int ct_form_select(const struct ct_config *cfg, const struct ct_roll *all, const bool *here, struct ct_roll *out);
/* Returns the number of nodes with ranks, and the index of a node among them. */
int ct_form_count(const struct ct_roll *r);
int ct_form_index(const struct ct_roll *r, int node);
/* Node 0: waits until all nodes, or enough nodes for launch.join_wait, are connected to the store, for at most
 * dist.rendezvous_timeout. *roll has the ranks of all nodes, and becomes that of the nodes that take part. A stop signal
 * ends the wait with CT_INTERRUPTED. */
enum ct_status ct_form_wait(const struct ct_config *cfg, const ct_store_server *server, int signals,
			    struct ct_roll *roll) CT_MUST_CHECK;
/* Node 0, while an attempt runs: returns true if more ranks could take part with the nodes that are connected now. */
bool ct_form_can_grow(const struct ct_config *cfg, const ct_store_server *server, const struct ct_roll *now);

#endif
