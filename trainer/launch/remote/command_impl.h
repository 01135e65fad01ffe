/* What is run on each host. */
#ifndef CT_TRAINER_LAUNCH_REMOTE_COMMAND_IMPL_H
#define CT_TRAINER_LAUNCH_REMOTE_COMMAND_IMPL_H

#include "trainer/launch/remote/remote.h"

struct ct__command {
	char **argv; /* [n], and NULL; the strings are owned */
	size_t n, cap;
};

/* Makes the command that starts node k: ssh HOST COMMAND, or sh -c COMMAND for this host. Release *out even on failure.
 */
enum ct_status ct__command_make(const struct ct_remote_opts *o, int k, struct ct__command *out) CT_MUST_CHECK;
void ct__command_release(struct ct__command *c);
/* Whether the host is this one. */
bool ct__host_is_here(const struct ct_host *h);
/* Appends the variables for all nodes, as trainer/launch/remote/control.h describes, with the secret of the run. Fails
 * with CT_USAGE if they are larger than the pipe to a host. */
enum ct_status ct__command_variables(struct ct_str *out) CT_MUST_CHECK;

#endif
