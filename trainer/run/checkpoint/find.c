/* Finds checkpoints by name, and checks which of them are valid. */
#define CT_LOG_COMPONENT "ckpt"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/safetensors.h"
#include "trainer/run/checkpoint/checkpoint.h"

#define CHUNK_BYTES ((size_t)256 << 10)
#define MAX_TRIES 100 /* number of attempts to read a checkpoint that is deleted each time while it is read */

static enum ct_status hash_file(const char *path, uint64_t bytes, char hex[65])
{
	enum ct_status st = CT_OK;
	struct ct_sha256 h;
	uint8_t *chunk;
	int fd;

	CT_TRY_ALLOC(chunk = ct_realloc(NULL, CHUNK_BYTES, 1));
	CT_TRY_GOTO(ct_file_open(path, CT_FILE_READ, &fd), st, out_chunk);
	ct_sha256_init(&h);
	for (uint64_t at = 0; at < bytes;) {
		size_t part = bytes - at < CHUNK_BYTES ? (size_t)(bytes - at) : CHUNK_BYTES;

		CT_TRY_GOTO(ct_fd_read_at(fd, chunk, part, at, path), st, out_fd);
		ct_sha256_update(&h, chunk, part);
		at += part;
	}
	ct_sha256_final_hex(&h, hex);
out_fd:
	close(fd);
out_chunk:
	ct_free(chunk);
	return st;
}

static enum ct_status verify_path(const char *path, const struct ct_ckpt_file *file)
{
	uint64_t bytes;
	char hex[65];

	CT_TRY(ct_file_size(path, &bytes));
	if (bytes != file->bytes)
		return CT_FAIL(CT_DATA, "%s has a size of %llu bytes, but according to %s it should have %llu", path,
			       (unsigned long long)bytes, CT_CKPT_STATE, (unsigned long long)file->bytes);
	CT_TRY(hash_file(path, bytes, hex));
	if (strcmp(hex, file->sha256) != 0)
		return CT_FAIL(CT_DATA, "%s is damaged: its checksum differs from the one in %s", path, CT_CKPT_STATE);
	return CT_OK;
}

enum ct_status ct_ckpt_file_verify(const char *directory, const struct ct_ckpt_state *s, int i)
{
	enum ct_status st;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(directory, ct_ckpt_file_name(i)));
	st = verify_path(path, &s->files[i]);
	ct_free(path);
	/* A missing file makes the checkpoint invalid, as any other damage does. */
	return st == CT_NOT_FOUND ? CT_FAIL(CT_DATA, "%s", ct_error_message()) : st;
}

enum ct_status ct_checkpoint_verify(const char *path)
{
	enum ct_status st = CT_OK;
	struct ct_ckpt_state s;

	st = ct_ckpt_state_read(path, &s);
	if (st < 0)
		return st == CT_NOT_FOUND ? CT_FAIL(CT_DATA, "%s", ct_error_message()) : st;
	for (int i = 0; i < CT_CKPT_N_FILES && st == CT_OK; i++)
		st = ct_ckpt_file_verify(path, &s, i);
	ct_ckpt_state_release(&s);
	return st;
}

/* *path is set if the checkpoint is valid; otherwise a warning gives the reason. */
static enum ct_status try_candidate(const char *directory, const char *name, char **path)
{
	char *candidate;

	CT_TRY_ALLOC(candidate = ct_path_join(directory, name));
	if (ct_checkpoint_verify(candidate) == CT_OK) {
		*path = candidate;
		return CT_OK;
	}
	CT_WARN("checkpoint %s is not used: %s", name, ct_error_message());
	ct_error_clear();
	ct_free(candidate);
	return CT_OK;
}

enum ct_status ct_checkpoint_find(const char *run_dir, char **path)
{
	struct ct_ckpt_entry *list = NULL;
	enum ct_status st = CT_OK;
	size_t n, n_ageless = 0;
	char *directory;

	*path = NULL;
	CT_TRY_ALLOC(directory = ct_path_join(run_dir, CT_CKPT_FOLDER));
	ct_ckpt_remove_stale(directory);
	CT_TRY_GOTO(ct_ckpt_list(directory, &list, &n), st, out);
	/* Without state.json, the age of a checkpoint is unknown. Such checkpoints come first, but one of them may have
	 * been the newest, so they are reported in warnings. */
	while (n_ageless < n && list[n_ageless].save_index == 0 && !*path)
		CT_TRY_GOTO(try_candidate(directory, list[n_ageless++].name, path), st, out);
	while (n > n_ageless && !*path)
		CT_TRY_GOTO(try_candidate(directory, list[--n].name, path), st, out);
out:
	ct_free(list);
	ct_free(directory);
	return st;
}

