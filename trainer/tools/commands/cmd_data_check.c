/* `ctrain data check CONFIG|PATH...`: decodes every sample and reports all problems. */
#define CT_LOG_COMPONENT "data"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "trainer/plan/run_plan.h"
#include "trainer/run/metrics/ticker.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/dataset/data_check.h"
#include "trainer/tools/init/image_layout.h"

#define SHOWN 20 /* maximum number of unreadable samples to print; the report lists all */

struct set_result {
	const char *set; /* borrowed, or that in `name` */
	char *name;      /* owned, or NULL */
	uint64_t n;
	size_t found[CT_FINDING_KINDS];
	double seconds;
	char imagenet[160]; /* from ct_imagenet_note */
};

struct run {
	const struct ct_cli *cli;
	const char *labels; /* --labels */
	int threads;
	struct ct_data_findings findings;
	struct set_result sets[2 * CT_MAX_ARGS + 1]; /* sets[n_sets] is being opened and checked */
	int n_sets;
	struct ct_ticker *ticker;
};

static void show_progress(void *user, uint64_t done, uint64_t total, size_t bad)
{
	struct run *r = user;
	char note[32];

	snprintf(note, sizeof(note), "%zu bad", bad);
	ct_ticker_show(r->ticker, done, total, note);
}

static enum ct_status note_damaged(void *user, const struct ct_refusal *why)
{
	struct run *r = user;

	return ct_data_findings_add_damaged(&r->findings, r->sets[r->n_sets].set, why);
}

static void begin_set(struct run *r, const char *set)
{
	struct set_result *s = &r->sets[r->n_sets];

	s->set = set;
	memcpy(s->found, r->findings.counts, sizeof(s->found));
}

/* Opens the data set `spec`. Damaged shards become findings instead of errors. */
static enum ct_status open_set(struct run *r, const char *set, struct ct_dataset_spec *spec, ct_dataset **out)
{
	begin_set(r, set);
	spec->on_damaged = note_damaged;
	spec->user = r;
	return ct_dataset_open(spec, out);
}

/* Checks the set that was opened last. */
static enum ct_status check_set(struct run *r, const ct_dataset *d, const struct ct_image_opts *image)
{
	struct set_result *s = &r->sets[r->n_sets];
	struct ct_data_check c = {
		.set = s->set, .data = d, .image = *image, .threads = r->threads, .progress = show_progress, .user = r};
	int64_t t0 = ct_now_ns();
	char *what = ct_strfmt("checking %s", s->set);
	enum ct_status st = what ? ct_ticker_create(what, &r->ticker) : CT_NOMEM;

	if (st == CT_OK)
		st = ct_data_check(&c, &r->findings);
	ct_ticker_destroy(r->ticker);
	r->ticker = NULL;
	ct_free(what);
	CT_TRY(st);
	s->n = ct_dataset_info(d)->n;
	ct_imagenet_note(d, s->set, s->imagenet, sizeof(s->imagenet));
	for (int kind = 0; kind < CT_FINDING_KINDS; kind++)
		s->found[kind] = r->findings.counts[kind] - s->found[kind];
	s->seconds = ct_seconds_since(t0);
	r->n_sets++;
	return CT_OK;
}

static enum ct_status check_config(struct run *r)
{
	struct ct_config *c = NULL;
	ct_dataset *train = NULL, *val = NULL;
	struct ct_dataset_spec spec;
	enum ct_status st;

	CT_TRY(ct_config_load(r->cli->args[0], r->cli->sets, r->cli->n_sets, &c));
	struct ct_image_opts image = {.max_pixels = (uint64_t)c->data.max_pixels, .exif = c->data.exif};
	CT_TRY_GOTO(ct_log_configure(c->log.level), st, out);
	ct_plan_dataset_spec(c, true, &spec);
	CT_TRY_GOTO(open_set(r, "train", &spec, &train), st, out);
	CT_TRY_GOTO(check_set(r, train, &image), st, out);
	if (!ct_plan_has_val(c))
		goto out;
	ct_plan_dataset_spec(c, false, &spec);
	/* The classes of damaged shards are unknown, so the number of classes may be too small. */
	if (spec.n_classes == 0 && r->findings.counts[CT_FINDING_DAMAGED] == 0)
		spec.n_classes = ct_dataset_info(train)->n_classes;
	CT_TRY_GOTO(open_set(r, "val", &spec, &val), st, out);
	st = check_set(r, val, &image);
out:
	ct_dataset_close(val);
	ct_dataset_close(train);
	ct_config_destroy(c);
	return st;
}

