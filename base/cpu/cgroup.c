/* A line of the groups file is "hierarchy:controllers:path". In v2 there is one hierarchy, its list of controllers is
 * empty, and the mount itself is its top. In v1 each hierarchy is mounted in a directory that has the name of its list
 * of controllers, such as "cpu,cpuacct". A system may have both, so up to two groups are returned, and the caller
 * applies the limits of both. A group whose path does not fit is skipped, since a limit that cannot be read is no
 * error. */
#include "base/cpu/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void ct_cgroup_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
}

/* The line is "hierarchy:controllers:path"; in v2, controllers is empty. Returns false if the line does not concern the
 * controller. */
static bool parse_line(char *line, const char *mount, const char *controller, struct ct_cgroup *out)
{
	char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL, *word;
	bool found = false;
	int n;

	if (!group)
		return false;
	*group++ = '\0';
	controllers++;
	out->v2 = controllers[0] == '\0';
	n = snprintf(out->mount, sizeof(out->mount), "%s%s%s", mount, out->v2 ? "" : "/", controllers);
	if (n >= (int)sizeof(out->mount) || strlen(group) >= sizeof(out->group))
		return false;
	snprintf(out->group, sizeof(out->group), "%s", strcmp(group, "/") == 0 ? "" : group);
	while (!out->v2 && !found && (word = strsep(&controllers, ",")))
		found = strcmp(word, controller) == 0;
	return out->v2 || found;
}

int ct_cgroup_find(const char *groups_file, const char *mount, const char *controller, struct ct_cgroup out[2])
{
	char text[8192], *line, *rest = text;
	int n = 0;

	ct_cgroup_read(groups_file, text, sizeof(text));
	while (n < 2 && (line = strsep(&rest, "\n")))
		n += parse_line(line, mount, controller, &out[n]);
	return n;
}