/* Returns the target of a link in the directory. *path is NULL if the target does not exist. */
static enum ct_status follow(const char *directory, const char *link, char **path)
{
	char target[256], now[256] = "";

	*path = NULL;
	do {
		ct_free(*path);
		*path = NULL;
		ct_ckpt_link_target(directory, link, target, sizeof(target));
		if (target[0] == '\0')
			return CT_OK;
		CT_TRY_ALLOC(*path = ct_path_join(directory, target));
		if (ct_file_exists(*path))
			return CT_OK;
		/* The target may have been deleted since the link was read, because the link now points to a newer
		 * checkpoint. */
		ct_ckpt_link_target(directory, link, now, sizeof(now));
	} while (strcmp(target, now) != 0);
	ct_free(*path);
	*path = NULL;
	return CT_OK;
}

static enum ct_status resolve_link(const char *run_dir, const char *what, char **path)
{
	enum ct_status st;
	char *directory;

	CT_TRY_ALLOC(directory = ct_path_join(run_dir, CT_CKPT_FOLDER));
	st = follow(directory, what, path);
	ct_free(directory);
	/* After a crash, `last` may point to an older checkpoint or have no target. */
	if (st == CT_OK && !*path && strcmp(what, "last") == 0)
		st = ct_checkpoint_find(run_dir, path);
	if (st == CT_OK && !*path) {
		CT_FAIL(CT_NOT_FOUND, "there is no checkpoint \"%s\" in %s", what, run_dir);
		st = ct_error_hint("train first, or give the path of a checkpoint directory");
	}
	return st;
}

static bool holds(const char *directory, const char *name)
{
	char *path = ct_path_join(directory, name);
	bool there = path && ct_file_exists(path);

	ct_free(path);
	return there;
}

static enum ct_status no_checkpoint(const char *what)
{
	static const char *const pickles[] = {".pth", ".pt", ".bin", ".pkl", ".tar", ".ckpt"};
	bool pickle = false;

	for (size_t i = 0; i < CT_ARRAY_LEN(pickles); i++)
		pickle = pickle || ct_ends_with(what, pickles[i]);
	CT_FAIL(CT_NOT_FOUND, "%s is neither a checkpoint, a run directory nor a .safetensors file", what);
	return ct_error_hint(
		"%s",
		pickle ? "ctrain does not read PyTorch's own files, because loading them can execute code; convert them once with "
			 "safetensors.torch.save_file(torch.load(\"a.pth\"), \"a.safetensors\")"
		       : "a checkpoint is a directory such as RUN/checkpoints/step-000000001234");
}

enum ct_status ct_checkpoint_resolve(const char *run_dir, const char *what, char **path)
{
	struct stat sb;

	*path = NULL;
	if (run_dir && (strcmp(what, "last") == 0 || strcmp(what, "best") == 0))
		return resolve_link(run_dir, what, path);
	if (stat(what, &sb) != 0)
		return CT_FAIL(errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot open checkpoint %s: %m", what);
	/* A run directory means its last checkpoint. */
	if (S_ISDIR(sb.st_mode) && !holds(what, CT_CKPT_STATE) && holds(what, CT_CKPT_FOLDER))
		return resolve_link(what, "last", path);
	if (S_ISDIR(sb.st_mode) ? !holds(what, CT_CKPT_STATE) && !holds(what, CT_CKPT_MODEL)
				: !ct_ends_with(what, ".safetensors"))
		return no_checkpoint(what);
	CT_TRY_ALLOC(*path = ct_strdup(what));
	return CT_OK;
}

enum ct_status ct_checkpoint_use(const char *run_dir, const char *what, ct_checkpoint_use_fn use, void *user,
				 char **path)
{
	enum ct_status st = CT_OK;

	*path = NULL;
	for (int tries = 0; tries < MAX_TRIES; tries++) {
		ct_free(*path);
		CT_TRY(ct_checkpoint_resolve(run_dir, what, path));
		st = use(*path, user);
		if (st == CT_OK || ct_file_exists(*path) || strcmp(*path, what) == 0)
			return st;
		CT_DEBUG("%s was deleted while it was being read", *path);
	}
	return st;
}

/* Removes the last component of the path and returns it. */
static const char *cut(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash)
		return "";
	*slash = '\0';
	return slash + 1;
}

char *ct_checkpoint_run(const char *path)
{
	char at[PATH_MAX];

	if (!realpath(path, at))
		return NULL;
	if (!holds(at, CT_CKPT_FOLDER)) {
		if (!holds(at, CT_CKPT_STATE))
			cut(at);
		if (!holds(at, CT_CKPT_STATE))
			return NULL;
		cut(at);
		if (strcmp(cut(at), CT_CKPT_FOLDER) != 0)
			return NULL;
	}
	return holds(at, "config.yaml") ? ct_strdup(at) : NULL;
}
