/* Describes which nodes or ranks have joined a run that is forming. */
#ifndef CT_DIST_RENDEZVOUS_ROLL_CALL_H
#define CT_DIST_RENDEZVOUS_ROLL_CALL_H

#include "base/mem.h"
#include "dist/store/store.h"

/* The key of the store under which the launcher of node 0 publishes the number of nodes and the first rank of each
 * node. */
#define CT_ROLL_KEY "nodes"

/* The ranks of node k are first[k] to first[k + 1] - 1. */
struct ct_roll {
	int world;
	int n_nodes; /* 0: the nodes are not known, and ranks are listed */
	int *first;  /* [n_nodes + 1], owned; NULL if n_nodes is 0 */
};

void ct_roll_release(struct ct_roll *r);
/* Publishes the roll, and reads it. Reading does not wait for longer than a second; if there is no roll, the result
 * lists ranks. */
enum ct_status ct_roll_publish(const struct ct_roll *r, ct_store *s) CT_MUST_CHECK;
enum ct_status ct_roll_read(ct_store *s, int world, struct ct_roll *out) CT_MUST_CHECK;

/* Appends "joined 3/4: a(0), b(1), c(2); missing node rank 3", or, for ranks, "joined 3/4 ranks: a(0-1), b(2); missing
 * rank 3". The members [n] are sorted by rank. A node has joined when all of its ranks have: "joined 1/2: a(0); in
 * part: b(1) 1 of 2 ranks". Long lists are shortened. */
void ct_roll_call(const struct ct_roll *r, const struct ct_member_state *members, int n, struct ct_str *out);
/* Returns true if all ranks have joined. */
bool ct_roll_complete(const struct ct_roll *r, const struct ct_member_state *members, int n);

#endif
