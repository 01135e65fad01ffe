/* The heuristics of cuDNN propose configurations, best first; each is checked before it becomes a plan. The notes of
 * its engine are read first, because finalizing a plan can take up to a second. Configurations that cuDNN does not
 * finalize are skipped and counted. A lack of memory is different: if it only skipped a configuration, the choice, and
 * with it the last bits of results, would depend on what else uses the device. The fallbacks are asked only if there is
 * no candidate at all, not even one that was excluded because it is compiled at run time. */
#include "nn/cuda/cudnn/plan.h"

#include <string.h>

#include "base/mem.h"
#include "nn/cuda/cudnn/descriptor.h"

#define CT_LOG_COMPONENT "cudnn"
#include "base/log.h"

enum { MAX_CONFIGS = 96, MAX_NOTES = 16 };

struct ct__cudnn_target {
	cudnnBackendDescriptor_t properties;
};

struct ct__cudnn_plan {
	cudnnBackendDescriptor_t plan;
	struct ct__cudnn_plan_info info;
};

struct ct__cudnn_pack {
	cudnnBackendDescriptor_t pack;
};

static enum ct_status fill_target(cudnnBackendDescriptor_t d, const char *json, int device)
{
	if (json) {
		CT_TRY(ct__cudnn_set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
				     (int64_t)strlen(json) + 1, json));
	} else {
		const int32_t id = device;

		CT_TRY(ct__cudnn_set(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id));
	}
	return ct__cudnn_finalize(d, "reading the properties of the device");
}

static enum ct_status create_target(const char *json, int device, ct__cudnn_target **out)
{
	ct__cudnn_target *t;
	enum ct_status st;

	CT_TRY_ALLOC(t = CT_NEW(ct__cudnn_target));
	st = ct__cudnn_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &t->properties);
	if (st == CT_OK)
		st = fill_target(t->properties, json, device);
	if (st < 0) {
		ct__cudnn_target_destroy(t);
		return st;
	}
	*out = t;
	return CT_OK;
}

enum ct_status ct__cudnn_target_create(int device, ct__cudnn_target **out)
{
	return create_target(NULL, device, out);
}

enum ct_status ct__cudnn_target_from_json(const char *json, ct__cudnn_target **out)
{
	return create_target(json, 0, out);
}

void ct__cudnn_target_destroy(ct__cudnn_target *t)
{
	if (!t)
		return;
	ct__cudnn_destroy(t->properties);
	ct_free(t);
}

static enum ct_status read_notes(cudnnBackendDescriptor_t engine, struct ct__cudnn_plan_info *info)
{
	cudnnBackendNumericalNote_t numerical[MAX_NOTES];
	cudnnBackendBehaviorNote_t behavior[MAX_NOTES];
	int64_t n_numerical = 0, n_behavior = 0;

