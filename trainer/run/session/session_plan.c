/* The choice, in this order: the file of train.plan; the plan of the checkpoint from which the run continues, so that
 * it continues with the same bits; with train.autotune, what an earlier run on this kind of processor has measured, or,
 * if it is `on`, a measurement; else what the engine suggests. A plan of a file must be usable. One of a checkpoint or
 * of the cache that is not usable here is replaced, with a warning.
 *
 * All ranks measure at the same time, because they share the machine in training, too; the result of rank 0 counts.
 * Only rank 0 reads files. In a pipeline, the plan is that of the whole model, and is not measured, because no rank has
 * the whole model. */
#define CT_LOG_COMPONENT "plan"
#include "trainer/run/session/session_plan_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "nn/plan_cache.h"
#include "nn/tune_plan.h"
#include "trainer/plan/net_plans.h"

#define TUNING_SECONDS 8.0

/* Sets s->net_plan to the plan that is parsed from `text`, if it can be used. */
static enum ct_status use_text(struct ct_session *s, const char *text, const char *source)
{
	return ct_plan_parse_net(text, source, s->engine, ct_session_whole(s), &s->plan.net, &s->net_plan);
}

/* Finds the checkpoint from which training is expected to continue. Sets *path to NULL if there is none. */
static enum ct_status expected_checkpoint(const struct ct_session *s, char **path)
{
	const char *how = ct_session_resume_how(s);
	const bool own = !strcmp(how, "auto") || !strcmp(how, "must");

	*path = NULL;
	if (!strcmp(how, "never"))
		return CT_OK;
	const enum ct_status st = ct_checkpoint_resolve(s->run.dir, own ? "last" : how, path);
	if (st == CT_NOMEM)
		return st;
	ct_error_clear(); /* ct_resume reports what is wrong */
	return CT_OK;
}

/* Uses the plan of the checkpoint if it has one. */
static enum ct_status use_checkpoint(struct ct_session *s, bool *done)
{
	struct ct_ckpt_state state = {0};
	char *path;

	CT_TRY(expected_checkpoint(s, &path));
	if (!path || ct_ckpt_state_read(path, &state) < 0) {
		ct_error_clear();
		ct_free(path);
		return CT_OK;
	}
	if (state.net_plan && use_text(s, state.net_plan, path) < 0) {
		CT_WARN("the plan of the run cannot be used here, so the results of another plan may differ in their "
			"last bits: %s",
			ct_error_message());
		ct_error_clear();
	} else {
		*done = state.net_plan != NULL;
	}
	ct_ckpt_state_release(&state);
	ct_free(path);
	return CT_OK;
}

/* ---- The cache ----------------------------------------------------------------------------------------- */

static enum ct_status open_cache(struct ct_session *s, ct_plan_cache **out)
{
	struct ct_device_info info;
	char key[256];

	CT_TRY(ct_device_info(s->device, &info));
	snprintf(key, sizeof(key), "%s, %s", info.name, ct_engine_version(s->engine));
	CT_TRY(ct_plan_cache_create(key, out));
	const enum ct_status st = ct_plan_cache_load(*out);
	if (st < 0)
		ct_plan_cache_destroy(*out);
	return st;
}

/* What the result of a measurement depends on besides the processor; also the number of methods that ctrain knows. */
static void entry_name(const struct ct_session *s, char *name, size_t len)
{
	char graph[65];

	ct_graph_digest(ct_session_whole(s), graph);
	snprintf(name, len, "%s, %d rows, %s, %d ranks with %d threads, %d methods", graph, s->plan.net.batch,
		 ct_precision_name(s->plan.net.precision), ct_session_local_world(s),
		 ct_plan_threads(s->cfg, ct_session_local_world(s)), CT_CONV_N_METHODS);
}

/* An entry is one line. */
static void swap_all(char *text, char from, char to)
{
	for (char *c = text; (c = strchr(c, from)); c++)
		*c = to;
}

static enum ct_status use_cache(struct ct_session *s, bool *done)
{
	char name[256], *text = NULL;
	ct_plan_cache *cache;

	entry_name(s, name, sizeof(name));
	CT_TRY(open_cache(s, &cache));
	const char *entry = ct_plan_cache_find(cache, name);
	enum ct_status st = entry && !(text = ct_strdup(entry)) ? CT_NOMEM : CT_OK;
	if (text) {
		swap_all(text, ';', '\n');
		*done = use_text(s, text, ct_plan_cache_path(cache)) == CT_OK;
		ct_error_clear(); /* an unusable entry is measured again */
	}
	ct_free(text);
	ct_plan_cache_destroy(cache);
	return st;
}

