/* A file with a secret is trusted only if no other user can have written or read it: links are not followed, and owner
 * and permissions are those of the open descriptor, so the file cannot be exchanged after the check. A new file is
 * created with its permissions under another name, and then renamed. A secret that was created is read back, because
 * some file systems do not store permissions. The first usable source counts; a source that exists but cannot be used
 * is an error, so that ranks do not silently use different secrets. */
#include "dist/rendezvous/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/mem.h"
#include "dist/net/net.h"

#define NAME "token"
#define HOME_NAME ".ctrain/token"
#define MAX_FILE 4096
#define MADE_CHARS 32 /* 128 bits, and short enough to type */

static const char *env_value(const char *name)
{
	const char *v = getenv(name);

	return v && v[0] ? v : NULL;
}

static enum ct_status take(struct ct_secret *out, const char *token, const char *from)
{
	size_t n = strlen(token);

	if (n >= sizeof(out->token)) {
		CT_FAIL(CT_USAGE, "the secret in %s has %zu characters, but at most %zu are allowed", from, n,
			sizeof(out->token) - 1);
		return ct_error_hint("make a shorter one, for example CTRAIN_TOKEN=$(openssl rand -hex 16)");
	}
	*out = (struct ct_secret){0};
	memcpy(out->token, token, n);
	snprintf(out->from, sizeof(out->from), "%s", from);
	return CT_OK;
}

enum ct_status ct_secret_from_env(struct ct_secret *out)
{
	static const char mpi_key[] = "OMPI_MCA_orte_precondition_transports";
	const char *token = env_value("CTRAIN_TOKEN"), *key = env_value(mpi_key);
	struct ct_sha256 h;
	char hex[CT_SHA256_HEX];

	*out = (struct ct_secret){0};
	if (token) {
		CT_TRY(take(out, token, "CTRAIN_TOKEN"));
		out->in_env = true;
		return CT_OK;
	}
	if (!key)
		return CT_OK;
	/* Use a digest, not the key itself, because mpirun's own transports use the key. */
	ct_sha256_init(&h);
	ct_sha256_update(&h, "ctrain\n", 7);
	ct_sha256_update(&h, key, strlen(key));
	ct_sha256_final_hex(&h, hex);
	return take(out, hex, "the key that mpirun gave to its processes");
}

static enum ct_status not_private(const char *path, const struct stat *s)
{
	if (s->st_uid != geteuid()) {
		CT_FAIL(CT_USAGE, "%s belongs to user %u, but this process runs as user %u", path, (unsigned)s->st_uid,
			(unsigned)geteuid());
		ct_error_hint("remove it, or set the secret in the environment variable CTRAIN_TOKEN");
	} else {
		CT_FAIL(CT_USAGE, "other users have access to %s (mode %04o), which contains a secret", path,
			(unsigned)(s->st_mode & 07777));
		ct_error_hint("run `chmod 600 %s`; on a file system without permissions, use CTRAIN_TOKEN instead",
			      path);
	}
	return CT_USAGE;
}

static enum ct_status read_open_file(int fd, const char *path, size_t max, char **text, size_t *len)
{
	struct stat s;
	char *buf;
	ssize_t n;

	if (fstat(fd, &s) != 0)
		return CT_FAIL(CT_IO, "cannot stat %s: %s", path, strerror(errno));
	if (!S_ISREG(s.st_mode))
		return CT_FAIL(CT_DATA, "%s is not a regular file", path);
	if (s.st_uid != geteuid() || (s.st_mode & 077) != 0)
		return not_private(path, &s);
	CT_TRY_ALLOC(buf = ct_calloc(max + 2, 1));
	*len = 0;
	while (*len <= max && (n = read(fd, buf + *len, max + 1 - *len)) != 0) {
		if (n < 0 && errno != EINTR) {
			ct_free(buf);
			return CT_FAIL(CT_IO, "cannot read %s: %s", path, strerror(errno));
		}
		*len += n > 0 ? (size_t)n : 0;
	}
	if (*len > max) {
		ct_free(buf);
		return CT_FAIL(CT_DATA, "%s has more than %zu bytes", path, max);
	}
	*text = buf;
	return CT_OK;
}

enum ct_status ct_secret_file_read(const char *path, size_t max, char **text, size_t *len)
{
	char *dir = ct_path_dir(path);
	enum ct_status st;
	int fd;

