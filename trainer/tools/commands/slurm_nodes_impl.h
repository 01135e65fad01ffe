/* Slurm steps with one task on each node, which starts the ranks of its node as ctrain's launcher does. */
#ifndef CT_TRAINER_TOOLS_COMMANDS_SLURM_NODES_IMPL_H
#define CT_TRAINER_TOOLS_COMMANDS_SLURM_NODES_IMPL_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/config/config.h"

/* sets: the config keys that the command line sets.
 *
 * Does nothing unless Slurm has started this process. Refuses --node-rank in a step with several nodes, and --nodes if
 * srun has started another number of nodes: a batch script expands $SLURM_NODEID on its first node, so that all tasks
 * would get node rank 0. Warns if a job of several nodes runs ctrain without srun, on one node only.
 *
 * If there is one task on each of several nodes, and the config requests several ranks on a node (launch.procs, or
 * several GPUs), this task has to start them: sets the number of nodes, the index of this node, the address of node 0
 * and the run id in the config, unless it sets the last two, and id->by to CT_LAUNCHER_NONE. */
enum ct_status ct__slurm_nodes(const struct ct_config_set *sets, size_t n_sets, struct ct_config *cfg,
			       struct ct_identity *id) CT_MUST_CHECK;

#endif
