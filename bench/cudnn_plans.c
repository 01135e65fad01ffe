/* Asks cuDNN, without a GPU, which plans it has on an H100 and on an H200 for each operation graph that the CUDA engine builds for the
 * models in configs/, for training and evaluation in every precision. Writes a table with one line for each graph and precision.
 *
 *   build/release/bench/cudnn_plans                     writes bench/results/cudnn_plans.tsv
 *   build/release/bench/cudnn_plans --check             compares the table with the answers of the installed cuDNN
 *   --devices DIR --configs DIR --table FILE            other paths [tests/nn/cuda/devices, configs, bench/results/cudnn_plans.tsv]
 *   SOFT_CUDNN_REAL=PATH                                another libcudnn.so.9 than that of the build (environment)
 *
 * The batch sizes are those of the configs, on 1, 2, 4 and 8 ranks if the config sets the global batch, and 64, 128, 256 and 512 for
 * ResNet-50. --check fails if a graph has no plan on one of the cards, if a plan breaks the promise of its filter or, if the table
 * was made with the same version of cuDNN, if the table would be different now.
 *
 * Columns: plans = plans that cuDNN proposes; usable = those that are deterministic, have the arithmetic of the precision and need no more
 * workspace than the engine allows; engine and KiB = the first usable plan in the order of the heuristics and its workspace; least KiB = the smallest
 * workspace of a usable plan. The two cards are in one column if their answers are equal, and otherwise separated by a slash. Engines that
 * cuDNN compiles at run time cannot be finalized without a GPU, so all plans in the table are precompiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "nn/cuda/arenas.h"
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/layout.h"
#include "trainer/plan/run_plan.h"

enum { N_DEVICES = 2, MAX_PLANS = 128, MAX_TABLE = 64 << 20 };
static const char *const devices[N_DEVICES] = {"h100", "h200"};

struct answer { /* of one device */
	int plans, usable;
	int64_t engine, bytes, least_bytes;
};

struct row {
	char *text;
	enum ct_precision precision;
	struct answer answers[N_DEVICES];
};

struct table {
	const char *devices_dir, *configs_dir, *path;
	bool check;
	ct__cudnn_target *targets[N_DEVICES];
	ct_device *device;
	struct row *rows;
	size_t n_rows, rows_cap;
	int n_missing, n_wrong, n_lost;
};

/* ---- An engine that compiles programs but cannot run them -------------------------------------------- */

static enum ct_status open_engine(ct_device *device, int threads, ct_engine **out)
{
	struct cuda_engine *e;

	(void)device;
	(void)threads;
	CT_TRY_ALLOC(e = CT_NEW(struct cuda_engine));
	*out = &e->base;
	return ct__cudnn_choices_create(&e->choices);
}

static enum ct_status open_net(ct_net *net)
{
	CT_TRY_ALLOC(net->impl = CT_NEW(struct cuda_net));
	return ct__cuda_count_elems(net);
}

static bool any_precision(enum ct_precision p, char *why, size_t why_len)
{
	(void)p;
	(void)why;
	(void)why_len;
	return true;
}

/* ---- Questions ---------------------------------------------------------------------------------------- */

/* A plan that the filter should have excluded is a mistake of nn/cuda/cudnn. */
static bool keeps_promise(enum ct_precision p, const struct ct__cudnn_plan_info *i)
{
	return i->deterministic && i->workspace_bytes <= (int64_t)1 << 30 && !i->down_convert &&
	       !i->reduced_reduction && !(i->tensor_core && p == CT_PRECISION_FP32);
}

/* A start that reads the plan cache makes plans from their string forms. */
static bool can_be_made_again(const struct ct__cudnn_choice *choice, const ct__cudnn_target *t,
			      const struct ct__cudnn_plan_info *want)
{
	ct__cudnn_plan *p = NULL;
	bool same = false;

	if (ct__cudnn_plan_make(choice->graph, t, &choice->filter, want->config, &p) == CT_OK)
		same = !memcmp(ct__cudnn_plan_info(p), want, sizeof(*want));
	else
		fprintf(stderr, "%s\n", ct_error_message());
	ct_error_clear();
	ct__cudnn_plan_destroy(p);
	return same;
}

