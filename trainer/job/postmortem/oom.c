/* The kernel counts the processes that it kills in a control group. The group of this process may have no such file,
 * for example if a container shows only a part of the tree, so the groups above it are tried as well. Limits apply on
 * all levels, so the lowest one counts. Values of a missing limit are recognized: "max" in version 2, and a huge number
 * in version 1. */
#include "trainer/job/postmortem/oom.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu/cgroup.h"

/* Calls fn for the file `name` of the group and of all groups above it, until fn returns true. */
static void walk_up(const struct ct_cgroup *g, const char *name, bool (*fn)(const char *text, void *user), void *user)
{
	char dir[sizeof(g->mount) + sizeof(g->group)], path[sizeof(dir) + 64], text[4096], *slash;
	const size_t top = strlen(g->mount);

	snprintf(dir, sizeof(dir), "%s%s", g->mount, g->group);
	for (;;) {
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		ct_cgroup_read(path, text, sizeof(text));
		if (text[0] && fn(text, user))
			return;
		slash = strrchr(dir + top, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* The files contain lines "NAME VALUE". */
static bool get_kills(const char *text, void *user)
{
	const char *line = strstr(text, "oom_kill ");

	if (line)
		*(int64_t *)user = strtoll(line + strlen("oom_kill "), NULL, 10);
	return line != NULL;
}

int64_t ct_oom_kills(const char *groups_file, const char *mount)
{
	struct ct_cgroup g[2];
	int n = ct_cgroup_find(groups_file, mount, "memory", g);
	int64_t kills = -1;

	/* A process is in both hierarchies, but only one of them has the memory controller. */
	for (int i = 0; i < n && kills < 0; i++)
		walk_up(&g[i], g[i].v2 ? "memory.events" : "memory.oom_control", get_kills, &kills);
	return kills;
}

static bool get_limit(const char *text, void *user)
{
	uint64_t *least = user, bytes = strtoull(text, NULL, 10);

	/* v1 writes a huge number, and v2 "max", if there is no limit. */
	if (bytes > 0 && bytes < UINT64_MAX / 4 && (*least == 0 || bytes < *least))
		*least = bytes;
	return false;
}

uint64_t ct_oom_limit(const char *groups_file, const char *mount)
{
	struct ct_cgroup g[2];
	int n = ct_cgroup_find(groups_file, mount, "memory", g);
	uint64_t least = 0;

	for (int i = 0; i < n; i++)
		walk_up(&g[i], g[i].v2 ? "memory.max" : "memory.limit_in_bytes", get_limit, &least);
	return least;
}