	CT_TRY_ALLOC(dir);
	/* A network file system may have cached that the file does not exist. Opening the directory makes it look
	 * again. */
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	ct_free(dir);
	do
		fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return CT_FAIL(CT_NOT_FOUND, "there is no %s", path);
	if (fd < 0 && errno == ELOOP)
		return CT_FAIL(CT_USAGE, "%s is a symbolic link, which could point to another user's file", path);
	if (fd < 0)
		return CT_FAIL(CT_USAGE, "cannot open %s: %s", path, strerror(errno));
	st = read_open_file(fd, path, max, text, len);
	close(fd);
	return st;
}

/* Also returns CT_NOT_FOUND for an empty file. */
static enum ct_status from_file(const char *path, struct ct_secret *out)
{
	enum ct_status st;
	size_t len, n;
	char *text;

	CT_TRY(ct_secret_file_read(path, MAX_FILE, &text, &len));
	n = strcspn(text, "\r\n");
	if (len == 0)
		st = CT_FAIL(CT_NOT_FOUND, "%s is empty", path);
	else if (n == 0 || strlen(text) != len || text[n + strspn(text + n, "\r\n")] != '\0')
		st = CT_FAIL(CT_USAGE, "%s must contain exactly one line, the secret", path);
	else
		st = CT_OK;
	text[n] = '\0';
	if (st == CT_OK)
		st = take(out, text, path);
	out->in_file = st == CT_OK;
	ct_free(text);
	return st;
}

static enum ct_status make_file(const char *path, struct ct_secret *out)
{
	char line[CT_TOKEN_HEX + 1];
	enum ct_status st;

	CT_TRY(ct_token_make(line));
	line[MADE_CHARS] = '\n';
	st = ct_file_replace_private(path, line, MADE_CHARS + 1);
	/* Read it back, to check whether this file system stores permissions. */
	if (st == CT_OK)
		st = from_file(path, out);
	if (st < 0) {
		ct_error_wrap("cannot store the run's secret in its run directory");
		return st == CT_NOT_FOUND ? CT_FAIL(CT_IO, "%s", ct_error_message()) : st;
	}
	out->made = true;
	return CT_OK;
}

static enum ct_status none(const char *in_run, const char *in_home)
{
	CT_FAIL(CT_NOT_FOUND,
		"a run on several hosts needs a secret; otherwise, any host on the network could join the run and end "
		"it; there is no CTRAIN_TOKEN%s%s%s%s",
		in_run ? ", no " : "", in_run ? in_run : "", in_home ? ", no " : "", in_home ? in_home : "");
	return ct_error_hint(
		"set the same CTRAIN_TOKEN on all nodes%s; or, on a private network, set dist.open_network=true",
		in_run ? " (node 0 prints one), or share the run directory" : "");
}

enum ct_status ct_secret_find(const struct ct_secret_opts *opts, struct ct_secret *out)
{
	const char *home = env_value("HOME");
	char *in_run = NULL, *in_home = NULL;
	enum ct_status st;

	CT_TRY(ct_secret_from_env(out));
	if (opts->open_network) {
		if (out->in_env)
			return CT_FAIL(CT_USAGE,
				       "dist.open_network is true, but CTRAIN_TOKEN is set: use only one of them");
		*out = (struct ct_secret){0};
		return CT_OK;
	}
	if (out->token[0])
		return CT_OK;
	if ((opts->run_dir && !(in_run = ct_path_join(opts->run_dir, NAME))) ||
	    (home && !(in_home = ct_path_join(home, HOME_NAME)))) {
		st = CT_NOMEM;
		goto out;
	}
	st = in_run ? from_file(in_run, out) : CT_NOT_FOUND;
	if (st == CT_NOT_FOUND && in_home)
		st = from_file(in_home, out);
	if (st == CT_NOT_FOUND && opts->first && in_run)
		st = make_file(in_run, out);
	else if (st == CT_NOT_FOUND)
		st = none(in_run, in_home);
out:
	ct_free(in_run);
	ct_free(in_home);
	return st;
}

enum ct_status ct_secret_missing(const char *run_dir, double waited_s, const char *host, int port)
{
	struct ct_error e;
	int fd = -1, err;

	ct_error_save(&e);
	if (!run_dir) {
		e.status = CT_USAGE;
		return ct_error_restore(&e);
	}
	if (ct_net_connect(host, port, ct_deadline_in(CT_SEC), &fd, &err) == CT_OK)
		CT_FAIL(CT_TIMEOUT, "after %.1f s: %s; %s port %d answers", waited_s, e.message, host, port);
	else
		CT_FAIL(CT_TIMEOUT, "after %.1f s: %s; node 0 does not answer either: %.300s", waited_s, e.message,
			ct_error_message());
	ct_error_hint("%s", e.hint);
	ct_net_close(&fd);
	return CT_TIMEOUT;
}
