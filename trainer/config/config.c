/* Values are stored in the order of their precedence, from the innermost base to the named file and the command line,
 * so that a later one replaces an earlier one. The environment comes last, but only sets keys that the command line has
 * not set: some variables are used only if launch.nodes is above 1. All problems are collected and reported together.
 * If a file could not be read, the checks that involve several keys are skipped, since they would report what only
 * follows from this. A chain of `base:` is limited and must not come back to a file, which is recognized by its real
 * path. What is returned is either a complete config or none; ct_config_salvage is the exception, for a node that must
 * still be able to report its failure. */
#include "trainer/config/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "trainer/config/config_impl.h"

#define MAX_FILES 16 /* a file and its `base:` chain */
#define SHOWN_TEXT 60

struct file {
	char *path;
	char real[PATH_MAX];
	char *text;
	ct_yaml *doc;
};

struct loader {
	struct ct_config *c;
	struct ct_problems p;
	struct file files[MAX_FILES]; /* the named file first, its base next ... */
	size_t n_files;
	char *example;       /* path of the example config that was named, or NULL */
	size_t n_duplicates; /* problems of files that were read nevertheless */
	bool incomplete;     /* a file could not be read, so checks of several keys would report misleading problems */
};

struct ct_origin *ct__config_origins(const struct ct_config *c)
{
	return c->origins;
}

const char *ct__config_choice(const struct ct_config *c, size_t key)
{
	const struct ct_key *k = ct__key_at(key);

	CT_ASSERT(k->type == CT_KEY_ENUM);
	return ct_choice_name(k->choices, *(const int *)ct__key_slot(k, c));
}

const char *ct_config_choice(const struct ct_config *c, const char *key)
{
	size_t i = ct__key_index(key);

	CT_ASSERT(i != SIZE_MAX);
	return ct__config_choice(c, i);
}

enum ct_status ct_config_settle(struct ct_config *c, const char *key, const char *value, const char *why)
{
	const size_t i = ct__key_index(key);
	char *where;
	int choice = 0;

	CT_ASSERT(i != SIZE_MAX && ct__key_at(i)->type == CT_KEY_ENUM);
	const struct ct_key *k = ct__key_at(i);
	while (k->choices[choice] && strcmp(k->choices[choice], value) != 0)
		choice++;
	if (!k->choices[choice])
		return CT_FAIL(CT_DATA, "%s: unknown value \"%s\"", key, value);
	CT_TRY_ALLOC(where = ct_strdup(why));
	*(int *)ct__key_slot(k, c) = choice;
	ct__config_note_default(c, i, CT_ORIGIN_DERIVED, where);
	return CT_OK;
}

static enum ct_status new_config(struct ct_config **out)
{
	struct ct_config *c;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(c = CT_NEW(struct ct_config));
	c->origins = CT_NEW_ARRAY(struct ct_origin, ct__key_count());
	if (!c->origins) {
		ct_free(c);
		return CT_NOMEM;
	}
	for (size_t i = 0; i < ct__key_count() && st == CT_OK; i++)
		st = ct__key_reset(i, c, false);
	if (st != CT_OK)
		ct_config_destroy(c);
	else
		*out = c;
	return st;
}

void ct_config_destroy(struct ct_config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < ct__key_count(); i++) {
		ct__key_release(ct__key_at(i), c);
		ct_free(ct__config_origins(c)[i].where);
		ct_free(ct__config_origins(c)[i].name);
	}
	ct_free(c->origins);
	ct_free(c);
}

const char *ct_config_origin(const struct ct_config *c, const char *key)
{
	size_t i = ct__key_index(key);
	const char *where = i == SIZE_MAX ? NULL : ct__config_origins(c)[i].where;

	return i == SIZE_MAX ? NULL : where ? where : CT_CONFIG_DEFAULT;
}

enum ct_origin_kind ct_config_origin_kind(const struct ct_config *c, const char *key)
{
	size_t i = ct__key_index(key);

	return i == SIZE_MAX ? CT_ORIGIN_DEFAULT : ct__config_origins(c)[i].kind;
}

static enum ct_status problem(struct loader *l, const struct ct_source *s, const struct ct_yaml_node *at,
			      const char *fmt, ...) CT_PRINTF(4, 5);
static enum ct_status problem(struct loader *l, const struct ct_source *s, const struct ct_yaml_node *at,
			      const char *fmt, ...)
{
	const struct ct_place place = ct__source_place(s, at);
	struct ct_str b = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&b, fmt, ap);
	va_end(ap);
	ct__problems_add(&l->p, &place, "%s", ct_str_text(&b));
	ct_str_release(&b);
	return CT_OK;
}

