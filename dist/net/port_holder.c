/* Finds out which process listens on a TCP port of this host. /proc/net/tcp has the inode of the port's socket, and
 * /proc/PID/fd has the process of the inode. Without permission to inspect the process, nothing is found; that is
 * acceptable, because the result is used only in an error message. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/net/net.h"

#define TCP_LISTEN_STATE 0x0A
#define MAX_FDS 65536 /* most descriptors to examine: an error message must not take seconds */

/* A line of /proc/net/tcp is "sl local_address rem_address st tx:rx tr:tm->when retrnsmt uid timeout inode ...". */
static bool listening_inode(const char *table, int port, uint64_t *inode)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		unsigned local_port, state;
		uint64_t node;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%4x %*[0-9A-Fa-f]:%*x %2x %*s %*s %*s %*u %*u %" SCNu64,
			   &local_port, &state, &node) != 3)
			continue;
		if (state == TCP_LISTEN_STATE && local_port == (unsigned)port) {
			*inode = node;
			found = true;
		}
	}
	fclose(f);
	return found;
}

static bool has_socket(const char *pid, const char *wanted, int *budget)
{
	char path[320], target[64];
	const struct dirent *e;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	d = opendir(path);
	if (!d)
		return false;
	while (!found && (*budget)-- > 0 && (e = readdir(d)) != NULL) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%s/fd/%.20s", pid, e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n > 0) {
			target[n] = '\0';
			found = strcmp(target, wanted) == 0;
		}
	}
	closedir(d);
	return found;
}

static void command_name(const char *pid, char *buf, size_t len)
{
	char path[320];
	FILE *f;

	buf[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(buf, (int)len, f))
		buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
}

bool ct_net_port_holder(int port, char *buf, size_t len)
{
	char wanted[64], name[32];
	int budget = MAX_FDS;
	const struct dirent *e;
	bool found = false;
	uint64_t inode;
	DIR *proc;

	if (!listening_inode("/proc/net/tcp", port, &inode) && !listening_inode("/proc/net/tcp6", port, &inode))
		return false;
	snprintf(wanted, sizeof(wanted), "socket:[%" PRIu64 "]", inode);
	proc = opendir("/proc");
	if (!proc)
		return false;
	while (!found && budget > 0 && (e = readdir(proc)) != NULL) {
		if (e->d_name[strspn(e->d_name, "0123456789")] != '\0' || !has_socket(e->d_name, wanted, &budget))
			continue;
		command_name(e->d_name, name, sizeof(name));
		snprintf(buf, len, "pid %s (%s)", e->d_name, name);
		found = true;
	}
	closedir(proc);
	return found;
}