static enum ct_status ask(struct table *t, const struct ct__cudnn_choice *choice, struct row *r, int device)
{
	struct answer *a = &r->answers[device];
	struct ct__cudnn_candidates c;

	*a = (struct answer){.engine = -1};
	const enum ct_status st =
		ct__cudnn_plan_find(choice->graph, t->targets[device], &choice->filter, MAX_PLANS, &c);
	if (st == CT_UNSUPPORTED) {
		ct_error_clear();
		c = (struct ct__cudnn_candidates){0};
	} else if (st < 0) {
		return st;
	}
	a->plans = c.n + c.n_filtered;
	a->usable = c.n;
	for (int i = 0; i < c.n; i++) {
		const struct ct__cudnn_plan_info *info = ct__cudnn_plan_info(c.plans[i]);

		t->n_wrong += !keeps_promise(r->precision, info);
		if (i % 8 == 0) /* all would take minutes */
			t->n_lost += !can_be_made_again(choice, t->targets[device], info);
		if (i == 0) {
			a->engine = info->engine;
			a->bytes = a->least_bytes = info->workspace_bytes;
		}
		a->least_bytes = info->workspace_bytes < a->least_bytes ? info->workspace_bytes : a->least_bytes;
	}
	if (c.n > 0)
		ct__cudnn_candidates_release(&c);
	if (a->usable == 0) {
		fprintf(stderr, "%s: no plan on %s for \"%s\" (%s)\n", choice->name, devices[device], r->text,
			ct_precision_name(r->precision));
		t->n_missing++;
	}
	return CT_OK;
}

static bool is_known(const struct table *t, const char *text, enum ct_precision p)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		if (t->rows[i].precision == p && !strcmp(t->rows[i].text, text))
			return true;
	}
	return false;
}

static enum ct_status add_row(struct table *t, const struct ct__cudnn_choice *choice, enum ct_precision p)
{
	const char *text = ct__cudnn_graph_text(choice->graph);
	struct row *r;

	if (is_known(t, text, p))
		return CT_OK;
	CT_TRY_GROW(t->rows, t->n_rows, t->rows_cap);
	r = &t->rows[t->n_rows];
	*r = (struct row){.precision = p};
	CT_TRY_ALLOC(r->text = ct_strdup(text));
	t->n_rows++;
	for (int d = 0; d < N_DEVICES; d++)
		CT_TRY(ask(t, choice, r, d));
	return CT_OK;
}

/* ---- Programs ----------------------------------------------------------------------------------------- */

/* Adds the graphs of the net compiled for n rows of images of one size. */
static enum ct_status add_program(ct_net *net, const struct ct_config *c, const struct ct_dataset_info *info,
				  struct ct_shape input, uint32_t n, enum ct_mode mode)
{
	ct_graph *g;

	CT_TRY(ct_plan_graph(c, info, input, &g));
	struct cuda_program p = {.base = {.net = net, .graph = g, .n = (int)n, .mode = mode}};
	const enum ct_status st = ct__cuda_compile_tasks(&p);
	ct_free(p.references);
	ct_free(p.tasks);
	ct_free(p.buffers);
	ct_free(p.taps);
	ct_free(p.norms);
	ct_free(p.groups);
	ct_free(p.values);
	ct_graph_destroy(g);
	return st;
}

static enum ct_status add_programs(ct_net *net, const struct ct_config *c, const struct ct_dataset_info *info,
				   const struct ct_run_plan *p)
{
	struct ct_shape input = p->input;

	CT_TRY(add_program(net, c, info, input, p->micro_rows, CT_TRAIN));
	for (int i = 0; i < p->n_sizes; i++) {
		input.h = p->sizes[i].h;
		input.w = p->sizes[i].w;
		CT_TRY(add_program(net, c, info, input, p->micro_rows, CT_TRAIN));
	}
	return add_program(net, c, info, p->val_input, p->eval_rows, CT_EVAL);
}

