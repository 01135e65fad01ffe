/* The graphs of the table: those of the models in configs/, and of the runs of the gate. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "bench/cudnn_plans.h"
#include "nn/cuda/arenas.h"
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/layout.h"
#include "trainer/plan/run_plan.h"

enum { MAX_RUNS = 1 << 20, MAX_SETS = 16 };

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

/* ---- Programs ----------------------------------------------------------------------------------------- */

/* Adds the graphs of the net compiled for n rows of images of one size. */
static enum ct_status add_program(ct_net *net, const struct ct_config *c, const struct ct_dataset_info *info,
				  struct ct_shape input, uint32_t n, enum ct_mode mode)
{
	ct_graph *g;

	CT_TRY(ct_plan_graph(c, info, input, &g));
	struct cuda_program p = {.base = {.net = net, .graph = g, .n = (int)n, .mode = mode}};
	const enum ct_status st = ct__cuda_compile_tasks(&p);
	ct__cuda_release_tasks(&p);
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
static enum ct_status add_levels(ct_net *net, const struct plans_table *t, const struct ct_config *c,
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

static enum ct_status add_net(struct plans_table *t, const struct ct_config *c, const struct ct_dataset_info *info,
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
			st = plans_add_row(t, ct__cudnn_choices_at(all, i), precision);
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

static enum ct_status add_config(struct plans_table *t, const char *path, const struct ct_config_set *sets, size_t n_sets,
				 uint32_t world)
{
	struct ct_config *c;
	struct ct_dataset_info train, val;
	struct ct_run_plan p;
	enum ct_status st;

	CT_TRY(ct_config_load(path, sets, n_sets, &c));
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

static enum ct_status add_file(struct plans_table *t, const char *name)
{
	char *path = ct_path_join(t->configs_dir, name);
	bool global = false;
	enum ct_status st;

	CT_TRY_ALLOC(path);
	st = has_global_batch(path, &global);
	for (uint32_t world = 1; st == CT_OK && world <= (global ? 8 : 1); world *= 2)
		st = add_config(t, path, NULL, 0, world);
	ct_free(path);
	return st;
}

static enum ct_status add_files(struct plans_table *t)
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

/* Ends the string at the next `end`, and moves *at to the character after it. NULL: there is nothing left. */
static char *next_field(char **at, char end)
{
	char *field = *at;

	if (!*field)
		return NULL;
	*at += strcspn(field, (char[2]){end, '\0'});
	if (**at)
		*(*at)++ = '\0';
	return field;
}

/* A line: the path of a config, then KEY=VALUE strings, separated by tabs. */
static enum ct_status add_run(struct plans_table *t, char *line)
{
	struct ct_config_set sets[MAX_SETS];
	const char *path = next_field(&line, '\t');
	size_t n = 0;

	for (char *set = next_field(&line, '\t'); set; set = next_field(&line, '\t')) {
		const char *key = next_field(&set, '=');

		if (!*set || n == MAX_SETS)
			return CT_FAIL(CT_DATA, "%s: %s has no value, or there are too many keys", t->runs_path, key);
		sets[n++] = (struct ct_config_set){key, set, t->runs_path};
	}
	return path ? add_config(t, path, sets, n, 1) : CT_FAIL(CT_DATA, "%s: a line is empty", t->runs_path);
}

static enum ct_status add_runs(struct plans_table *t)
{
	char *text, *at;
	size_t n;
	enum ct_status st = CT_OK;

	CT_TRY(ct_file_read(t->runs_path, MAX_RUNS, &text, &n));
	at = text;
	for (char *line = next_field(&at, '\n'); st == CT_OK && line; line = next_field(&at, '\n'))
		st = add_run(t, line);
	ct_free(text);
	return st;
}

enum ct_status plans_add_graphs(struct plans_table *t)
{
	CT_TRY(add_files(t));
	return add_runs(t);
}
