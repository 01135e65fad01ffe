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

/* The graphs of the model for `rows` images of one size. */
struct program {
	struct ct_shape input;
	uint32_t rows;
	enum ct_mode mode;
};

/* What is asked about one model, for every number of ranks. */
struct programs {
	struct program *list;
	size_t n, cap;
};

static enum ct_status need(struct programs *ps, struct ct_shape input, uint32_t rows, enum ct_mode mode)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct program *p = &ps->list[i];

		if (p->rows == rows && p->mode == mode && p->input.h == input.h && p->input.w == input.w)
			return CT_OK;
	}
	CT_TRY_GROW(ps->list, ps->n, ps->cap);
	ps->list[ps->n++] = (struct program){input, rows, mode};
	return CT_OK;
}

static enum ct_status need_training(struct programs *ps, const struct ct_run_plan *p, uint32_t rows)
{
	struct ct_shape input = p->input;

	CT_TRY(need(ps, input, rows, CT_TRAIN));
	for (int i = 0; i < p->n_sizes; i++) {
		input.h = p->sizes[i].h;
		input.w = p->sizes[i].w;
		CT_TRY(need(ps, input, rows, CT_TRAIN));
	}
	return CT_OK;
}

/* The last step of an epoch can have fewer rows, and not the same number on each rank and in each micro-batch. The last
 * batch of an evaluation uses the program of the others. */
static enum ct_status need_last_step(struct programs *ps, const struct ct_run_plan *p)
{
	struct ct_sampler s = p->train;

	for (s.rank = 0; s.rank < s.world; s.rank++) {
		for (uint32_t i = 0; i < s.accumulate; i++) {
			const uint32_t rows = ct_sampler_slice(&s, p->steps_per_epoch - 1, i).count;

			if (rows > 0)
				CT_TRY(need_training(ps, p, rows));
		}
	}
	return CT_OK;
}

/* The first part has the last steps that cost little time. The second part has those of every number of ranks and of
 * ImageNet. */
static enum ct_status need_part(struct programs *ps, const struct ct_run_plan *p, bool second)
{
	if (second)
		return need_last_step(ps, p);
	CT_TRY(need_training(ps, p, p->micro_rows));
	CT_TRY(need(ps, p->val_input, p->eval_rows, CT_EVAL));
	return p->world == 1 && !p->encoded ? need_last_step(ps, p) : CT_OK;
}

static enum ct_status compile(ct_net *net, const struct ct_config *c, const struct ct_dataset_info *info,
			      const struct program *program)
{
	ct_graph *g;

	CT_TRY(ct_plan_graph(c, info, program->input, &g));
	struct cuda_program p = {.base = {.net = net, .graph = g, .n = (int)program->rows, .mode = program->mode}};
	const enum ct_status st = ct__cuda_compile_tasks(&p);
	ct__cuda_release_tasks(&p);
	ct_graph_destroy(g);
	return st;
}

/* Compiles the programs at one level, and adds their graphs to the table. */
static enum ct_status add_level(ct_net *net, struct plans_table *t, const struct ct_config *c,
				const struct ct_dataset_info *info, const struct programs *ps)
{
	const struct cuda_engine *e = (const struct cuda_engine *)net->engine;

	for (size_t i = 0; i < ps->n; i++)
		CT_TRY(compile(net, c, info, &ps->list[i]));
	for (size_t i = 0; i < ct__cudnn_choices_count(e->choices); i++)
		CT_TRY(plans_add_row(t, ct__cudnn_choices_at(e->choices, i), net->opts.precision));
	return CT_OK;
}

/* The graphs without fusion, and those with fusion on each card: the engine fuses only what cuDNN has plans for. It
 * does not ask about a graph that is among its choices, so these are others for each card. */
static enum ct_status add_levels(ct_net *net, struct plans_table *t, const struct ct_config *c,
				 const struct ct_dataset_info *info, const struct programs *ps)
{
	struct cuda_engine *e = (struct cuda_engine *)net->engine;
	enum ct_status st = add_level(net, t, c, info, ps);

	e->level = 1;
	for (int d = 0; st == CT_OK && d < PLANS_DEVICES; d++) {
		ct__cudnn_choices_destroy(e->choices);
		e->choices = NULL;
		st = ct__cudnn_choices_create(&e->choices);
		e->target = t->targets[d];
		if (st == CT_OK)
			st = add_level(net, t, c, info, ps);
	}
	e->target = NULL; /* it belongs to the table */
	return st;
}