	CT_TRY(ct__cudnn_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
			     &n_numerical, numerical, "reading the numerical notes of an engine"));
	CT_TRY(ct__cudnn_get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES, &n_behavior,
			     behavior, "reading the behavior notes of an engine"));
	info->deterministic = true;
	for (int64_t i = 0; i < n_numerical && i < MAX_NOTES; i++) {
		info->tensor_core |= numerical[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
		info->down_convert |= numerical[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
		info->reduced_reduction |= numerical[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
		info->deterministic &= numerical[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
	}
	for (int64_t i = 0; i < n_behavior && i < MAX_NOTES; i++)
		info->compiled_at_run_time |= behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
	return CT_OK;
}

static enum ct_status read_info(cudnnBackendDescriptor_t config, struct ct__cudnn_plan_info *info)
{
	cudnnBackendDescriptor_t engine;
	int64_t n = 0;
	enum ct_status st;

	CT_TRY(ct__cudnn_config_read(config, info->config, &info->engine));
	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
	st = ct__cudnn_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine,
			   "reading the engine of a configuration");
	if (st == CT_OK)
		st = read_notes(engine, info);
	ct__cudnn_destroy(engine);
	return st;
}

/* What is known before the plan is finalized, which takes up to a second if the engine is compiled. */
static bool has_allowed_notes(const struct ct__cudnn_filter *f, const struct ct__cudnn_plan_info *info)
{
	if (f->precompiled && info->compiled_at_run_time)
		return false;
	if (info->down_convert || info->reduced_reduction || (f->exact && info->tensor_core))
		return false;
	return info->deterministic || !f->deterministic;
}

/* Makes the plan of a configuration whose notes are in p->info. If handle is not NULL, it determines the device. */
static enum ct_status finalize_plan(ct__cudnn_plan *p, const ct__cudnn_target *t, cudnnHandle_t handle,
				    cudnnBackendDescriptor_t config)
{
	int64_t n = 0;

	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
	CT_TRY(ct__cudnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
			     &config));
	if (handle)
		CT_TRY(ct__cudnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
	else
		CT_TRY(ct__cudnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
				     &t->properties));
	CT_TRY(ct__cudnn_finalize(p->plan, "finalizing a plan"));
	return ct__cudnn_get(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
			     &p->info.workspace_bytes, "reading the workspace size of a plan");
}

/* Sets *allowed to whether the filter allows the plan. If not, it may not have been finalized. */
static enum ct_status try_plan(ct__cudnn_plan *p, const ct__cudnn_target *t, const struct ct__cudnn_filter *filter,
			       cudnnBackendDescriptor_t config, bool *allowed)
{
	CT_TRY(read_info(config, &p->info));
	*allowed = has_allowed_notes(filter, &p->info);
	if (!*allowed)
		return CT_OK;
	CT_TRY(finalize_plan(p, t, NULL, config));
	*allowed = p->info.workspace_bytes <= filter->max_workspace_bytes;
	return CT_OK;
}

struct search {
	const ct__cudnn_graph *graph;
	const ct__cudnn_target *target;
	const struct ct__cudnn_filter *filter;
	int max;
	struct ct__cudnn_candidates *out;
	bool has_run_time; /* a configuration was excluded because its engine is compiled at run time */
};

/* Adds the plan of a configuration to the candidates if cuDNN finalizes it and the filter allows it. A lack of memory
 * ends the search, because the choice would depend on chance. */
static enum ct_status add_plan(struct search *s, cudnnBackendDescriptor_t config)
{
	struct ct__cudnn_candidates *out = s->out;
	bool allowed = false;
	ct__cudnn_plan *p;

	CT_TRY_ALLOC(p = CT_NEW(ct__cudnn_plan));
	const enum ct_status st = try_plan(p, s->target, s->filter, config, &allowed);
	if (st == CT_OK && allowed) {
		out->plans[out->n++] = p;
		return CT_OK;
	}
	if (st == CT_OK) {
		out->n_filtered++;
		s->has_run_time |= s->filter->precompiled && p->info.compiled_at_run_time;
	} else if (st == CT_UNSUPPORTED) {
		out->n_refused++;
	} else if (st != CT_NOMEM) {
		CT_DEBUG("plan %s of \"%s\" is skipped: %s", p->info.config, ct__cudnn_graph_text(s->graph),
			 ct_error_message());
		out->n_failed++;
		ct_error_save(&out->failure);
	}
	ct__cudnn_plan_destroy(p);
	if (st == CT_NOMEM)
		return st;
	ct_error_clear();
	return CT_OK;
}

static enum ct_status run_heuristics(cudnnBackendDescriptor_t h, const ct__cudnn_graph *g, const ct__cudnn_target *t,
				     cudnnBackendHeurMode_t mode)
{
	const cudnnBackendDescriptor_t graph = ct__cudnn_graph_descriptor(g);

	CT_TRY(ct__cudnn_set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
	CT_TRY(ct__cudnn_set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	CT_TRY(ct__cudnn_set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->properties));
	return ct__cudnn_finalize(h, "running the heuristics");
}

/* The configurations that a heuristic proposes. The caller destroys configs[0..MAX_CONFIGS). */
static enum ct_status propose(const ct__cudnn_graph *g, const ct__cudnn_target *t, cudnnBackendHeurMode_t mode,
			      cudnnBackendDescriptor_t *configs, int64_t *n)
{
	cudnnBackendDescriptor_t h;
	enum ct_status st;

	*n = 0;
	for (int i = 0; i < MAX_CONFIGS; i++)
		CT_TRY(ct__cudnn_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h));
	st = run_heuristics(h, g, t, mode);
	if (st == CT_OK)
		st = ct__cudnn_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, n,
				   configs, "reading the results of the heuristics");
	if (*n > MAX_CONFIGS)
		*n = MAX_CONFIGS;
	ct__cudnn_destroy(h);
	return st;
}

