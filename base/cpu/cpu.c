/* The CPU part of base/thread.h. The number of CPUs is the smaller one of two limits: the affinity mask, and the quota
 * of the control groups. A quota may be set for any group on the path from the group of the process to the top, so all
 * of them are read, and the lowest one applies. Files that are missing or cannot be parsed mean that there is no
 * limit.
 *
 * When a process binds itself, its mask becomes smaller, but the number of compute threads, which is derived from the
 * CPUs of all ranks on the host, must not change. Therefore, the mask before is what the other functions return. */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu/cgroup.h"

/* Written once, before there is a second thread. */
static struct {
	bool bound;
	struct ct_cpu_set before, cpus;
} process;

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

struct ct_cpu_set ct_cpu_mask(void)
{
	struct ct_cpu_set set = {0};

	if (process.bound)
		return process.before;
	if (sched_getaffinity(0, sizeof(set), set.part) != 0)
		set = (struct ct_cpu_set){0};
	return set;
}

enum ct_status ct_cpu_bind(const struct ct_cpu_set *cpus)
{
	const struct ct_cpu_set before = ct_cpu_mask();
	char list[128];

	CT_ASSERT(!process.bound);
	if (sched_setaffinity(0, sizeof(*cpus), cpus->part) != 0) {
		const int err = errno;

		ct_cpu_set_text(cpus, list, sizeof(list));
		return CT_FAIL(CT_UNSUPPORTED, "cannot bind this process to CPUs %s: %s", list, strerror(err));
	}
	process.before = before;
	process.cpus = *cpus;
	process.bound = true;
	return CT_OK;
}

void ct_cpu_unbind(void)
{
	if (process.bound)
		(void)sched_setaffinity(0, sizeof(process.before), process.before.part);
}

void ct_cpu_rebind(void)
{
	if (process.bound)
		(void)sched_setaffinity(0, sizeof(process.cpus), process.cpus.part);
}

int ct_cpu_count(void)
{
	const struct ct_cpu_set set = ct_cpu_mask();
	int n = CPU_COUNT_S(sizeof(set), set.part);
	double quota = ct_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");

	if (n == 0)
		n = (int)sysconf(_SC_NPROCESSORS_ONLN);
	/* Round to nearest: more threads than the quota would be throttled, fewer would leave CPU time unused. */
	if (quota > 0 && quota + 0.5 < n)
		n = (int)(quota + 0.5);
	return n > 1 ? n : 1;
}

void ct_cpu_set_text(const struct ct_cpu_set *set, char *buf, size_t len)
{
	size_t used = 0;

	CT_ASSERT(len > 0);
	buf[0] = '\0';
	for (int i = 0; i < CT_CPUS_MAX; i++) {
		int last = i;
		char part[32];
		int n;

		if (!ct_cpu_set_has(set, i))
			continue;
		while (last + 1 < CT_CPUS_MAX && ct_cpu_set_has(set, last + 1))
			last++;
		n = last == i ? snprintf(part, sizeof(part), "%s%d", used ? "," : "", i)
			      : snprintf(part, sizeof(part), "%s%d-%d", used ? "," : "", i, last);
		if (used + (size_t)n >= len)
			return;
		memcpy(buf + used, part, (size_t)n + 1);
		used += (size_t)n;
		i = last;
	}
}

void ct_cpu_list(char *buf, size_t len)
{
	const struct ct_cpu_set set = ct_cpu_mask();

	ct_cpu_set_text(&set, buf, len);
}