static bool is_folder(const char *path)
{
	struct stat sb;

	return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static bool holds_shards(const char *folder)
{
	char **names;
	size_t n;
	bool found = false;

	if (ct_dir_list(folder, &names, &n) < 0) {
		ct_error_clear();
		return false;
	}
	for (size_t i = 0; i < n; i++)
		found |= strlen(names[i]) > 4 && ct_ends_with(names[i], ".tar");
	ct_dir_list_free(names, n);
	return found;
}

/* Checks the training and the evaluation images of a layout. */
static enum ct_status check_layout(struct run *r, const struct ct_layout *l, const char *const names[2])
{
	const struct ct_image_opts image = {0};
	enum ct_status st = CT_OK;

	for (int i = 0; st == CT_OK && i < 1 + l->has_val; i++) {
		ct_dataset *d = NULL;

		begin_set(r, names[i]);
		st = ct_layout_open(l, i == 0, &d);
		if (st == CT_OK)
			st = check_set(r, d, &image);
		ct_dataset_close(d);
	}
	return st;
}

/* Checks the images that --labels lists, and the list itself. */
static enum ct_status check_list(struct run *r, const char *dir)
{
	struct ct_layout l;

	CT_TRY(ct_layout_find(dir, r->labels, &l));
	return check_layout(r, &l, (const char *const[]){"train", "val"});
}

/* Returns true if the class directories are in DIR/train, and perhaps also in DIR/val. */
static bool has_parts(const char *dir, struct ct_layout *l)
{
	const bool found = ct_layout_find(dir, "none", l) == CT_OK;

	ct_error_clear();
	return found && strcmp(l->train, ".") != 0;
}

static enum ct_status check_parts(struct run *r, const char *dir, const struct ct_layout *l)
{
	struct set_result *s = &r->sets[r->n_sets];

	CT_TRY_ALLOC(s[0].name = ct_path_join(dir, l->train));
	if (l->has_val)
		CT_TRY_ALLOC(s[1].name = ct_path_join(dir, l->val));
	return check_layout(r, l, (const char *const[]){s[0].name, s[1].name});
}

static void warn_unchecked_list(const char *dir)
{
	struct ct_layout l;
	struct ct_error unused;
	struct ct_str command = {0};

	ct_layout_find_list(dir, &l, &unused);
	if (unused.status < 0)
		CT_WARN("%s: labels are not checked: %s; add --labels FILE.csv or --labels none", dir, unused.message);
	char *file = l.labels[0] ? ct_path_join(l.dir, l.labels) : NULL;
	if (!file)
		return;
	ct_str_add(&command, "ctrain data check ");
	ct_str_add_shell(&command, l.dir); /* may be the parent directory of dir */
	ct_str_add(&command, " --labels ");
	ct_str_add_shell(&command, file);
	CT_WARN("%s: the labels in %s are not checked; add --labels none if this file is not a list of labels, or check them with: %s",
		dir, file, ct_str_text(&command));
	ct_str_release(&command);
	ct_free(file);
}

/* path is a directory of shards, a directory of images, or a pattern of shards as in data.train. */
static enum ct_status check_path(struct run *r, const char *path)
{
	const struct ct_image_opts image = {0};
	bool folder = is_folder(path), shards = !folder || holds_shards(path);
	struct ct_dataset_spec spec = {.name = shards ? "shards" : "imagefolder", .threads = r->threads, .train = true};
	char *copy, *dir = NULL;
	ct_dataset *d = NULL;
	struct ct_layout layout;

	if (!shards && !r->labels)
		warn_unchecked_list(path);
	if (!shards && has_parts(path, &layout))
		return check_parts(r, path, &layout);
	copy = ct_strdup(path);
	enum ct_status st = copy ? CT_OK : CT_NOMEM;
	for (size_t n = copy ? strlen(copy) : 0; n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	/* Uses the parent directory as the data directory, because it may contain the list of classes. */
	if (st == CT_OK)
		st = (dir = ct_path_dir(copy)) ? CT_OK : CT_NOMEM;
	if (st == CT_OK) {
		const char *slash = strrchr(copy, '/'), *name = slash && slash[1] ? slash + 1 : copy;
		bool list = !ct_file_exists(path); /* the directory of a single file may contain spaces */

		spec.dir = list ? "." : folder && shards ? copy : dir;
		spec.path = list ? copy : folder && shards ? "*.tar" : name;
		st = open_set(r, path, &spec, &d);
	}
	if (st == CT_OK)
		st = check_set(r, d, &image);
	ct_dataset_close(d);
	ct_free(dir);
	ct_free(copy);
	return st;
}

static bool is_config(const char *path)
{
	size_t n = strlen(path);

	return (n > 5 && strcmp(path + n - 5, ".yaml") == 0) || (n > 4 && strcmp(path + n - 4, ".yml") == 0);
}

static enum ct_status check_all(struct run *r)
{
	const char *labels = r->labels;

	if (is_config(r->cli->args[0])) {
		if (labels) {
			CT_FAIL(CT_USAGE,
				"--labels can be used with a directory of images, but not with a configuration");
			return ct_error_hint("data.labels=FILE.csv sets the key of the configuration");
		}
		if (r->cli->n_args > 1)
			return CT_FAIL(CT_USAGE,
				       "only one configuration can be checked at a time: unexpected argument \"%s\"",
				       r->cli->args[1]);
		return check_config(r);
	}
	if (r->cli->n_sets > 0)
		return CT_FAIL(CT_USAGE, "KEY=VALUE (\"%s\") can be used with a configuration, but not with paths",
			       r->cli->sets[0].key);
	if (labels && strcmp(labels, "none") != 0) {
		if (r->cli->n_args > 1)
			return CT_FAIL(CT_USAGE,
				       "--labels can be used with only one directory: unexpected argument \"%s\"",
				       r->cli->args[1]);
		return check_list(r, r->cli->args[0]);
	}
	for (int i = 0; i < r->cli->n_args; i++)
		CT_TRY(check_path(r, r->cli->args[i]));
	return CT_OK;
}

static enum ct_status write_report(const struct run *r)
{
	const char *path = r->cli->out, *dot = path ? strrchr(path, '.') : NULL;
	struct ct_str text = {0};

	if (!path)
		return CT_OK;
	enum ct_status st = ct_data_findings_write(
		&r->findings, dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".json") == 0), &text);
	if (st == CT_OK)
		st = ct_file_replace(path, ct_str_text(&text), text.len);
	ct_str_release(&text);
	return st;
}

