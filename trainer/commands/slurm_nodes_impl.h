/* Slurm steps with one task on each node, which starts the ranks of its node as ctrain's launcher does. */
#ifndef CT_TRAINER_COMMANDS_SLURM_NODES_IMPL_H
#define CT_TRAINER_COMMANDS_SLURM_NODES_IMPL_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/commands/cli.h"

/* Refuses --node-rank in a step with several nodes, and --nodes if srun has started another number of nodes. A batch
 * script expands $SLURM_NODEID on its first node, so that all tasks would get node rank 0. Warns if a job of several
 * nodes runs ctrain without srun, on one node only. */
enum ct_status ct__slurm_check_nodes(const struct ct_cli *cli, const struct ct_identity *id) CT_MUST_CHECK;
/* Returns true if there is one task on each of several nodes, and the config requests several ranks on a node:
 * launch.procs, or several GPUs. */
bool ct__slurm_task_starts_ranks(const struct ct_config *cfg, const struct ct_identity *id);
/* Sets the number of nodes, the index of this node, the address of node 0 and the run id, unless the config sets the
 * last two. */
enum ct_status ct__slurm_set_nodes(struct ct_config *cfg, const struct ct_identity *id) CT_MUST_CHECK;

#endif