/* The graphs without and with fusion. The engine fuses only what cuDNN has plans for, so it needs a device. */
static enum ct_status add_levels(ct_net *net, const struct table *t, const struct ct_config *c,
				 const struct ct_dataset_info *info, const struct ct_run_plan *p)
{
	struct cuda_engine *e = (struct cuda_engine *)net->engine;
	enum ct_status st = CT_OK;

	e->target = t->targets[0];
	for (e->level = 0; st == CT_OK && e->level < 2; e->level++)
		st = add_programs(net, c, info, p);
	e->target = NULL; /* it belongs to the table */
	return st;
}

static enum ct_status add_net(struct table *t, const struct ct_config *c, const struct ct_dataset_info *info,
			      struct ct_run_plan *p, enum ct_precision precision)
{
	struct ct_engine_ops ops = ct__engine_ops_cuda;
	ct_engine *engine = NULL;
	ct_graph *g = NULL;
	ct_net *net = NULL;
	enum ct_status st;

	ops.open = open_engine;
	ops.net_open = open_net;
	ops.precision = any_precision;
	p->net.precision = precision;
	p->net.autotune = CT_AUTOTUNE_OFF; /* without the plan cache of this machine */
	st = ct_plan_graph(c, info, p->input, &g);
	if (st == CT_OK)
		st = ct__engine_open_with(&ops, t->device, 1, &engine);
	if (st == CT_OK)
		st = ct_net_create(engine, g, &p->net, &net);
	if (st == CT_OK)
		st = add_levels(net, t, c, info, p);
	if (st == CT_OK) {
		const ct__cudnn_choices *all = ((const struct cuda_engine *)engine)->choices;

		for (size_t i = 0; st == CT_OK && i < ct__cudnn_choices_count(all); i++)
			st = add_row(t, ct__cudnn_choices_at(all, i), precision);
	}
	ct_net_destroy(net);
	ct_engine_close(engine);
	ct_graph_destroy(g);
	return st;
}

/* What the data files of MNIST would say. */
static enum ct_status foresee(const struct ct_config *c, struct ct_dataset_info *out)
{
	CT_TRY(ct_plan_foresee_data(c, out));
	if (out->h == 0) {
		out->c = 1;
		out->h = out->w = 28;
	}
	return CT_OK;
}

static enum ct_status add_config(struct table *t, const char *path, const struct ct_config_set *set, uint32_t world)
{
	struct ct_config *c;
	struct ct_dataset_info train, val;
	struct ct_run_plan p;
	enum ct_status st;

	CT_TRY(ct_config_load(path, set, set ? 1 : 0, &c));
	st = foresee(c, &train);
	val = train;
	if (st == CT_OK)
		st = ct_run_plan_make(c, world, &train, &val, &p);
	for (int precision = CT_PRECISION_FP32; st == CT_OK && precision <= CT_PRECISION_TF32; precision++)
		st = add_net(t, c, &train, &p, (enum ct_precision)precision);
	ct_config_destroy(c);
	return st < 0 ? ct_error_wrap("%s", path) : CT_OK;
}

static enum ct_status has_global_batch(const char *path, bool *out)
{
	struct ct_config *c;

	CT_TRY(ct_config_load(path, NULL, 0, &c));
	*out = c->batch.global > 0;
	ct_config_destroy(c);
	return CT_OK;
}

static enum ct_status add_file(struct table *t, const char *name)
{
	static const char *const rows[] = {"64", "128", "256", "512"};
	char *path = ct_path_join(t->configs_dir, name);
	bool global = false;
	enum ct_status st;