static enum ct_status print_summary_json(const struct run *r)
{
	static const char *const keys[CT_FINDING_KINDS][2] = {{"damaged", "damaged_by_tag"},
							      {"bad", "bad_by_tag"},
							      {"left_out", "left_out_by_tag"},
							      {"warnings", "warnings_by_tag"}};
	ct_json *j = ct_json_object(), *sets = ct_json_array();

	for (int i = 0; i < r->n_sets; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "set", r->sets[i].set);
		ct_json_set_i64(o, "samples", (int64_t)r->sets[i].n);
		for (int kind = 0; kind < CT_FINDING_KINDS; kind++)
			ct_json_set_i64(o, keys[kind][0], (int64_t)r->sets[i].found[kind]);
		ct_json_set_f64(o, "seconds", r->sets[i].seconds);
		if (r->sets[i].imagenet[0])
			ct_json_set_str(o, "imagenet", r->sets[i].imagenet);
		ct_json_push(sets, o);
	}
	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "data_check");
	ct_json_set(j, "sets", sets);
	for (int kind = 0; kind < CT_FINDING_KINDS; kind++) {
		ct_json *o = ct_json_object();

		for (size_t i = 0; i < r->findings.n_tags; i++) {
			if ((int)r->findings.tags[i].kind == kind)
				ct_json_set_i64(o, r->findings.tags[i].tag, (int64_t)r->findings.tags[i].n);
		}
		ct_json_set(j, keys[kind][1], o);
	}
	return ct_print_json(j, false);
}

