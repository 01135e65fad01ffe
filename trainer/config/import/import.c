/* Finds the parts of a launch line - environment variables, srun or mpirun, launcher, script - and writes the result.
 */
#include "trainer/config/import/import.h"

#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "trainer/config/config.h"
#include "trainer/config/import/import_impl.h"

#define COMMENT_MAX 2000

/* ---- settings */

void ct__import_set(struct ct_import *im, const char *key, const char *value)
{
	size_t i = 0;

	while (i < im->n_sets && strcmp(im->sets[i].key, key) != 0)
		i++;
	if (i == CT_IMPORT_SETS)
		return;
	if (i == im->n_sets) {
		im->sets[im->n_sets++].key = ct_strdup(key);
	} else {
		ct_free(im->sets[i].value);
	}
	im->sets[i].value = ct_strdup(value);
	if (!im->sets[i].key || !im->sets[i].value)
		im->status = CT_NOMEM;
}

void ct__import_drop(struct ct_import *im, const char *key)
{
	size_t n = 0;

	for (size_t i = 0; i < im->n_sets; i++) {
		if (strcmp(im->sets[i].key, key) != 0) {
			im->sets[n++] = im->sets[i];
			continue;
		}
		ct_free(im->sets[i].key);
		ct_free(im->sets[i].value);
	}
	im->n_sets = n;
}

const char *ct__import_get(const struct ct_import *im, const char *key)
{
	for (size_t i = 0; i < im->n_sets; i++) {
		if (strcmp(im->sets[i].key, key) == 0)
			return im->sets[i].value;
	}
	return NULL;
}

/* The comments may be pasted into a shell together with the command, so a line break must not end them. */
static void add_comment(struct ct_import *im, const char *start, const struct ct_str *text)
{
	ct_str_add(&im->notes, start);
	ct_str_add_escaped(&im->notes, ct_str_text(text), text->len, COMMENT_MAX);
	ct_str_add(&im->notes, "\n");
	if (im->status == CT_OK)
		im->status = ct_str_status(text);
}

void ct__import_note(struct ct_import *im, const char *fmt, ...)
{
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	add_comment(im, "# ", &text);
	ct_str_release(&text);
}

static void release(struct ct_import *im)
{
	for (size_t i = 0; i < im->n_sets; i++) {
		ct_free(im->sets[i].key);
		ct_free(im->sets[i].value);
	}
	ct_str_release(&im->unknown);
	ct_str_release(&im->notes);
	ct_str_release(&im->wrapper);
	ct__words_release(&im->words);
}

/* ---- result */

/* Settings that are options in ctrain's command line. */
static bool is_option(const char *key)
{
	return strncmp(key, "launch.", 7) == 0 && strcmp(key, "launch.threads") != 0;
}

static void add_settings(const struct ct_import *im, bool options, struct ct_str *out)
{
	for (size_t i = 0; i < im->n_sets; i++) {
		const char *key = im->sets[i].key;

		if (key[0] == '?' || is_option(key) != options)
			continue;
		ct_str_add(out, options ? " --" : " ");
		for (key += options ? strlen("launch.") : 0; *key; key++)
			ct_str_addf(out, "%c", options && *key == '_' ? '-' : *key);
		ct_str_add(out, options ? " " : "=");
		ct__word_add(out, im->sets[i].value);
	}
}

static enum ct_status write_result(struct ct_import *im, struct ct_str *out)
{
	const char *config = ct__import_config(im);

	if (im->unknown.len > 0)
		add_comment(im, "# not translated:", &im->unknown);
	CT_TRY(im->status);
	CT_TRY(ct_str_status(&im->wrapper));
	CT_TRY(ct_str_status(&im->notes));
	ct_str_addf(out, "%sctrain %s%s", ct_str_text(&im->wrapper), ct__import_get(im, "?eval") ? "eval " : "",
		    config);
	if (ct__import_get(im, "?checkpoint")) {
		ct_str_add(out, " --checkpoint ");
		ct__word_add(out, ct__import_get(im, "?checkpoint"));
	}
	add_settings(im, true, out);
	add_settings(im, false, out);
	ct_str_addf(out, "\n%s", ct_str_text(&im->notes));
	return ct_str_status(out);
}

/* ---- parts of the line */

static const char *word(const struct ct_import *im)
{
	return im->at < im->words.n ? im->words.all[im->at] : "";
}

/* The file name of the next word. */
static const char *name(const struct ct_import *im)
{
	return ct_path_name(word(im));
}

static void keep(struct ct_import *im)
{
	ct__word_add(&im->wrapper, word(im));
	ct_str_add(&im->wrapper, " ");
	im->at++;
}