/* Reports that the name is a section, and lists some of its keys. */
static enum ct_status section_problem(struct loader *l, const struct ct_source *s, const struct ct_yaml_node *at,
				      const char *name)
{
	struct ct_str b = {0};
	size_t len = strlen(name), n = 0;
	enum ct_status st;

	for (size_t i = 0; i < ct__key_count() && n < 3; i++) {
		if (strncmp(ct__key_at(i)->name, name, len) == 0 && ct__key_at(i)->name[len] == '.')
			ct_str_addf(&b, "%s%s", n++ > 0 ? ", " : "", ct__key_at(i)->name);
	}
	st = problem(l, s, at, "%s is a section, not a key; it contains the keys %s ...", name, ct_str_text(&b));
	ct_str_release(&b);
	return st;
}

/* value is that of the key, or NULL if it is not a single word. */
static enum ct_status unknown_key(struct loader *l, const struct ct_source *s, const struct ct_yaml_node *at,
				  const char *name, const char *value)
{
	struct ct_str b = {0}, shown = {0};
	enum ct_status st;

	ct_str_add_escaped(&shown, name, strlen(name), SHOWN_TEXT);
	ct__key_suggest(name, value, s->is_file, &b);
	if (s->is_file && ct__key_find(name))
		st = problem(
			l, s, at,
			"\"%s\" can be written in one word on the command line only; in a file, write the section, and the key indented below it",
			ct_str_text(&shown));
	else
		st = problem(l, s, at, "unknown key \"%s\"%s", ct_str_text(&shown), ct_str_text(&b));
	ct_str_release(&b);
	ct_str_release(&shown);
	return st;
}

/* Applies the keys of a mapping. prefix is "" or, for example, "optim.". The sections of the schema limit the recursion
 * depth. */
static enum ct_status apply_map(struct loader *l, const struct ct_source *s, const struct ct_yaml_node *map,
				const char *prefix)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct ct_yaml_node *key = map->items[2 * i], *value = map->items[2 * i + 1];
		enum ct_status st = CT_OK;
		size_t index;
		char *name;

		if (prefix[0] == '\0' && strcmp(key->text, "base") == 0)
			continue;
		CT_TRY_ALLOC(name = ct_strfmt("%s%s", prefix, key->text));
		index = ct__key_index(name);
		bool group = value->kind == CT_YAML_MAP && index != SIZE_MAX && ct__key_has_parts(ct__key_at(index)) &&
			     strcmp(ct__key_at(index)->name, name) == 0;
		if (strchr(key->text, '.') || strlen(key->text) != key->len ||
		    (index == SIZE_MAX && !ct__section_exists(name))) {
			st = unknown_key(l, s, key, name, value->kind == CT_YAML_SCALAR ? value->text : NULL);
		} else if (index != SIZE_MAX && !group) {
			st = ct__key_store(index, l->c, value, s, &l->p);
		} else if (value->kind == CT_YAML_MAP) {
			char *deeper = ct_strfmt("%s.", name);

			st = deeper ? apply_map(l, s, value, deeper) : CT_NOMEM;
			ct_free(deeper);
		} else if (value->kind != CT_YAML_SCALAR || value->len > 0 || value->quoted) {
			/* A section may be empty, for example if all its lines are commented out. */
			st = section_problem(l, s, value, name);
		}
		ct_free(name);
		CT_TRY(st);
	}
	return CT_OK;
}

static enum ct_status apply_document(struct loader *l, const ct_yaml *doc, const char *name, int layer)
{
	const struct ct_source s = {.name = name, .layer = layer, .is_file = true};
	const struct ct_yaml_node *root = ct__yaml_root(doc);

	if (root->kind != CT_YAML_MAP)
		return problem(l, &s, root,
			       "a configuration consists of sections (`model:`, `data:`, `train:` ...); this is %s",
			       root->kind == CT_YAML_LIST ? "a list" : "a single string");
	return apply_map(l, &s, root, "");
}

/* Appends what a directory in the place of a config file probably is. */
static void add_directory(const char *path, struct ct_str *out)
{
	char *config = ct_path_join(path, "config.yaml");

	if (config && ct_file_exists(config))
		ct_str_addf(out, "; the configuration in it is %s", config);
	else
		ct_str_addf(out, "; if it contains images, `ctrain init %s` writes a configuration", path);
	ct_free(config);
}

/* Appends the command for the example config that has the name of a missing file, if there is one. */
static void add_example(const char *path, struct ct_str *out)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
	char *plain = ct_strndup(name, dot ? (size_t)(dot - name) : strlen(name));
	char *found = plain ? ct_config_example(plain) : NULL;

	if (found)
		ct_str_addf(out, "; \"ctrain %s\" uses the example %s", plain, found);
	ct_free(found);
	ct_free(plain);
}

