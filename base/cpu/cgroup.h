/* Finds the control groups of a process. */
#ifndef CT_BASE_CPU_CGROUP_H
#define CT_BASE_CPU_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* The group of one hierarchy: its directory is mount + group, of which `mount` is the top. */
struct ct_cgroup {
	char mount[512], group[4096]; /* group: "" at the top, else "/a/b" */
	bool v2;
};

/* Returns in out the groups, at most 2, whose limits for the controller ("cpu", "memory") may apply: that of v2, and
 * that of v1. Returns how many there are. groups_file lists the groups in the format of /proc/self/cgroup; the control
 * group file system is mounted at `mount`. In a container, a group may be a path of the host that does not exist here.
 */
int ct_cgroup_find(const char *groups_file, const char *mount, const char *controller, struct ct_cgroup out[2]);
/* Reads a small file into buf, or "" if it cannot be read. */
void ct_cgroup_read(const char *path, char *buf, size_t size);

#endif