static bool is_assignment(const char *w)
{
	const size_t n = strspn(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return n > 0 && !isdigit((unsigned char)w[0]) && w[n] == '=';
}

/* NAME=VALUE in front of the program. A prompt ("$", "!") is skipped. */
static void take_environment(struct ct_import *im)
{
	if (strcmp(word(im), "$") == 0 || strcmp(word(im), "!") == 0)
		im->at++;
	while (is_assignment(word(im))) {
		if (strncmp(word(im), "OMP_NUM_THREADS=", 16) == 0) {
			ct__import_set(im, "launch.threads", word(im) + 16);
			im->at++;
			continue;
		}
		const char *eq = strchr(word(im), '=');
		ct_str_addf(&im->wrapper, "%.*s=", (int)(eq - word(im)), word(im));
		ct__word_add(&im->wrapper, eq + 1);
		ct_str_add(&im->wrapper, " ");
		im->at++;
	}
}

/* Programs that start the processes on all nodes. They stay in front of ctrain, with their options. */
static const struct {
	const char *names;
	bool with_value;     /* `options` lists those with a value; otherwise, those without */
	const char *options; /* without dashes */
	const char *pairs;   /* options with two values */
} wrappers[] = {
	{"srun", false,
	 "exclusive label l unbuffered u overlap O exact pty no-kill k oversubscribe s verbose v quiet Q contiguous "
	 "kill-on-bad-exit K Z no-allocate multi-prog disable-status E preserve-env",
	 ""},
	{"mpirun mpiexec orterun", true,
	 "np n c N H host hosts hostfile machinefile f x map-by bind-to rank-by wdir wd prefix ppn perhost genvlist npernode "
	 "npersocket rf output-filename timeout",
	 "mca gmca genv env pmixmca prtemca"},
};

static void take_wrapper(struct ct_import *im)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(wrappers); i++) {
		if (!ct_word_in(wrappers[i].names, name(im), strlen(name(im))))
			continue;
		keep(im);
		while (word(im)[0] == '-' && strcmp(word(im), "--") != 0) {
			const char *o = word(im) + strspn(word(im), "-");
			const bool listed = ct_word_in(wrappers[i].options, o, strlen(o));
			int n_values = strchr(o, '=') || listed != wrappers[i].with_value ? 0 : 1;

			if (ct_word_in(wrappers[i].pairs, o, strlen(o)))
				n_values = 2;
			/* srun -n4 */
			if (!wrappers[i].with_value && word(im)[1] != '-' && o[0] && o[1])
				n_values = 0;
			for (keep(im); n_values > 0 && im->at < im->words.n; n_values--)
				keep(im);
		}
		im->under_launcher = im->per_process = true;
		ct__import_note(im, "%s starts the processes; ctrain takes rank and number of ranks from it",
				wrappers[i].names[0] == 's' ? "srun" : "mpirun");
	}
}

static void take_script(struct ct_import *im)
{
	if (im->at < im->words.n) {
		im->script = name(im);
		im->at++;
	}
}

static const struct {
	const char *names;
	const struct ct_rules *rules;
} launchers[] = {
	{"torchrun torch.distributed.launch torch.distributed.run torch.distributed.elastic", &ct__torchrun_rules},
	{"accelerate accelerate.commands.launch", &ct__accelerate_rules},
};

/* Returns false if the next word is not a launcher of PyTorch. */
static bool take_launcher(struct ct_import *im)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(launchers); i++) {
		if (!ct_word_in(launchers[i].names, name(im), strlen(name(im))))
			continue;
		im->at++;
		if (strcmp(word(im), "launch") == 0)
			im->at++;
		im->per_process = true;
		ct__import_launcher(im, launchers[i].rules);
		return true;
	}
	return false;
}

/* python [-u] [-m MODULE] SCRIPT. Returns false if the next word is neither Python nor a script. */
static bool take_python(struct ct_import *im)
{
	if (strncmp(name(im), "python", 6) != 0)
		return ct_ends_with(word(im), ".py") || strchr(word(im), '/');
	im->at++;
	while (word(im)[0] == '-' && strcmp(word(im), "-m") != 0)
		im->at++;
	if (strcmp(word(im), "-m") != 0)
		return true;
	im->at++;
	(void)take_launcher(im);
	return true;
}

/* Within srun or mpirun, one task is one rank, so what a second launcher would need has no meaning. */
static void drop_launcher(struct ct_import *im)
{
	static const char *const keys[] = {"launch.nodes",       "launch.node_rank", "launch.master_addr",
					   "launch.master_port", "launch.procs",     "dist.run_id"};
	const size_t before = im->n_sets;

	if (!im->under_launcher)
		return;
	for (size_t k = 0; k < CT_ARRAY_LEN(keys); k++)
		ct__import_drop(im, keys[k]);
	if (im->n_sets < before)
		ct__import_note(
			im,
			"start one task for each rank (srun --ntasks-per-node, mpirun -N): ctrain needs no launcher within it");
}

static enum ct_status translate(struct ct_import *im, const char *line, struct ct_str *out)
{
	CT_TRY(ct__words_split(line, &im->words));
	take_environment(im);
	take_wrapper(im);
	take_environment(im);
	if (!take_launcher(im) && !take_python(im)) {
		CT_FAIL(CT_USAGE,
			"\"%.60s\" is not a launcher that ctrain knows (torchrun, python, accelerate, srun, mpirun)",
			word(im));
		return ct_error_hint("ctrain import \"torchrun --nproc_per_node 4 train.py --lr 0.1\"; "
				     "or pass the configuration file of accelerate");
	}
	take_script(im);
	ct__import_script(im);
	ct__import_settle(im);
	drop_launcher(im);
	return write_result(im, out);
}

enum ct_status ct_import_line(const char *line, struct ct_str *out)
{
	struct ct_import im = {0};
	const enum ct_status st = translate(&im, line, out);

	release(&im);
	return st;
}

/* ---- configuration files of accelerate */

static void take_key(void *user, const char *key, const char *value)
{
	struct ct_import *im = user;
	const struct ct_option_word o = {.word = key, .name = key, .len = strlen(key), .value = value};

	/* Null, or a flag that is not set. */
	if (!value[0] || strcmp(value, "null") == 0 || strcmp(value, "false") == 0)
		return;
	if (!ct__import_apply(im, &ct__accelerate_rules, &o))
		ct_str_addf(&im->unknown, " %s: %s;", key, value);
}

enum ct_status ct_import_accelerate(const char *path, struct ct_str *out)
{
	struct ct_import im = {.per_process = true};
	enum ct_status st = ct_config_read_other(path, take_key, &im);

	if (st == CT_OK) {
		ct__import_settle(&im);
		st = write_result(&im, out);
	}
	release(&im);
	return st;
}