/* Reports a missing file, and suggests a file in the same directory that has a similar name, or an example. */
static enum ct_status missing_file(struct loader *l, const struct ct_source *from, const struct ct_yaml_node *at,
				   const char *path)
{
	char **names = NULL, *dir, *message;
	const char *slash = strrchr(path, '/'), *near = NULL;
	struct ct_str other = {0};
	enum ct_status st;
	size_t n = 0;

	CT_TRY_ALLOC(message = ct_strdup(ct_error_message()));
	CT_TRY_ALLOC(dir = ct_path_dir(path));
	if (ct_dir_list(dir, &names, &n) == CT_OK)
		near = ct_suggest(slash ? slash + 1 : path, (const char *const *)names, n);
	if (near)
		ct_str_addf(&other, "; did you mean \"%s\"?", near);
	else
		add_example(path, &other);
	st = problem(l, from, at, "%s%s", message, ct_str_text(&other));
	ct_str_release(&other);
	ct_dir_list_free(names, n);
	ct_free(dir);
	ct_free(message);
	return st;
}

/* Reads and parses one file of the chain. `at` is the `base:` value that names it, or NULL for the file on the command
 * line. */
static enum ct_status read_one(struct loader *l, const struct ct_source *from, const struct ct_yaml_node *at,
			       struct file *f)
{
	size_t len = 0;
	enum ct_status st = ct_file_read(f->path, CT_YAML_MAX_BYTES, &f->text, &len);

	if (st == CT_NOT_FOUND)
		return missing_file(l, from, at, f->path);
	if (st == CT_DATA) {
		struct ct_yaml_node top = {.line = 1, .column = 1};
		const struct ct_source s = {.name = f->path, .is_file = true};

		struct ct_str more = {0};
		struct stat info;

		if (stat(f->path, &info) == 0 && S_ISDIR(info.st_mode))
			add_directory(f->path, &more);
		st = problem(l, &s, &top, "%s%s", ct_error_message(), ct_str_text(&more));
		ct_str_release(&more);
		return st;
	}
	/* This is not a mistake in the file: it could not be read. */
	CT_TRY(st);
	ct__problems_add_file(&l->p, f->path, f->text);
	const size_t before = l->p.n;
	CT_TRY(ct__yaml_parse(f->text, len, f->path, &l->p, &f->doc));
	if (f->doc)
		l->n_duplicates += l->p.n - before;
	return CT_OK;
}

static const struct ct_yaml_node *base_of(const ct_yaml *doc)
{
	const struct ct_yaml_node *root = ct__yaml_root(doc);

	for (size_t i = 0; root->kind == CT_YAML_MAP && i < root->n; i++) {
		if (strcmp(root->items[2 * i]->text, "base") == 0)
			return root->items[2 * i + 1];
	}
	return NULL;
}

/* Checks that the chain contains no file twice and is not too long. */
static enum ct_status check_cycle(struct loader *l, const struct ct_source *from, const struct ct_yaml_node *at,
				  bool *end)
{
	const struct file *newest = &l->files[l->n_files - 1];
	struct ct_str chain = {0};
	enum ct_status st = CT_OK;
	bool cycle = false;

	for (size_t i = 0; i + 1 < l->n_files; i++) {
		cycle |= newest->real[0] && strcmp(newest->real, l->files[i].real) == 0;
		if (cycle)
			ct_str_addf(&chain, "%s -> ", l->files[i].path);
	}
	if (cycle)
		st = problem(l, from, at, "base: circular inheritance: %s%s", ct_str_text(&chain), newest->path);
	else if (l->n_files == MAX_FILES)
		st = problem(l, from, at, "base: the chain of inherited files is longer than %d", MAX_FILES - 1);
	*end = cycle || l->n_files == MAX_FILES;
	ct_str_release(&chain);
	return st;
}

/* Reads the file, its base, the base of the base, and so on. */
static enum ct_status read_chain(struct loader *l, const char *path)
{
	const struct ct_source command_line = {.name = path};
	struct ct_source from = command_line;
	const struct ct_yaml_node *at = NULL;
	char *next;

	CT_TRY_ALLOC(next = ct_strdup(path));
	for (;;) {
		struct file *f = &l->files[l->n_files++];
		bool end;
		char *dir;

		f->path = next;
		if (!realpath(f->path, f->real))
			f->real[0] = '\0';
		CT_TRY(check_cycle(l, &from, at, &end));
		if (end)
			return CT_OK;
		CT_TRY(read_one(l, &from, at, f));
		if (!f->doc || !(at = base_of(f->doc)))
			return CT_OK;
		from = (struct ct_source){.name = f->path, .is_file = true};
		if (at->kind != CT_YAML_SCALAR || at->len == 0 || strlen(at->text) != at->len)
			return problem(l, &from, at, "base: must name a single file, for example `base: other.yaml`");
		CT_TRY_ALLOC(dir = ct_path_dir(f->path));
		next = strcmp(dir, ".") == 0 && !strchr(f->path, '/') ? ct_strdup(at->text)
								      : ct_path_join(dir, at->text);
		ct_free(dir);
		CT_TRY_ALLOC(next);
	}
}

