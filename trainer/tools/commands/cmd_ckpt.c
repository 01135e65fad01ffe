/* `ctrain ckpt show PATH` and `ctrain ckpt verify PATH...`. For a run directory, its last checkpoint is used. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "infer/safetensors.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"

#define MAX_STATE_BYTES ((size_t)4 << 20)

struct stats {
	double min, max, mean;
	size_t n, n_bad; /* n_bad is the number of values that are not finite; min, max and mean do not include them */
};

static bool is_tensor_file(const char *path)
{
	return ct_ends_with(path, ".safetensors");
}

static enum ct_status read_stats(const ct_safetensors *s, int i, size_t n, struct stats *out)
{
	enum ct_status st;
	double sum = 0;
	float *v;

	*out = (struct stats){.min = INFINITY, .max = -INFINITY, .n = n};
	CT_TRY_ALLOC(v = ct_realloc(NULL, n + 1, sizeof(float)));
	CT_TRY_GOTO(ct_safetensors_read(s, i, v, n), st, out);
	for (size_t k = 0; k < n; k++) {
		if (!isfinite(v[k])) {
			out->n_bad++;
			continue;
		}
		sum += (double)v[k];
		out->min = fmin(out->min, (double)v[k]);
		out->max = fmax(out->max, (double)v[k]);
	}
	out->mean = sum / (double)(n - out->n_bad);
out:
	ct_free(v);
	return st;
}

/* {"name", "dtype", "shape", "min", "mean", "max", "not_finite"}; the statistics are included only for dtypes that can
 * be read. */
static enum ct_status tensor_json(const ct_safetensors *s, int i, ct_json **out)
{
	ct_json *o = ct_json_object(), *shape = ct_json_array();
	struct ct_tensor_desc t;
	const char *dtype;
	struct stats x;
	enum ct_status st;

	ct_safetensors_at(s, i, &t, &dtype);
	for (int k = 0; k < t.ndim; k++)
		ct_json_push_i64(shape, t.dims[k]);
	ct_json_set_str(o, "name", t.name);
	ct_json_set_str(o, "dtype", dtype);
	ct_json_set(o, "shape", shape);
	st = read_stats(s, i, ct_tensor_n(&t), &x);
	if (st == CT_OK) {
		ct_json_set_f64(o, "min", x.min);
		ct_json_set_f64(o, "mean", x.mean);
		ct_json_set_f64(o, "max", x.max);
		ct_json_set_i64(o, "not_finite", (int64_t)x.n_bad);
	} else if (st == CT_UNSUPPORTED) {
		ct_error_clear();
	} else {
		ct_json_destroy(o);
		return st;
	}
	*out = o;
	return CT_OK;
}

static enum ct_status file_json(const char *path, ct_json **out)
{
	ct_json *o, *list, *t;
	ct_safetensors *s;
	enum ct_status st = CT_OK;

	CT_TRY(ct_safetensors_open(path, &s));
	o = ct_json_object();
	list = ct_json_array();
	ct_json_set_str(o, "path", path);
	for (int i = 0; i < ct_safetensors_count(s) && st == CT_OK; i++) {
		st = tensor_json(s, i, &t);
		if (st == CT_OK)
			ct_json_push(list, t);
	}
	ct_json_set(o, "tensors", list);
	ct_safetensors_close(s);
	if (st < 0) {
		ct_json_destroy(o);
		return st;
	}
	*out = o;
	return CT_OK;
}

/* Reads state.json as is, after checking that it is intact. */
static enum ct_status state_json(const char *folder, ct_json **out)
{
	struct ct_ckpt_state state;
	char *path, *text = NULL;
	enum ct_status st;
	size_t len;

	CT_TRY(ct_ckpt_state_read(folder, &state));
	ct_ckpt_state_release(&state);
	CT_TRY_ALLOC(path = ct_path_join(folder, CT_CKPT_STATE));
	CT_TRY_GOTO(ct_file_read(path, MAX_STATE_BYTES, &text, &len), st, out);
	CT_TRY_GOTO(ct_json_parse(text, len, path, out), st, out);
out:
	ct_free(text);
	ct_free(path);
	return st;
}

