/* The hosts of a job, for `ctrain launch --hosts`. */
#ifndef CT_TRAINER_LAUNCH_REMOTE_HOSTS_H
#define CT_TRAINER_LAUNCH_REMOTE_HOSTS_H

#include "base/mem.h"

struct ct_host {
	char *name; /* as ssh gets it: HOST or USER@HOST */
	int procs;  /* 0: not given */
};

struct ct_hosts {
	struct ct_host *all; /* [n] */
	size_t n, cap;
};

/* Parses "a:4,b:4" or "a,b"; brackets enclose IPv6 addresses, as in "[fe80::1]:4". The order determines the ranks.
 * Either all hosts have a number of ranks or none. Release *out even on failure, which is CT_USAGE. */
enum ct_status ct_hosts_parse(const char *text, struct ct_hosts *out) CT_MUST_CHECK;
void ct_hosts_release(struct ct_hosts *h);
/* The name without the user. */
const char *ct_host_address(const struct ct_host *h);

#endif
