/* Runs a command as one of the ranks of a config, as training does. */
#ifndef CT_TRAINER_TOOLS_COMMANDS_AS_RANK_IMPL_H
#define CT_TRAINER_TOOLS_COMMANDS_AS_RANK_IMPL_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/tools/cli/cli.h"

/* Determines which rank this process is (dist/rendezvous/rendezvous.h). --rank, --world-size and --local-rank replace
 * the environment variables of the same names, except in the workers of our own launcher. Fails with CT_USAGE if
 * another launcher has started this process, and an option requests another number of ranks or another node. In a Slurm
 * step, it may change the config (trainer/tools/commands/slurm_nodes_impl.h). */
enum ct_status ct__identity(const struct ct_cli *cli, struct ct_config *cfg, struct ct_identity *out) CT_MUST_CHECK;
/* Starts the ranks of the config, each with this command line, and waits for them if `launches` is true and no launcher
 * has started this process. Otherwise, calls fn with the identity of this process, which is one of the ranks, or with
 * NULL if no launcher has started it. */
enum ct_status ct__as_rank(const struct ct_cli *cli, struct ct_config *cfg, bool launches,
			   enum ct_status (*fn)(void *user, const struct ct_identity *id), void *user) CT_MUST_CHECK;
/* Returns true if the config has more than one rank. */
bool ct__has_ranks(const struct ct_config *cfg);

#endif