static void print_findings(const struct ct_data_findings *f)
{
	size_t shown = 0, to_show = f->n - f->counts[CT_FINDING_WARNING];

	for (size_t i = 0; i < f->n && shown < SHOWN; i++) {
		const struct ct_data_finding *v = &f->v[i];

		if (v->kind == CT_FINDING_WARNING)
			continue;
		printf("  %-8s %s%s%s\n", ct_data_finding_name(v->kind), v->where, v->where[0] ? ": " : "", v->reason);
		shown++;
	}
	if (shown < to_show)
		printf("  and %zu more (--out FILE lists all)\n", to_show - shown);
}

static void print_summary(const struct run *r)
{
	for (int i = 0; i < r->n_sets; i++) {
		const struct set_result *s = &r->sets[i];

		printf("%s: %llu samples, %zu bad, %zu not indexed, %zu with warnings (%.0f/s)", s->set,
		       (unsigned long long)s->n, s->found[CT_FINDING_BAD], s->found[CT_FINDING_LEFT_OUT],
		       s->found[CT_FINDING_WARNING], s->seconds > 0 ? (double)s->n / s->seconds : 0);
		if (s->found[CT_FINDING_DAMAGED])
			printf("; %zu damaged shard%s", s->found[CT_FINDING_DAMAGED],
			       ct_plural(s->found[CT_FINDING_DAMAGED]));
		printf("\n");
		if (s->imagenet[0])
			printf("  %s\n", s->imagenet);
	}
	for (size_t i = 0; i < r->findings.n_tags; i++) {
		const struct ct_data_finding_tag *t = &r->findings.tags[i];

		printf("  %-8s %-24s %zu\n", ct_data_finding_name(t->kind), t->tag, t->n);
	}
	print_findings(&r->findings);
	if (r->cli->out)
		printf("report: %s\n", r->cli->out);
}

/* CT_DATA if there are unusable samples. */
static enum ct_status verdict(const struct run *r)
{
	size_t bad = r->findings.counts[CT_FINDING_BAD], left_out = r->findings.counts[CT_FINDING_LEFT_OUT],
	       damaged = r->findings.counts[CT_FINDING_DAMAGED];
	uint64_t n = 0;

	for (int i = 0; i < r->n_sets; i++)
		n += r->sets[i].n + r->sets[i].found[CT_FINDING_LEFT_OUT];
	if (damaged > 0) {
		CT_FAIL(CT_DATA,
			"%zu shard%s cannot be used at all, and %zu of the %llu samples in the other shards are unusable",
			damaged, ct_plural(damaged), bad + left_out, (unsigned long long)n);
		return ct_error_hint(
			"training refuses these shards; download them again, or remove them from the list");
	}
	if (bad + left_out == 0)
		return CT_OK;
	CT_FAIL(CT_DATA, "%zu of %llu samples are unusable (%zu bad, %zu not indexed)", bad + left_out,
		(unsigned long long)n, bad, left_out);
	return ct_error_hint(
		"training replaces up to data.max_bad unreadable samples with others; repair or remove the files");
}

static enum ct_status report(const struct run *r)
{
	CT_TRY(write_report(r));
	if (r->cli->json)
		return print_summary_json(r);
	print_summary(r);
	return CT_OK;
}

enum ct_status ct_cmd_data_check(const struct ct_cli *cli)
{
	const struct ct_check_options *o = cli->own;
	struct run r = {.cli = cli, .labels = o->labels};
	struct ct_error error;
	int64_t threads;

	CT_TRY(ct_cli_number("--threads", cli->threads, ct_cpu_count(), 1, 256, &threads));
	r.threads = (int)threads;
	enum ct_status st = check_all(&r);
	if (st == CT_OK) {
		st = report(&r);
		if (st == CT_OK)
			st = verdict(&r);
	} else if (r.n_sets > 0) {
		/* Prints the findings before the error, because finding them may have taken a long time. */
		ct_error_save(&error);
		(void)!report(&r);
		st = ct_error_restore(&error);
	}
	ct_data_findings_release(&r.findings);
	for (size_t i = 0; i < CT_ARRAY_LEN(r.sets); i++)
		ct_free(r.sets[i].name);
	return st;
}