static enum ct_status add_plans(struct search *s, cudnnBackendHeurMode_t mode)
{
	cudnnBackendDescriptor_t configs[MAX_CONFIGS] = {NULL};
	int64_t n;
	enum ct_status st = propose(s->graph, s->target, mode, configs, &n);

	/* A graph without any engine is not an error of the heuristics: the caller reports it. */
	if (st == CT_UNSUPPORTED) {
		ct_error_clear();
		st = CT_OK;
	}
	for (int64_t i = 0; st == CT_OK && i < n && s->out->n < s->max; i++)
		st = add_plan(s, configs[i]);
	for (int i = 0; i < MAX_CONFIGS; i++)
		ct__cudnn_destroy(configs[i]);
	return st;
}

/* There is no candidate. */
static enum ct_status nothing_found(const struct search *s)
{
	const struct ct__cudnn_candidates *c = s->out;

	if (c->n_failed == 0)
		return CT_FAIL(
			CT_UNSUPPORTED,
			"cuDNN has no usable plan for \"%s\" (cuDNN rejected %d configurations, and %d are not allowed)",
			ct__cudnn_graph_text(s->graph), c->n_refused, c->n_filtered);
	(void)ct_error_restore(&c->failure);
	return ct_error_wrap(
		"cuDNN has no usable plan for \"%s\" (cuDNN rejected %d configurations, %d are not allowed, and %d failed); last error",
		ct__cudnn_graph_text(s->graph), c->n_refused, c->n_filtered, c->n_failed);
}

enum ct_status ct__cudnn_plan_find(const ct__cudnn_graph *g, const ct__cudnn_target *t,
				   const struct ct__cudnn_filter *filter, int max, struct ct__cudnn_candidates *out)
{
	struct search s = {.graph = g, .target = t, .filter = filter, .max = max, .out = out};
	enum ct_status st;

	*out = (struct ct__cudnn_candidates){0};
	CT_TRY_ALLOC(out->plans = CT_NEW_ARRAY(ct__cudnn_plan *, (size_t)max));
	st = add_plans(&s, CUDNN_HEUR_MODE_A);
	if (st == CT_OK && out->n == 0 && !s.has_run_time)
		st = add_plans(&s, CUDNN_HEUR_MODE_FALLBACK);
	if (st < 0)
		st = ct_error_wrap("finding plans for \"%s\"", ct__cudnn_graph_text(g));
	else if (out->n == 0)
		st = nothing_found(&s);
	if (st < 0)
		ct__cudnn_candidates_release(out);
	return st;
}

