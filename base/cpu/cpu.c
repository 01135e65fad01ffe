/* The CPU part of base/thread.h. The number of CPUs is the smaller one of two limits: the affinity mask, and the quota
 * of the control groups. A quota may be set for any group on the path from the group of the process to the top, so all
 * of them are read, and the lowest one applies. Files that are missing or cannot be parsed mean that there is no
 * limit. */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu/cgroup.h"

#define MAX_CPUS 8192

/* CPUs that the group in `dir` may use; 0 means no limit. The file contains "max 100000" or "150000 100000" in v2, and
 * -1 or a quota in v1. */
static double group_quota(const char *dir, bool v2)
{
	char path[PATH_MAX], text[64], *end;
	long long quota, period;

	if (snprintf(path, sizeof(path), "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us") >= (int)sizeof(path))
		return 0;
	ct_cgroup_read(path, text, sizeof(text));
	quota = strtoll(text, &end, 10);
	if (end == text || quota <= 0)
		return 0;
	if (!v2) {
		if (snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", dir) >= (int)sizeof(path))
			return 0;
		ct_cgroup_read(path, text, sizeof(text));
		end = text;
	}
	period = strtoll(end, NULL, 10);
	return period > 0 ? (double)quota / (double)period : 0;
}

/* The lowest limit among the group and all groups above it. In a container, the path may be a path of the host that
 * does not exist here. The walk up the path then ends at the mount, which is the container's own group. */
static double tightest_quota(const char *mount, const char *group, bool v2)
{
	char dir[PATH_MAX];
	size_t base = strlen(mount);
	double least = 0;

	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
		return 0;
	for (;;) {
		double q = group_quota(dir, v2);
		char *slash = strrchr(dir + base, '/');

		if (q > 0 && (least == 0 || q < least))
			least = q;
		if (!slash)
			return least;
		*slash = '\0';
	}
}

double ct_cpu_quota(const char *groups_file, const char *mount)
{
	struct ct_cgroup groups[2];
	int n = ct_cgroup_find(groups_file, mount, "cpu", groups);
	double least = 0;

	for (int i = 0; i < n; i++) {
		double q = tightest_quota(groups[i].mount, groups[i].group, groups[i].v2);

		if (q > 0 && (least == 0 || q < least))
			least = q;
	}
	return least;
}

static bool read_mask(cpu_set_t *set, size_t bytes)
{
	memset(set, 0, bytes);
	return sched_getaffinity(0, bytes, set) == 0;
}

int ct_cpu_count(void)
{
	cpu_set_t set[MAX_CPUS / CPU_SETSIZE];
	int n = read_mask(set, sizeof(set)) ? CPU_COUNT_S(sizeof(set), set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
	double quota = ct_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");

	/* Round to nearest: more threads than the quota would be throttled, fewer would leave CPU time unused. */
	if (quota > 0 && quota + 0.5 < n)
		n = (int)(quota + 0.5);
	return n > 1 ? n : 1;
}

void ct_cpu_list(char *buf, size_t len)
{
	cpu_set_t set[MAX_CPUS / CPU_SETSIZE];
	size_t used = 0;

	CT_ASSERT(len > 0);
	buf[0] = '\0';
	if (!read_mask(set, sizeof(set)))
		return;
	for (size_t i = 0; i < MAX_CPUS; i++) {
		size_t last = i;
		char part[32];
		int n;

		if (!CPU_ISSET_S(i, sizeof(set), set))
			continue;
		while (last + 1 < MAX_CPUS && CPU_ISSET_S(last + 1, sizeof(set), set))
			last++;
		n = last == i ? snprintf(part, sizeof(part), "%s%zu", used ? "," : "", i)
			      : snprintf(part, sizeof(part), "%s%zu-%zu", used ? "," : "", i, last);
		if (used + (size_t)n >= len)
			return;
		memcpy(buf + used, part, (size_t)n + 1);
		used += (size_t)n;
		i = last;
	}
}