static enum ct_status keep_in_cache(struct ct_session *s)
{
	struct ct_str text = {0};
	ct_plan_cache *cache;
	char name[256];

	entry_name(s, name, sizeof(name));
	CT_TRY(open_cache(s, &cache));
	ct_net_plan_write(&s->net_plan, &text);
	enum ct_status st = ct_str_status(&text);
	if (st == CT_OK) {
		swap_all(text.s, '\n', ';');
		st = ct_plan_cache_put(cache, name, text.s);
	}
	if (st == CT_OK)
		(void)ct_plan_cache_save(cache);
	ct_str_release(&text);
	ct_plan_cache_destroy(cache);
	return st;
}

/* ---- The choice ---------------------------------------------------------------------------------------- */

static void show_tuning(void *user, size_t done, size_t total)
{
	ct_console_count(user, "measuring plans", done, total);
}

static enum ct_status tune(struct ct_session *s)
{
	struct ct_plan_tuning how = {.seconds = TUNING_SECONDS};

	if (ct_session_is_root(s)) {
		how.progress = show_tuning;
		how.user = s->start.console;
	}
	ct_net_plan_release(&s->net_plan);
	CT_TRY(ct_plan_tune(s->engine, s->model.graph, &s->plan.net, &how, &s->net_plan));
	if (!ct_session_is_root(s))
		return CT_OK;
	CT_INFO("steps of %d rows take %.1f ms by the fastest plan and %.1f ms by the one that the engine suggests",
		how.rows, 1e3 * how.chosen_s, 1e3 * how.suggested_s);
	return keep_in_cache(s);
}

/* Rank 0: sets s->net_plan, or *measure if it must be measured. */
static enum ct_status choose(struct ct_session *s, bool train, bool *measure)
{
	const enum ct_autotune tune_how = s->cfg->train.autotune;
	bool done = false;

	*measure = false;
	if (train && s->cfg->train.plan[0])
		return ct_plan_read_net(s->cfg, s->engine, ct_session_whole(s), &s->plan.net, &s->net_plan);
	if (train)
		CT_TRY(use_checkpoint(s, &done));
	if (!done && train && !s->pipe && tune_how != CT_AUTOTUNE_OFF)
		CT_TRY(use_cache(s, &done));
	if (done)
		return CT_OK;
	*measure = train && !s->pipe && tune_how == CT_AUTOTUNE_ON;
	return *measure ? CT_OK : ct_engine_plan(s->engine, ct_session_whole(s), &s->plan.net, &s->net_plan);
}

/* Sets s->run.net_plan on all ranks to the text of rank 0. */
static enum ct_status share_text(struct ct_session *s)
{
	struct ct_str text = {0};
	uint64_t n = 0;

	if (ct_session_is_root(s)) {
		ct_net_plan_write(&s->net_plan, &text);
		CT_TRY(ct_str_status(&text));
		n = text.len;
		s->run.net_plan = text.s;
	}
	CT_TRY(ct_session_broadcast(s, &n, sizeof(n)));
	if (!s->run.net_plan)
		CT_TRY_ALLOC(s->run.net_plan = CT_NEW_ARRAY(char, n + 1));
	return ct_session_broadcast(s, s->run.net_plan, n);
}

static void log_plan(const struct ct_session *s)
{
	char text[96];

	ct_plan_net_text(&s->net_plan, ct_session_whole(s), text, sizeof(text));
	CT_INFO("plan of the model: %s", text);
}

enum ct_status ct__session_agree_on_plan(struct ct_session *s, bool train)
{
	struct {
		bool exists, measure;
	} plan = {.exists = ct_engine_has_plans(s->engine)};

	if (ct_session_is_root(s) && plan.exists)
		CT_TRY(choose(s, train, &plan.measure));
	CT_TRY(ct_session_broadcast(s, &plan, sizeof(plan)));
	if (!plan.exists)
		return CT_OK;
	/* Ranks with another engine or model take part, too: ct__session_agree_on_work names the difference. */
	if (plan.measure && ct_engine_has_plans(s->engine))
		CT_TRY(tune(s));
	CT_TRY(share_text(s));
	if (!ct_session_is_root(s)) {
		ct_net_plan_release(&s->net_plan);
		CT_TRY(ct_net_plan_parse(s->run.net_plan, "the plan of rank 0", &s->net_plan));
	}
	s->plan.net.plan = &s->net_plan;
	log_plan(s);
	return CT_OK;
}