enum ct_status ct__cudnn_plan_make(const ct__cudnn_graph *g, const ct__cudnn_target *t,
				   const struct ct__cudnn_filter *filter, const char *config, ct__cudnn_plan **out)
{
	cudnnBackendDescriptor_t d;
	bool allowed = false;
	ct__cudnn_plan *p;

	CT_TRY(ct__cudnn_config_make(g, t->properties, config, &d));
	p = CT_NEW(ct__cudnn_plan);
	enum ct_status st = p ? try_plan(p, t, filter, d, &allowed) : CT_NOMEM;
	ct__cudnn_destroy(d);
	if (st == CT_OK && !allowed)
		st = CT_FAIL(CT_UNSUPPORTED, "configuration %s of \"%s\" is not allowed", config,
			     ct__cudnn_graph_text(g));
	if (st < 0) {
		ct__cudnn_plan_destroy(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

enum ct_status ct__cudnn_plan_rebuild(ct__cudnn_plan *p, const ct__cudnn_graph *g, const ct__cudnn_target *t,
				      cudnnHandle_t handle)
{
	ct__cudnn_plan made = {.info = p->info};
	cudnnBackendDescriptor_t config;

	CT_TRY(ct__cudnn_config_make(g, t->properties, p->info.config, &config));
	const enum ct_status st = finalize_plan(&made, t, handle, config);
	ct__cudnn_destroy(config);
	/* The memory for its workspace is there already. */
	if (st < 0 || made.info.workspace_bytes > p->info.workspace_bytes) {
		ct__cudnn_destroy(made.plan);
		return st < 0 ? st : CT_FAIL(CT_UNSUPPORTED, "the plan needs more workspace with a handle");
	}
	ct__cudnn_destroy(p->plan);
	*p = made;
	return CT_OK;
}

void ct__cudnn_candidates_release(struct ct__cudnn_candidates *c)
{
	for (int i = 0; i < c->n; i++)
		ct__cudnn_plan_destroy(c->plans[i]);
	ct_free(c->plans);
	c->plans = NULL;
	c->n = 0;
}

ct__cudnn_plan *ct__cudnn_candidates_take(struct ct__cudnn_candidates *c, int i)
{
	ct__cudnn_plan *p = c->plans[i];

	c->plans[i] = NULL;
	return p;
}

void ct__cudnn_plan_destroy(ct__cudnn_plan *p)
{
	if (!p)
		return;
	ct__cudnn_destroy(p->plan);
	ct_free(p);
}

const struct ct__cudnn_plan_info *ct__cudnn_plan_info(const ct__cudnn_plan *p)
{
	return &p->info;
}

static enum ct_status fill_pack(cudnnBackendDescriptor_t pack, const ct__cudnn_graph *g, void *const *pointers,
				void *workspace)
{
	int64_t ids[CT__CUDNN_MAX_TENSORS];
	void *memory[CT__CUDNN_MAX_TENSORS];
	int n = 0;

	for (int id = 1; id <= ct__cudnn_graph_n_tensors(g); id++) {
		if (ct__cudnn_graph_is_virtual(g, id))
			continue;
		ids[n] = id;
		memory[n++] = pointers[id - 1];
	}
	CT_TRY(ct__cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids));
	CT_TRY(ct__cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, memory));
	CT_TRY(ct__cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
	return ct__cudnn_finalize(pack, "finalizing a variant pack");
}

enum ct_status ct__cudnn_pack_create(const ct__cudnn_graph *g, void *const *pointers, void *workspace,
				     ct__cudnn_pack **out)
{
	ct__cudnn_pack *p;
	enum ct_status st;

	CT_TRY_ALLOC(p = CT_NEW(ct__cudnn_pack));
	st = ct__cudnn_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack);
	if (st == CT_OK)
		st = fill_pack(p->pack, g, pointers, workspace);
	if (st < 0) {
		ct__cudnn_pack_destroy(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

void ct__cudnn_pack_destroy(ct__cudnn_pack *p)
{
	if (!p)
		return;
	ct__cudnn_destroy(p->pack);
	ct_free(p);
}

enum ct_status ct__cudnn_plan_execute(ct__cudnn_plan *p, const ct__cudnn_pack *pack, cudnnHandle_t handle)
{
	CT_TRY(ct__cudnn_check(cudnnBackendExecute(handle, p->plan, pack->pack), "cudnnBackendExecute"));
	p->info.executed = true;
	return CT_OK;
}
