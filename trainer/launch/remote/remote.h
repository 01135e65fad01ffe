/* `ctrain launch`: starts a training run on several hosts over ssh, merges their output, and ends all of them together.
 */
#ifndef CT_TRAINER_LAUNCH_REMOTE_REMOTE_H
#define CT_TRAINER_LAUNCH_REMOTE_REMOTE_H

#include "trainer/config/config.h"
#include "trainer/launch/remote/hosts.h"

struct ct_remote_opts {
	const struct ct_hosts *hosts;
	const char *ssh;    /* the command that connects, split at spaces */
	const char *config; /* path of the configuration, relative to this directory or absolute */
	const struct ct_config *cfg;
	const struct ct_config_set *sets; /* [n_sets] */
	size_t n_sets;
	bool verbose; /* --verbose */
};

/* Starts ctrain on each host in the directory with the name of the current one, with the variables CTRAIN_*, NCCL_* and
 * GLOO_* of this process, and waits until all have ended. A host whose name is localhost or that of this host is
 * started without ssh. The lines of node 0 are copied as they are; those of other nodes begin with "[HOST] ". The first
 * SIGINT, SIGTERM, SIGHUP or SIGUSR1 is sent to all hosts, which save and end; the second ends them at once. If this
 * process is killed, they save and end, too. Returns the status of the host that failed first. */
enum ct_status ct_remote_run(const struct ct_remote_opts *o) CT_MUST_CHECK;

#endif