static enum ct_status add_net(struct plans_table *t, const struct ct_config *c, const struct ct_dataset_info *info,
			      struct ct_run_plan *p, const struct programs *ps, enum ct_precision precision)
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
		st = add_levels(net, t, c, info, ps);
	ct_net_destroy(net);
	ct_engine_close(engine);
	ct_graph_destroy(g);
	return st;
}

/* ---- Configs ------------------------------------------------------------------------------------------ */

/* The number of samples decides how many rows the last step of an epoch has. */
static enum ct_status count_samples(const struct ct_config *c, uint32_t *train, uint32_t *val)
{
	switch (c->data.name) {
	case CT_CFG_DATA_MNIST:
	case CT_CFG_DATA_FASHION_MNIST:
		*train = 60000;
		*val = 10000;
		return CT_OK;
	case CT_CFG_DATA_CIFAR10:
	case CT_CFG_DATA_CIFAR100:
		*train = 50000;
		*val = 10000;
		return CT_OK;
	case CT_CFG_DATA_SYNTHETIC:
	case CT_CFG_DATA_SYNTHETIC_REGRESSION:
		*train = (uint32_t)c->data.n_train;
		*val = (uint32_t)c->data.n_val;
		return CT_OK;
	case CT_CFG_DATA_IMAGEFOLDER:
	case CT_CFG_DATA_SHARDS:
		if (c->data.classes == 1000) { /* ImageNet */
			*train = 1281167;
			*val = 50000;
			return CT_OK;
		}
		break;
	case CT_CFG_DATA_IDX:
		break;
	}
	return CT_FAIL(CT_DATA, "the number of samples of data.name=%s is unknown", ct_config_choice(c, "data.name"));
}

/* What the data files would say. */
static enum ct_status foresee(const struct ct_config *c, struct ct_dataset_info *train, struct ct_dataset_info *val)
{
	CT_TRY(ct_plan_foresee_data(c, train));
	if (train->h == 0) { /* MNIST */
		train->c = 1;
		train->h = train->w = 28;
	}
	*val = *train;
	return count_samples(c, &train->n, &val->n);
}

/* On `most` ranks, on half of them, and so on, down to one rank, whose plan is that of the net. */
static enum ct_status add_worlds(struct plans_table *t, const struct ct_config *c, uint32_t most)
{
	struct ct_dataset_info train, val;
	struct programs ps = {0};
	struct ct_run_plan p;
	enum ct_status st = foresee(c, &train, &val);

	for (uint32_t world = most; st == CT_OK && world > 0; world /= 2) {
		st = ct_run_plan_make(c, world, &train, &val, &p);
		if (st == CT_OK)
			st = need_part(&ps, &p, t->second);
	}
	for (int precision = CT_PRECISION_FP32; st == CT_OK && ps.n > 0 && precision <= CT_PRECISION_TF32; precision++)
		st = add_net(t, c, &train, &p, &ps, (enum ct_precision)precision);
	ct_free(ps.list);
	return st;
}

/* The sizes of a user's own images are not known. */
static bool has_own_images(const struct ct_config *c)
{
	return c->data.name == CT_CFG_DATA_IMAGEFOLDER && c->data.classes != 1000; /* that is ImageNet */
}

static enum ct_status add_config(struct plans_table *t, const char *path, const struct ct_config_set *sets,
				 size_t n_sets, uint32_t most)
{
	struct ct_config *c;
	enum ct_status st = CT_OK;

	CT_TRY(ct_config_load(path, sets, n_sets, &c));
	if (!has_own_images(c))
		st = add_worlds(t, c, most);
	ct_config_destroy(c);
	return st < 0 ? ct_error_wrap("%s", path) : CT_OK;
}

static enum ct_status add_file(struct plans_table *t, const char *name)
{
	char *path = ct_path_join(t->configs_dir, name);
	enum ct_status st;

	CT_TRY_ALLOC(path);
	st = add_config(t, path, NULL, 0, 8);
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
	CT_TRY(add_runs(t));
	t->n_first = t->n_rows;
	t->second = true;
	return t->check && !t->all ? CT_OK : add_files(t);
}