	CT_TRY_ALLOC(path);
	st = has_global_batch(path, &global);
	for (uint32_t world = 1; st == CT_OK && world <= (global ? 8 : 1); world *= 2)
		st = add_config(t, path, NULL, world);
	for (size_t i = 0; st == CT_OK && !strcmp(name, "resnet50_imagenet.yaml") && i < CT_ARRAY_LEN(rows); i++) {
		const struct ct_config_set set = {"batch.per_rank", rows[i], "cudnn_plans"};

		st = add_config(t, path, &set, 1);
	}
	ct_free(path);
	return st;
}

static enum ct_status add_files(struct table *t)
{
	char **names;
	size_t n;
	enum ct_status st = CT_OK;

	CT_TRY(ct_dir_list(t->configs_dir, &names, &n));
	for (size_t i = 0; st == CT_OK && i < n; i++) {
		const size_t len = strlen(names[i]);

		if (len > 5 && !strcmp(names[i] + len - 5, ".yaml"))
			st = add_file(t, names[i]);
	}
	ct_dir_list_free(names, n);
	return st;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static void add_column(struct ct_str *out, int64_t a, int64_t b)
{
	if (a == b)
		ct_str_addf(out, "\t%lld", (long long)a);
	else
		ct_str_addf(out, "\t%lld/%lld", (long long)a, (long long)b);
}

static int64_t kib(int64_t bytes)
{
	return (bytes + 1023) / 1024;
}

static void version_line(struct ct_str *out)
{
	const size_t v = cudnnGetVersion();

	ct_str_addf(out, "# cuDNN %zu.%zu.%zu; cards:", v / 10000, v % 10000 / 100, v % 100);
	for (int d = 0; d < N_DEVICES; d++)
		ct_str_addf(out, " %s", devices[d]);
	ct_str_add(out, "\n");
}

static void write_rows(const struct table *t, struct ct_str *out)
{
	version_line(out);
	ct_str_add(out, "# Generated by bench/cudnn_plans, which explains the columns.\n"
			"precision\tplans\tusable\tengine\tKiB\tleast KiB\tgraph\n");
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct row *r = &t->rows[i];
		const struct answer *a = &r->answers[0], *b = &r->answers[1];

		ct_str_add(out, ct_precision_name(r->precision));
		add_column(out, a->plans, b->plans);
		add_column(out, a->usable, b->usable);
		add_column(out, a->engine, b->engine);
		add_column(out, kib(a->bytes), kib(b->bytes));
		add_column(out, kib(a->least_bytes), kib(b->least_bytes));
		ct_str_addf(out, "\t%s\n", r->text);
	}
}

static void print_summary(const struct table *t)
{
	for (int p = CT_PRECISION_FP32; p <= CT_PRECISION_TF32; p++) {
		int n = 0, n_single = 0;
		int64_t most = 0;

		for (size_t i = 0; i < t->n_rows; i++) {
			const struct row *r = &t->rows[i];

			if (r->precision != (enum ct_precision)p)
				continue;
			n++;
			for (int d = 0; d < N_DEVICES; d++) {
				n_single += r->answers[d].usable == 1;
				most = r->answers[d].bytes > most ? r->answers[d].bytes : most;
			}
		}
		printf("%s: %d graphs; %d times only one usable plan; the largest workspace of a first plan is %lld MiB\n",
		       ct_precision_name((enum ct_precision)p), n, n_single, (long long)(kib(most) + 1023) / 1024);
	}
	printf("%d graphs without a plan, %d plans against their filter, %d plans that cannot be made again\n",
	       t->n_missing, t->n_wrong, t->n_lost);
}

/* Prints the first line that differs. */
static enum ct_status differs(const struct table *t, const char *old, const char *now)
{
	int line = 1;

	for (; *old && *old == *now; old++, now++)
		line += *old == '\n';
	if (*old == *now)
		return CT_OK;
	return CT_FAIL_HINT(CT_DATA, "if that is intended, make the table again with build/release/bench/cudnn_plans",
			    "%s: line %d is not what the engine and cuDNN give now", t->path, line);
}

