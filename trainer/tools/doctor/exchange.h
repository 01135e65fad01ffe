/* The nodes exchange their facts through the store of the run, on the master port, with the secret of the run: what a
 * training run needs to start is tested in this way, too. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_EXCHANGE_H
#define CT_TRAINER_TOOLS_DOCTOR_EXCHANGE_H

#include "trainer/tools/doctor/collect.h"

/* Collective: every node calls this with its own facts in c->nodes[c->self]; fills in the other nodes and c->links. If
 * the nodes cannot join, sets c->join_error, and, on node 0, port_error of its facts. Waits for the other nodes for up
 * to dist.rendezvous_timeout. With more than 32 nodes, each node measures the links to the next 31 only, to save time.
 * Fails only if memory is not sufficient. */
enum ct_status ct_doctor_exchange(const struct ct_collect_opts *o, struct ct_cluster *c) CT_MUST_CHECK;

#endif
