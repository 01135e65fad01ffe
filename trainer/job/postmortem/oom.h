/* Detects processes that the kernel has killed because memory ran out, from the counters of the control group. */
#ifndef CT_TRAINER_JOB_POSTMORTEM_OOM_H
#define CT_TRAINER_JOB_POSTMORTEM_OOM_H

#include <stddef.h>
#include <stdint.h>

/* Returns how many processes of this process's control group (v1 or v2) the kernel has killed so far because memory ran
 * out, or -1 if this is not known. The arguments are those of ct_cgroup_find. */
int64_t ct_oom_kills(const char *groups_file, const char *mount);
/* Returns the lowest memory limit, in bytes, of the group and the groups above it; 0: none. */
uint64_t ct_oom_limit(const char *groups_file, const char *mount);

#endif