static enum ct_status compare(const struct table *t, const struct ct_str *now)
{
	struct ct_str version = {0};
	char *old;
	size_t len;

	CT_TRY(ct_file_read(t->path, MAX_TABLE, &old, &len));
	version_line(&version);
	enum ct_status st = ct_str_status(&version);
	if (st == CT_OK && strncmp(old, version.s, version.len) != 0)
		printf("%s was made with another version of cuDNN and is not compared\n", t->path);
	else if (st == CT_OK)
		st = differs(t, old, ct_str_text(now));
	ct_str_release(&version);
	ct_free(old);
	return st;
}

static enum ct_status finish(const struct table *t)
{
	struct ct_str out = {0};
	enum ct_status st;

	print_summary(t);
	if (t->n_missing || t->n_wrong || t->n_lost || t->n_rows == 0)
		return CT_FAIL(CT_UNSUPPORTED, "cuDNN does not have the plans that the engine needs");
	write_rows(t, &out);
	st = ct_str_status(&out);
	if (st == CT_OK)
		st = t->check ? compare(t, &out) : ct_file_replace(t->path, out.s, out.len);
	ct_str_release(&out);
	return st;
}

static enum ct_status open_targets(struct table *t)
{
	for (int i = 0; i < N_DEVICES; i++) {
		char path[512], *json;
		size_t n;
		enum ct_status st;

		snprintf(path, sizeof(path), "%s/%s.json", t->devices_dir, devices[i]);
		CT_TRY(ct_file_read(path, 1 << 16, &json, &n));
		st = ct__cudnn_target_from_json(json, &t->targets[i]);
		ct_free(json);
		if (st < 0)
			return ct_error_wrap("%s", path);
	}
	return ct_device_open("cpu", 0, &t->device);
}

static void release(struct table *t)
{
	for (size_t i = 0; i < t->n_rows; i++)
		ct_free(t->rows[i].text);
	ct_free(t->rows);
	for (int i = 0; i < N_DEVICES; i++)
		ct__cudnn_target_destroy(t->targets[i]);
	ct_device_close(t->device);
}

static enum ct_status parse(int argc, char **argv, struct table *t)
{
	const struct {
		const char *name, **to;
	} paths[] = {{"--devices", &t->devices_dir}, {"--configs", &t->configs_dir}, {"--table", &t->path}};

	for (int i = 1; i < argc; i++) {
		bool known = !strcmp(argv[i], "--check");

		t->check |= known;
		for (size_t k = 0; !known && k < CT_ARRAY_LEN(paths) && i + 1 < argc; k++) {
			known = !strcmp(argv[i], paths[k].name);
			if (known)
				*paths[k].to = argv[++i];
		}
		if (!known)
			return CT_FAIL(CT_USAGE, "%s: no such option, or it wants a value", argv[i]);
	}
	return CT_OK;
}

int main(int argc, char **argv)
{
	struct table t = {.devices_dir = "tests/nn/cuda/devices",
			  .configs_dir = "configs",
			  .path = "bench/results/cudnn_plans.tsv"};
	enum ct_status st = parse(argc, argv, &t);

	/* The stand-in reads both at its first call; each question names its device. */
	setenv("SOFT_CUDNN_REAL", CT_CUDNN_LIBRARY, 0);
	setenv("SOFT_CUDNN_DEVICE", "{}", 0);
	if (st == CT_OK)
		st = open_targets(&t);
	if (st == CT_OK)
		st = add_files(&t);
	if (st == CT_OK)
		st = finish(&t);
	release(&t);
	if (st == CT_OK)
		return 0;
	fprintf(stderr, "cudnn_plans: %s\n", ct_error_message());
	if (ct_error_hint_text()[0])
		fprintf(stderr, "hint: %s\n", ct_error_hint_text());
	return ct_status_exit_code(st);
}
