/* The CPU part of base/thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CPUS 8192

/* Reads a small file into buf; "" if it cannot be read. */
static void read_small(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
}

/* CPUs that the group in `dir` may use; 0 means no limit. The file contains "max 100000" or "150000 100000" in v2, and
 * -1 or a quota in v1. */
static double group_quota(const char *dir, bool v2)
{
	char path[PATH_MAX], text[64], *end;
	long long quota, period;

	if (snprintf(path, sizeof(path), "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us") >= (int)sizeof(path))
		return 0;
	read_small(path, text, sizeof(text));
	quota = strtoll(text, &end, 10);
	if (end == text || quota <= 0)
		return 0;
	if (!v2) {
		if (snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", dir) >= (int)sizeof(path))
			return 0;
		read_small(path, text, sizeof(text));
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
	char text[8192], dir[PATH_MAX], *line, *rest = text;
	double least = 0;

	read_small(groups_file, text, sizeof(text));
	while ((line = strsep(&rest, "\n"))) {
		/* The line is "hierarchy:controllers:path"; in v2, controllers is empty. */
		char *controllers = strchr(line, ':'), *group, *word;
		bool v2, has_cpu = false;
		double q;

		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		controllers++;
		v2 = controllers[0] == '\0';
		if (!v2 && snprintf(dir, sizeof(dir), "%s/%s", mount, controllers) >= (int)sizeof(dir))
			continue;
		while (!has_cpu && (word = strsep(&controllers, ",")))
			has_cpu = strcmp(word, "cpu") == 0;
		if (!v2 && !has_cpu)
			continue;
		q = tightest_quota(v2 ? mount : dir, strcmp(group, "/") == 0 ? "" : group, v2);
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