static enum ct_status apply_sets(struct loader *l, const struct ct_config_set *sets, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ct_source s = {.name = sets[i].origin, .layer = CT_LAYER_ARGS};
		size_t index = ct__key_index(sets[i].key);

		if (index != SIZE_MAX)
			CT_TRY(ct__key_store_text(index, l->c, sets[i].value, &s, &l->p));
		else if (ct__section_exists(sets[i].key))
			CT_TRY(section_problem(l, &s, NULL, sets[i].key));
		else
			CT_TRY(unknown_key(l, &s, NULL, sets[i].key, sets[i].value));
	}
	return CT_OK;
}

static enum ct_status load(struct loader *l, const char *path, const struct ct_config_set *sets, size_t n_sets)
{
	CT_TRY(new_config(&l->c));
	if (path && !ct_file_exists(path) && (l->example = ct_config_example(path)))
		path = l->example;
	if (path)
		CT_TRY(read_chain(l, path));
	l->incomplete = l->p.n > l->n_duplicates;
	for (size_t i = l->n_files; i > 0; i--) {
		if (l->files[i - 1].doc)
			CT_TRY(apply_document(l, l->files[i - 1].doc, l->files[i - 1].path, (int)(l->n_files - i) + 1));
	}
	CT_TRY(apply_sets(l, sets, n_sets));
	CT_TRY(ct__config_apply_environment(l->c, &l->p));
	if (!l->incomplete)
		CT_TRY(ct__config_check(l->c, path ? path : "command line", &l->p));
	return ct__problems_status(&l->p);
}

static enum ct_status finish(struct loader *l, enum ct_status st, struct ct_config **out)
{
	ct__problems_release(&l->p);
	ct_free(l->example);
	for (size_t i = 0; i < l->n_files; i++) {
		ct_free(l->files[i].path);
		ct_free(l->files[i].text);
		ct__yaml_destroy(l->files[i].doc);
	}
	if (st != CT_OK)
		ct_config_destroy(l->c);
	else
		*out = l->c;
	ct_free(l);
	return st;
}

enum ct_status ct_config_load(const char *path, const struct ct_config_set *sets, size_t n_sets, struct ct_config **out)
{
	struct loader *l;

	CT_TRY_ALLOC(l = CT_NEW(struct loader));
	return finish(l, load(l, path, sets, n_sets), out);
}

enum ct_status ct_config_salvage(const char *path, const struct ct_config_set *sets, size_t n_sets,
				 struct ct_config **out)
{
	struct loader *l;

	CT_TRY_ALLOC(l = CT_NEW(struct loader));
	(void)!load(l, path, sets, n_sets);
	if (!l->c)
		return finish(l, ct_error_status(), out);
	/* If a file is missing, the load has ended before this default. */
	if (!l->c->run.name[0])
		(void)!ct__config_resolve(l->c, path);
	ct_error_clear();
	return finish(l, CT_OK, out);
}

enum ct_status ct__config_parse_fuzz(const uint8_t *data, size_t len)
{
	struct ct_config *c = NULL;
	struct ct_str dump = {0};
	struct loader *l;
	enum ct_status st;
	char *text;

	CT_TRY_ALLOC(text = ct_calloc(len + 1, 1));
	memcpy(text, data, len);
	l = CT_NEW(struct loader);
	if (!l) {
		ct_free(text);
		return CT_NOMEM;
	}
	st = new_config(&l->c);
	l->files[0].path = ct_strdup("fuzz.yaml");
	l->n_files = 1;
	ct__problems_add_file(&l->p, "fuzz.yaml", text);
	if (st == CT_OK)
		st = ct__yaml_parse(text, len, "fuzz.yaml", &l->p, &l->files[0].doc);
	if (st == CT_OK && l->files[0].doc)
		st = apply_document(l, l->files[0].doc, "fuzz.yaml", 1);
	if (st == CT_OK)
		st = ct__config_check(l->c, "fuzz.yaml", &l->p);
	if (st == CT_OK)
		st = ct__problems_status(&l->p);
	if (st == CT_OK)
		st = ct_config_dump(l->c, true, &dump);
	ct_str_release(&dump);
	st = finish(l, st, &c);
	ct_free(text);
	ct_config_destroy(c);
	return st;
}
