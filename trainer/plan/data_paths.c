/* Checks that the files named by data.dir, data.train, data.val, data.labels, data.classes_file and model.weights
 * exist. Problems are reported with their location in the config. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/plan/run_plan.h"

struct report {
	const struct ct_config *c;
	struct ct_str lines;
	enum ct_status status; /* of the first problem */
	char hint[512];
	bool dir_named; /* it has already been reported that data.dir does not exist */
};

/* Returns the location where the user can correct the key: its own, or that of the key from which its default is
 * derived. */
static const char *place_of(const struct ct_config *c, const char *key)
{
	static const char *const follows[] = {"data.dir", "data.name"};

	for (size_t i = 0; i < CT_ARRAY_LEN(follows) && ct_config_origin_kind(c, key) == CT_ORIGIN_DEFAULT; i++)
		key = follows[i];
	return ct_config_origin(c, key);
}

static void add(struct report *r, enum ct_status st, const char *key, const char *text)
{
	const char *hint = ct_error_hint_text();

	ct_str_addf(&r->lines, "%s%s: error: %s: %s", r->lines.len ? "\n" : "", place_of(r->c, key), key, text);
	if (r->status == CT_OK) {
		r->status = st;
		snprintf(r->hint, sizeof(r->hint), "%.500s", hint);
	}
}

static void check_split(struct report *r, bool train)
{
	const char *key = train ? "data.train" : "data.val";
	struct ct_dataset_spec spec;
	struct ct_str text = {0};
	enum ct_status st;

	ct_plan_dataset_spec(r->c, train, &spec);
	st = ct_dataset_find(&spec);
	if (st == CT_OK)
		return;
	if (ct_file_exists(spec.dir) || (spec.path && spec.path[0] == '/')) {
		add(r, st, key, ct_error_message());
	} else if (!r->dir_named) {
		ct_str_addf(&text, "the directory %s does not exist", spec.dir);
		add(r, st, "data.dir", ct_str_text(&text));
		ct_str_release(&text);
		r->dir_named = true;
	}
	ct_error_clear();
}

static void check_file(struct report *r, const char *key, const char *path)
{
	struct ct_str text = {0};

	if (!path[0] || ct_file_exists(path))
		return;
	ct_str_addf(&text, "there is no %s", path);
	ct_error_clear(); /* add() takes the hint of the current error */
	add(r, CT_NOT_FOUND, key, ct_str_text(&text));
	ct_str_release(&text);
}

/* The same for a file whose path is relative to data.dir. */
static enum ct_status check_data_file(struct report *r, const char *key, const char *name)
{
	char *path;

	if (!name[0] || r->dir_named)
		return CT_OK;
	CT_TRY_ALLOC(path = ct_path_join(r->c->data.dir, name));
	check_file(r, key, path);
	ct_free(path);
	return CT_OK;
}

/* A run that continues from a checkpoint does not read model.weights. */
static bool has_checkpoint(const struct ct_config *c)
{
	char *dir = ct_plan_run_dir(c), *last = dir ? ct_path_join(dir, "checkpoints/last") : NULL;
	bool found = last && ct_file_exists(last);

	ct_free(last);
	ct_free(dir);
	return found;
}

enum ct_status ct_plan_check_data(const struct ct_config *c)
{
	const struct {
		const char *key, *name;
	} files[] = {{"data.labels", c->data.labels},
		     {"data.val_labels", c->data.val_labels},
		     {"data.classes_file", c->data.classes_file}};
	struct report r = {.c = c};
	enum ct_status st = CT_OK;

	check_split(&r, true);
	if (ct_plan_has_val(c))
		check_split(&r, false);
	for (size_t i = 0; i < CT_ARRAY_LEN(files) && st == CT_OK; i++)
		st = check_data_file(&r, files[i].key, files[i].name);
	if (!has_checkpoint(c))
		check_file(&r, "model.weights", c->model.weights);
	if (st == CT_OK)
		st = ct_str_status(&r.lines);
	if (st == CT_OK && r.status < 0) {
		CT_FAIL(r.status, "%s", ct_str_text(&r.lines));
		ct_error_because(CT_REASON_PROBLEMS);
		if (r.hint[0])
			ct_error_hint("%s", r.hint);
		st = r.status;
	}
	ct_str_release(&r.lines);
	return st;
}