/* {"path", "state" (only of a checkpoint directory), "files"} */
static enum ct_status show_json(const char *path, void *user)
{
	ct_json **out = user;
	ct_json *o = ct_json_object(), *files = ct_json_array(), *part;
	bool single = is_tensor_file(path);
	enum ct_status st = CT_OK;

	ct_json_set_str(o, "path", path);
	if (!single) {
		CT_TRY_GOTO(state_json(path, &part), st, fail);
		ct_json_set(o, "state", part);
	}
	for (int i = 0; i < (single ? 1 : CT_CKPT_N_FILES); i++) {
		char *file = single ? ct_strdup(path) : ct_path_join(path, ct_ckpt_file_name(i));

		st = file ? file_json(file, &part) : CT_NOMEM;
		ct_free(file);
		if (st < 0)
			goto fail;
		ct_json_push(files, part);
	}
	ct_json_set(o, "files", files);
	*out = o;
	return CT_OK;

fail:
	ct_json_destroy(files);
	ct_json_destroy(o);
	return st;
}

static void add_padded(struct ct_str *out, const char *text, int width)
{
	struct ct_str shown = {0};

	ct_str_add_escaped(&shown, text, strlen(text), 200);
	ct_str_addf(out, "%-*s", width, ct_str_text(&shown));
	ct_str_release(&shown);
}

static void add_tensor(const ct_json *t, int width, struct ct_str *out)
{
	const char *name = "", *dtype = "";
	double min = 0, mean = 0, max = 0;
	struct ct_str shape = {0};
	int64_t n_bad = 0;

	(void)!ct_json_get_str(t, "name", &name);
	(void)!ct_json_get_str(t, "dtype", &dtype);
	if (ct_json_dump(ct_json_get(t, "shape"), false, &shape) < 0)
		out->failed = true;
	ct_str_add(out, "  ");
	add_padded(out, name, width);
	ct_str_addf(out, "  %-5s %-16s", dtype, ct_str_text(&shape));
	ct_str_release(&shape);
	if (ct_json_get_f64(t, "min", &min) == CT_OK && ct_json_get_f64(t, "mean", &mean) == CT_OK &&
	    ct_json_get_f64(t, "max", &max) == CT_OK)
		ct_str_addf(out, "  %11.4g %11.4g %11.4g", min, mean, max);
	if (ct_json_get_i64(t, "not_finite", &n_bad) == CT_OK && n_bad > 0)
		ct_str_addf(out, "  %lld not finite", (long long)n_bad);
	ct_error_clear();
	ct_str_add(out, "\n");
}

static void add_file(const ct_json *file, struct ct_str *out)
{
	const ct_json *list = ct_json_get(file, "tensors");
	const char *path = "", *name = "";
	int width = 10;

	(void)!ct_json_get_str(file, "path", &path);
	for (size_t i = 0; i < ct_json_len(list); i++) {
		(void)!ct_json_get_str(ct_json_at(list, i), "name", &name);
		width = (int)strlen(name) > width ? (int)strlen(name) : width;
	}
	width = width > 48 ? 48 : width;
	ct_str_addf(out, "\n%s: %zu tensors\n", path, ct_json_len(list));
	if (ct_json_len(list) > 0)
		ct_str_addf(out, "  %-*s  %-5s %-16s  %11s %11s %11s\n", width, "name", "type", "shape", "min", "mean",
			    "max");
	for (size_t i = 0; i < ct_json_len(list); i++)
		add_tensor(ct_json_at(list, i), width, out);
}

/* Adds the members of state.json, except those that are shown elsewhere or are not useful to the reader. */
static void add_state(const ct_json *state, struct ct_str *out)
{
	static const char *const hidden[] = {"checksum", "format", "v", "files", "config"};
	const char *key, *config = "";
	const ct_json *value;
	void *cursor = NULL;

	while ((key = ct_json_next(state, &cursor, &value))) {
		bool show = true;

		for (size_t i = 0; i < CT_ARRAY_LEN(hidden); i++)
			show = show && strcmp(key, hidden[i]) != 0;
		if (!show)
			continue;
		ct_str_addf(out, "  %-16s", key);
		if (ct_json_as_str(value))
			add_padded(out, ct_json_as_str(value), 0);
		else if (ct_json_dump(value, false, out) < 0)
			out->failed = true;
		ct_str_add(out, "\n");
	}
	(void)!ct_json_get_str(state, "config", &config);
	ct_error_clear();
	if (config[0])
		ct_str_add(out, "  config\n");
	while (*config) {
		size_t len = strcspn(config, "\n");

		ct_str_add(out, "    ");
		ct_str_add_escaped(out, config, len, 400);
		ct_str_add(out, "\n");
		config += len + (config[len] == '\n');
	}
}

