/* The file is the title, the key, a line "CONFIGURATION<tab>NAME" for each entry, and the checksum. It is replaced as
 * one, so reading needs no lock and never sees a part of it. A process that writes locks another file meanwhile,
 * because a lock on the cache would belong to the file that was replaced. Claims are locks on bytes of a third file: a
 * byte for each name, by its hash. If two names have the same byte, one process may claim both, which costs only time.
 * The cache saves time and makes runs repeatable, but no run may fail because of it: each problem with the file is one
 * warning, and then the plans are chosen again. */
#include "nn/plan_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/mem.h"
#include "base/rng.h"

#define CT_LOG_COMPONENT "nn"
#include "base/log.h"

#define TITLE "ctrain plans 1"
#define SUM "sha256 "
enum { MAX_FILE = 16 << 20, SUM_LINE = (int)sizeof(SUM) - 1 + 64 + 1 };
static const int64_t max_wait_ns = (int64_t)10 * 1000000000; /* other processes only write a small file */

struct entry {
	char *name, *config;
	bool own; /* put by this process */
};

struct ct_plan_cache {
	char *key, *dir, *path; /* dir and path: NULL if there is no directory */
	struct entry *entries;
	size_t n, cap;
	int claims;              /* file descriptor, or -1 */
	bool unwritable, warned; /* warnings that have been logged; warned: about the contents */
};

static char *cache_dir(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (cache && cache[0] == '/')
		return ct_path_join(cache, "ctrain/plans");
	return home && home[0] == '/' ? ct_path_join(home, ".cache/ctrain/plans") : NULL;
}

/* The key with only those characters that are harmless in a file name. */
static char *file_name(const char *key)
{
	char *name = ct_strfmt("%s.txt", key);

	for (char *c = name; c && *c; c++) {
		const bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');

		if (!plain && *c != '.' && *c != '_')
			*c = '-';
	}
	return name;
}

static enum ct_status set_paths(ct_plan_cache *c, const char *key)
{
	char *name;

	CT_TRY_ALLOC(c->key = ct_strdup(key));
	c->dir = cache_dir();
	if (!c->dir)
		return CT_OK;
	CT_TRY_ALLOC(name = file_name(key));
	c->path = ct_path_join(c->dir, name);
	ct_free(name);
	CT_TRY_ALLOC(c->path);
	return CT_OK;
}

enum ct_status ct_plan_cache_create(const char *key, ct_plan_cache **out)
{
	ct_plan_cache *c;

	CT_TRY_ALLOC(c = CT_NEW(ct_plan_cache));
	c->claims = -1;
	const enum ct_status st = set_paths(c, key);
	if (st < 0) {
		ct_plan_cache_destroy(c);
		return st;
	}
	*out = c;
	return CT_OK;
}

static void clear(ct_plan_cache *c, bool also_own)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		if (c->entries[i].own && !also_own) {
			c->entries[n++] = c->entries[i];
			continue;
		}
		ct_free(c->entries[i].name);
		ct_free(c->entries[i].config);
	}
	c->n = n;
}

void ct_plan_cache_destroy(ct_plan_cache *c)
{
	if (!c)
		return;
	ct_plan_cache_end_claims(c);
	clear(c, true);
	ct_free(c->entries);
	ct_free(c->path);
	ct_free(c->dir);
	ct_free(c->key);
	ct_free(c);
}

const char *ct_plan_cache_path(const ct_plan_cache *c)
{
	return c->path ? c->path : "";
}

static struct entry *find(const ct_plan_cache *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++) {
		if (!strcmp(c->entries[i].name, name))
			return &c->entries[i];
	}
	return NULL;
}

const char *ct_plan_cache_find(const ct_plan_cache *c, const char *name)
{
	const struct entry *e = find(c, name);

	return e ? e->config : NULL;
}

static enum ct_status put(ct_plan_cache *c, const char *name, const char *config, bool own)
{
	struct entry *e = find(c, name), new = {0};
	char *copy;

	if (e && e->own && !own)
		return CT_OK;
	CT_TRY_ALLOC(copy = ct_strdup(config));
	if (e) {
		ct_free(e->config);
		e->config = copy;
		e->own = own;
		return CT_OK;
	}
	new = (struct entry){ct_strdup(name), copy, own};
	struct entry *grown = new.name ? ct_array_grow(c->entries, c->n, &c->cap, sizeof(*grown)) : NULL;
	if (!grown) {
		ct_free(new.name);
		ct_free(new.config);
		return CT_NOMEM;
	}
	c->entries = grown;
	c->entries[c->n++] = new;
	return CT_OK;
}

enum ct_status ct_plan_cache_put(ct_plan_cache *c, const char *name, const char *config)
{
	return put(c, name, config, true);
}

/* ---- The file ------------------------------------------------------------------------------------------ */

static void sum_of(const char *text, size_t n, char hex[CT_SHA256_HEX])
{
	struct ct_sha256 h;

	ct_sha256_init(&h);
	ct_sha256_update(&h, text, n);
	ct_sha256_final_hex(&h, hex);
}

