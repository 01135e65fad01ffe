/* Wraps posix_spawn, which on Linux shares the memory of the parent until exec, while a fork would have to copy the
 * page tables. Everything the child needs is described by attributes and file actions before it exists, so no code of
 * this program runs in it. The files are put in their places one after another. One that is in the place of another
 * would be overwritten before its turn, so a copy is used. */
#include "base/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <unistd.h>

#include "base/thread.h"

extern char **environ;

/* Stores in copies[i] a copy of from[i] if this is the place of another file, else -1. Returns an errno. */
static int copy_misplaced(const int from[3], int copies[3])
{
	for (int to = STDIN_FILENO; to <= STDERR_FILENO; to++)
		copies[to] = -1;
	for (int to = STDIN_FILENO; to <= STDERR_FILENO; to++) {
		if (from[to] < 0 || from[to] > STDERR_FILENO || from[to] == to)
			continue;
		copies[to] = fcntl(from[to], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (copies[to] < 0)
			return errno;
	}
	return 0;
}

static int set_files(posix_spawn_file_actions_t *files, const int from[3], const int copies[3])
{
	int rc = 0;

	for (int to = STDIN_FILENO; to <= STDERR_FILENO && rc == 0; to++) {
		if (from[to] >= 0)
			rc = posix_spawn_file_actions_adddup2(files, copies[to] >= 0 ? copies[to] : from[to], to);
		else
			rc = posix_spawn_file_actions_addopen(files, to, "/dev/null",
							      to == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
	}
	return rc;
}

static int set_attributes(posix_spawnattr_t *attr, const struct ct_spawn *s)
{
	int rc = posix_spawnattr_setsigmask(attr, &s->blocked);

	if (rc == 0)
		rc = posix_spawnattr_setsigdefault(attr, &s->defaults);
	if (rc == 0)
		rc = posix_spawnattr_setpgroup(attr, s->group);
	if (rc == 0)
		rc = posix_spawnattr_setflags(attr,
					      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	return rc;
}

int ct_spawn(const struct ct_spawn *s, pid_t *pid)
{
	char *const *argv = (char *const *)(uintptr_t)s->argv, *const *env = (char *const *)(uintptr_t)s->env;
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int copies[3], rc = posix_spawn_file_actions_init(&files);

	if (rc != 0)
		return rc;
	rc = posix_spawnattr_init(&attr);
	if (rc != 0)
		goto destroy_files;
	rc = copy_misplaced(s->files, copies);
	if (rc == 0)
		rc = set_files(&files, s->files, copies);
	if (rc == 0)
		rc = set_attributes(&attr, s);
	ct_cpu_unbind();
	if (rc == 0)
		rc = posix_spawnp(pid, argv[0], &files, &attr, argv, env ? env : environ);
	ct_cpu_rebind();
	for (int i = 0; i < 3; i++) {
		if (copies[i] >= 0)
			close(copies[i]);
	}
	posix_spawnattr_destroy(&attr);
destroy_files:
	posix_spawn_file_actions_destroy(&files);
	return rc;
}