enum ct_status ct_cmd_ckpt_show(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	ct_json *j = NULL;
	enum ct_status st;
	char *path;

	CT_TRY_GOTO(ct_checkpoint_use(NULL, cli->args[0], show_json, &j, &path), st, out);
	if (cli->json) {
		CT_TRY_GOTO(ct_json_dump(j, false, &text), st, out);
		ct_str_add(&text, "\n");
	} else {
		ct_str_addf(&text, "%s\n", path);
		if (ct_json_get(j, "state"))
			add_state(ct_json_get(j, "state"), &text);
		for (size_t i = 0; i < ct_json_len(ct_json_get(j, "files")); i++)
			add_file(ct_json_at(ct_json_get(j, "files"), i), &text);
	}
	CT_TRY_GOTO(ct_print_text(&text), st, out);
out:
	ct_json_destroy(j);
	ct_str_release(&text);
	ct_free(path);
	return st;
}

/* Verifies the format of a single file, and its checksum if a state.json in the same directory lists the file. */
static enum ct_status verify_file(const char *path, const char **how)
{
	struct ct_ckpt_state state;
	const char *name = ct_path_name(path);
	enum ct_status st = CT_OK;
	ct_safetensors *s;
	char *folder;

	*how = "the format is valid, but there is no checksum to verify";
	CT_TRY(ct_safetensors_open(path, &s));
	ct_safetensors_close(s);
	CT_TRY_ALLOC(folder = ct_path_dir(path));
	if (ct_ckpt_state_read(folder, &state) == CT_OK) {
		for (int i = 0; i < CT_CKPT_N_FILES && st == CT_OK; i++) {
			if (strcmp(name, ct_ckpt_file_name(i)) != 0)
				continue;
			st = ct_ckpt_file_verify(folder, &state, i);
			*how = "whole";
		}
		ct_ckpt_state_release(&state);
	} else {
		ct_error_clear();
	}
	ct_free(folder);
	return st;
}

static enum ct_status verify(const char *path, void *user)
{
	const char **how = user;

	*how = "whole";
	return is_tensor_file(path) ? verify_file(path, how) : ct_checkpoint_verify(path);
}

/* Prints the result for each path immediately, because hashing large files takes a long time. */
static enum ct_status report(const struct ct_cli *cli, const char *path, const char *how, enum ct_status result)
{
	struct ct_str text = {0};
	enum ct_status st = CT_OK;
	ct_json *j = NULL;

	if (cli->json) {
		j = ct_json_object();
		ct_json_set_str(j, "path", path);
		ct_json_set_bool(j, "ok", result == CT_OK);
		ct_json_set_str(j, "text", result == CT_OK ? how : ct_error_message());
		CT_TRY_GOTO(ct_json_dump(j, false, &text), st, out);
		ct_str_add(&text, "\n");
	} else {
		ct_str_addf(&text, "%s: %s%s\n", path,
			    result == CT_OK ? "" : "broken: ", result == CT_OK ? how : ct_error_message());
	}
	CT_TRY_GOTO(ct_print_text(&text), st, out);
out:
	ct_str_release(&text);
	ct_json_destroy(j);
	return st;
}

enum ct_status ct_cmd_ckpt_verify(const struct ct_cli *cli)
{
	struct ct_error first = {.status = CT_OK};
	int n_bad = 0;

	for (int i = 0; i < cli->n_args; i++) {
		char *path = NULL;
		const char *how;
		enum ct_status result = ct_checkpoint_use(NULL, cli->args[i], verify, &how, &path), st;

		if (result < 0 && n_bad++ == 0)
			ct_error_save(&first);
		st = report(cli, path ? path : cli->args[i], how, result);
		ct_free(path);
		CT_TRY(st);
	}
	if (n_bad == 0)
		return CT_OK;
	(void)ct_error_restore(&first);
	return n_bad == 1 ? first.status
			  : ct_error_wrap("%d of %d checkpoints are damaged; the first error is", n_bad, cli->n_args);
}