/* Whether the last line is the checksum of the other lines. Ends the text before this line. */
static bool check_sum(char *text, size_t n)
{
	char hex[CT_SHA256_HEX];

	if (n < SUM_LINE || text[n - 1] != '\n' || memcmp(text + n - SUM_LINE, SUM, sizeof(SUM) - 1) != 0)
		return false;
	sum_of(text, n - SUM_LINE, hex);
	const bool same = !memcmp(text + n - 65, hex, 64);
	text[n - SUM_LINE] = '\0';
	return same;
}

/* Ends the line at *at and moves *at to the next one. NULL: there is none. */
static char *next_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return line;
}

static enum ct_status parse(ct_plan_cache *c, char *text, bool *valid)
{
	char *line = next_line(&text);

	*valid = line && !strcmp(line, TITLE);
	line = *valid ? next_line(&text) : NULL;
	*valid = line && !strcmp(line, c->key);
	while (*valid && (line = next_line(&text))) {
		char *tab = strchr(line, '\t');

		*valid = tab;
		if (!tab)
			break;
		*tab = '\0';
		CT_TRY(put(c, tab + 1, line, false));
	}
	return CT_OK;
}

enum ct_status ct_plan_cache_load(ct_plan_cache *c)
{
	char *text;
	size_t n;
	bool valid = false;
	enum ct_status st;

	clear(c, false);
	if (!c->path)
		return CT_OK;
	st = ct_file_read(c->path, MAX_FILE, &text, &n);
	if (st == CT_NOMEM)
		return st;
	if (st < 0) {
		if (st != CT_NOT_FOUND && !c->warned)
			CT_WARN("the cached plans cannot be used: %s", ct_error_message());
		c->warned |= st != CT_NOT_FOUND;
		ct_error_clear();
		return CT_OK;
	}
	st = check_sum(text, n) && strlen(text) == n - SUM_LINE ? parse(c, text, &valid) : CT_OK;
	ct_free(text);
	if (st == CT_OK && !valid) {
		if (!c->warned)
			CT_WARN("%s is damaged: its plans will be chosen again", c->path);
		c->warned = true;
		clear(c, false);
	}
	return st;
}

static void cannot_write(ct_plan_cache *c)
{
	if (!c->unwritable)
		CT_WARN("tuned plans cannot be saved: %s",
			c->dir ? ct_error_message() : "neither XDG_CACHE_HOME nor HOME is a directory");
	c->unwritable = true;
	ct_error_clear();
}

static enum ct_status write_file(const ct_plan_cache *c)
{
	struct ct_str out = {0};
	char hex[CT_SHA256_HEX];
	enum ct_status st;

	ct_str_addf(&out, "%s\n%s\n", TITLE, c->key);
	for (size_t i = 0; i < c->n; i++)
		ct_str_addf(&out, "%s\t%s\n", c->entries[i].config, c->entries[i].name);
	sum_of(ct_str_text(&out), out.len, hex);
	ct_str_addf(&out, SUM "%s\n", hex);
	st = ct_str_status(&out);
	if (st == CT_OK)
		st = ct_file_replace(c->path, out.s, out.len);
	ct_str_release(&out);
	return st;
}

/* Opens the file PATH.suffix. */
static enum ct_status open_beside(const ct_plan_cache *c, const char *suffix, int *fd)
{
	char *path;

	CT_TRY(ct_dir_make(c->dir));
	CT_TRY(ct_dir_probe(c->dir));
	CT_TRY_ALLOC(path = ct_strfmt("%s.%s", c->path, suffix));
	const enum ct_status st = ct_file_open(path, CT_FILE_UPDATE, fd);
	ct_free(path);
	return st;
}

bool ct_plan_cache_save(ct_plan_cache *c)
{
	bool taken;
	int lock;

	if (c->unwritable)
		return false;
	if (!c->path || open_beside(c, "lock", &lock) < 0) {
		cannot_write(c);
		return false;
	}
	if (ct_fd_lock(lock, ct_deadline_in(max_wait_ns), &taken) < 0)
		ct_error_clear(); /* a file system without locks */
	if (ct_plan_cache_load(c) < 0 || write_file(c) < 0)
		cannot_write(c);
	(void)close(lock); /* also releases the lock */
	return !c->unwritable;
}

/* ---- Claims -------------------------------------------------------------------------------------------- */

bool ct_plan_cache_begin_claims(ct_plan_cache *c)
{
	if (c->claims < 0 && !c->unwritable && (!c->path || open_beside(c, "claims", &c->claims) < 0))
		cannot_write(c);
	return !c->unwritable;
}

bool ct_plan_cache_claim(ct_plan_cache *c, const char *name)
{
	bool taken = true;

	if (c->claims >= 0 && ct_fd_lock_byte(c->claims, ct_hash64(name, strlen(name)), &taken) < 0) {
		ct_error_clear();
		return true;
	}
	return taken;
}

void ct_plan_cache_end_claims(ct_plan_cache *c)
{
	if (c->claims >= 0)
		(void)close(c->claims);
	c->claims = -1;
}
