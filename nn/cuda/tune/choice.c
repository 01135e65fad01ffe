/* A plan is looked for in this order: among the choices of the engine, in the cache, and then by tuning. Processes, for
 * example the ranks of a host, divide the tuning: each of them claims some graphs that have no plan, tunes them and
 * saves the choices, until there is none left to claim; then it waits for the choices of the others, which it finds in
 * the cache. So all of them have the same plans. Because a claim ends with its process, the others take over what a
 * killed one has not saved. Processes that share a GPU would measure each other's work, so a process also claims its
 * GPU, and those that do not get it only wait. After each claim, the cache is loaded again, because another process may
 * have saved the choice and ended its claim in the meantime. No process waits while it has claimed a graph, because it
 * may not have saved its choice. If saving fails, a process tunes the rest without claims. Entries whose plan can no
 * longer be made are chosen again. Whatever is still without a plan gets the first one that cuDNN proposes.
 *
 * Choices are never moved in memory, because tasks refer to them. If a program fails, its choices without a plan are
 * removed, so that the next program does not fail for the same reason. */
#include "nn/cuda/tune/choice.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "nn/cuda/tune/search.h"
#include "nn/plan_cache.h"

#define CT_LOG_COMPONENT "nn"
#include "base/log.h"

/* While operations are tuned, the cache is saved this often, so that a start that is killed has not tuned in vain. */
static const int64_t save_interval_ns = (int64_t)2 * 1000000000;
/* So long a process waits for others that tune. It looks after the first interval, which doubles up to the last one. */
static const int64_t max_wait_ns = (int64_t)600 * 1000000000;
enum { FIRST_LOOK_MS = 50, LAST_LOOK_MS = 1000 };
/* Graphs that are claimed at a time: enough for all threads that make plans, and few enough to divide the work. */
enum { MAX_CLAIMS = 16 };

struct ct__cudnn_choices {
	struct ct__cudnn_choice **all;
	size_t n, cap;
	ct_plan_cache *cache; /* NULL until plans are tuned */
};

enum ct_status ct__cudnn_choices_create(ct__cudnn_choices **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct__cudnn_choices));
	return CT_OK;
}

static void destroy_choice(struct ct__cudnn_choice *one)
{
	ct__cudnn_plan_destroy(one->plan);
	ct__cudnn_graph_destroy(one->graph);
	ct_free(one);
}

void ct__cudnn_choices_destroy(ct__cudnn_choices *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		destroy_choice(c->all[i]);
	ct_plan_cache_destroy(c->cache);
	ct_free(c->all);
	ct_free(c);
}

static bool same_filter(const struct ct__cudnn_filter *a, const struct ct__cudnn_filter *b)
{
	return a->exact == b->exact && a->deterministic == b->deterministic &&
	       a->max_workspace_bytes == b->max_workspace_bytes;
}

static const struct ct__cudnn_choice *find(const ct__cudnn_choices *c, const ct__cudnn_graph *g,
					   const struct ct__cudnn_filter *filter)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct ct__cudnn_choice *one = c->all[i];

		if (same_filter(&one->filter, filter) &&
		    !strcmp(ct__cudnn_graph_text(one->graph), ct__cudnn_graph_text(g)))
			return one;
	}
	return NULL;
}

/* Owns g if it succeeds. */
static enum ct_status append(ct__cudnn_choices *c, const char *name, ct__cudnn_graph *g,
			     const struct ct__cudnn_filter *filter)
{
	struct ct__cudnn_choice *one;

	if (ct__cudnn_graph_finish(g) < 0)
		return ct_error_wrap("%s", name);
	CT_TRY_GROW(c->all, c->n, c->cap);
	CT_TRY_ALLOC(one = CT_NEW(struct ct__cudnn_choice));
	*one = (struct ct__cudnn_choice){.graph = g, .filter = *filter};
	snprintf(one->name, sizeof(one->name), "%s", name);
	c->all[c->n++] = one;
	return CT_OK;
}

enum ct_status ct__cudnn_choices_add(ct__cudnn_choices *c, const char *name, ct__cudnn_graph *g,
				     const struct ct__cudnn_filter *filter, const struct ct__cudnn_choice **out)
{
	enum ct_status st = CT_OK;

	*out = find(c, g, filter);
	if (!*out)
		st = append(c, name, g, filter);
	if (*out || st < 0)
		ct__cudnn_graph_destroy(g);
	else
		*out = c->all[c->n - 1];
	return st;
}

const char *ct__cudnn_choices_path(const ct__cudnn_choices *c)
{
	return c->cache ? ct_plan_cache_path(c->cache) : NULL;
}

size_t ct__cudnn_choices_count(const ct__cudnn_choices *c)
{
	return c->n;
}

const struct ct__cudnn_choice *ct__cudnn_choices_at(const ct__cudnn_choices *c, size_t i)
{
	return c->all[i];
}

static size_t count_missing(const ct__cudnn_choices *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		n += !c->all[i]->plan;
	return n;
}

/* The first plan that the heuristics propose and that can be made. If it is not the first one that is allowed, results
 * differ from those of other starts in the last bits, so this must not happen silently. */
static enum ct_status take_first(struct ct__cudnn_choice *one, const ct__cudnn_target *t)
{
	struct ct__cudnn_candidates found;

	if (ct__cudnn_plan_find(one->graph, t, &one->filter, 1, &found) < 0)
		return ct_error_wrap("%s", one->name);
	one->plan = ct__cudnn_candidates_take(&found, 0);
	if (found.n_failed > 0)
		CT_WARN("%s: using plan %s, because those that cuDNN prefers failed (%d): %s", one->name,
			ct__cudnn_plan_info(one->plan)->config, found.n_failed, found.failure.message);
	ct__cudnn_candidates_release(&found);
	return CT_OK;
}

static enum ct_status take_first_of_all(ct__cudnn_choices *c, const ct__cudnn_target *t)
{
	for (size_t i = 0; i < c->n; i++) {
		if (!c->all[i]->plan)
			CT_TRY(take_first(c->all[i], t));
	}
	return CT_OK;
}

/* ---- Plans that cannot be executed --------------------------------------------------------------------- */

enum { MAX_OTHERS = 96 };

/* Posts a candidate other than the plan that has failed, first those that cuDNN proposes after it. */
static enum ct_status post_other(struct ct__cudnn_candidates *found, const struct ct__cudnn_choice *one,
				 const struct ct__timing *where, const ct__cudnn_pack *pack, int *which)
{
	const char *failed = ct__cudnn_plan_info(one->plan)->config;
	int first = 0;

	for (int i = 0; i < found->n; i++) {
		if (!strcmp(ct__cudnn_plan_info(found->plans[i])->config, failed))
			first = i;
	}
	for (int k = 1; k < found->n; k++) {
		*which = (first + k) % found->n;
		if (ct__plan_execute(where, one->graph, found->plans[*which], pack) == CT_OK)
			return CT_OK;
		if (!ct__timing_recover(where))
			return ct_error_status();
		ct_error_clear();
	}
	return CT_FAIL(CT_UNSUPPORTED, "no other plan can be executed");
}

static enum ct_status replace(struct ct__cudnn_choice *one, const struct ct__timing *where, const ct__cudnn_pack *pack)
{
	struct ct__cudnn_filter filter = one->filter;
	struct ct__cudnn_candidates found;
	int which = 0;

	filter.max_workspace_bytes = ct__cudnn_plan_info(one->plan)->workspace_bytes;
	CT_TRY(ct__cudnn_plan_find(one->graph, where->target, &filter, MAX_OTHERS, &found));
	const enum ct_status st = post_other(&found, one, where, pack, &which);
	if (st == CT_OK) {
		ct__cudnn_plan_destroy(one->plan);
		one->plan = ct__cudnn_candidates_take(&found, which);
	}
	ct__cudnn_candidates_release(&found);
	return st;
}

enum ct_status ct__cudnn_choices_execute(ct__cudnn_choices *c, const struct ct__cudnn_choice *one,
					 const struct ct__timing *where, const ct__cudnn_pack *pack)
{
	const enum ct_status st = ct__plan_execute(where, one->graph, one->plan, pack);
	char config[CT__CUDNN_CONFIG_MAX];
	struct ct_error first;
	size_t i = 0;

	if (st == CT_OK || st == CT_NOMEM || ct__cudnn_plan_info(one->plan)->executed || !ct__timing_recover(where))
		return st;
	ct_error_save(&first);
	ct_error_clear();
	snprintf(config, sizeof(config), "%s", ct__cudnn_plan_info(one->plan)->config);
	while (c->all[i] != one)
		i++;
	if (replace(c->all[i], where, pack) < 0) {
		ct_error_clear();
		return ct_error_restore(&first);
	}
	CT_WARN("%s: using plan %s, because plan %s failed: %s", one->name, ct__cudnn_plan_info(one->plan)->config,
		config, first.message);
	return CT_OK;
}

/* ---- The cache ---------------------------------------------------------------------------------------- */

/* The name of the entry, owned by the caller: everything that the choice depends on, except the key of the cache. */
static char *entry_name(const ct__cudnn_graph *g, const struct ct__cudnn_filter *filter)
{
	return ct_strfmt("%s %s %lld %s", filter->exact ? "exact" : "any",
			 filter->deterministic ? "deterministic" : "any", (long long)filter->max_workspace_bytes,
			 ct__cudnn_graph_text(g));
}

/* Makes the plan of an entry. The checksum of the file does not prove that cuDNN still has the plan. If it cannot be
 * made, another plan is chosen, because every later start would fail as well. */
static enum ct_status take_cached(struct ct__cudnn_choice *one, const ct__cudnn_target *t,
				  const struct ct__timing *where, const ct_plan_cache *cache)
{
	char *name = entry_name(one->graph, &one->filter);
	const char *config = name ? ct_plan_cache_find(cache, name) : NULL;

	ct_free(name);
	if (!config || !strcmp(config, one->refused))
		return name ? CT_OK : CT_NOMEM;
	const enum ct_status st = ct__cudnn_plan_make(one->graph, t, &one->filter, config, &one->plan);
	if (st == CT_OK || st == CT_NOMEM || !ct__timing_recover(where))
		return st;
	CT_WARN("%s: choosing a plan again: %s", ct_plan_cache_path(cache), ct_error_message());
	ct_error_clear();
	snprintf(one->refused, sizeof(one->refused), "%s", config);
	return CT_OK;
}

static enum ct_status load_cache(ct__cudnn_choices *c, const ct__cudnn_target *t, const struct ct__timing *where)
{
	CT_TRY(ct_plan_cache_load(c->cache));
	for (size_t i = 0; i < c->n; i++) {
		if (!c->all[i]->plan)
			CT_TRY(take_cached(c->all[i], t, where, c->cache));
	}
	return CT_OK;
}

static enum ct_status put(ct_plan_cache *cache, const struct ct__cudnn_choice *one)
{
	char *name;
	enum ct_status st;

	CT_TRY_ALLOC(name = entry_name(one->graph, &one->filter));
	st = ct_plan_cache_put(cache, name, ct__cudnn_plan_info(one->plan)->config);
	ct_free(name);
	return st;
}

static enum ct_status need_cache(ct__cudnn_choices *c, ct_device *device)
{
	const size_t v = cudnnGetVersion();
	struct ct_device_info info;
	char *key;

	if (c->cache)
		return CT_OK;
	CT_TRY(ct_device_info(device, &info));
	CT_TRY_ALLOC(key = ct_strfmt("%s, %s, cuDNN %zu.%zu.%zu", info.name, info.arch, v / 10000, v % 10000 / 100,
				     v % 100));
	enum ct_status st = ct_plan_cache_create(key, &c->cache);
	ct_free(key);
	if (st == CT_OK)
		st = ct_plan_cache_load(c->cache);
	return st;
}

enum ct_status ct__cudnn_choices_know(ct__cudnn_choices *c, const ct__cudnn_graph *g,
				      const struct ct__cudnn_filter *filter, enum ct_autotune tune, ct_device *device,
				      bool *known)
{
	char *name;

	*known = find(c, g, filter);
	if (*known || tune == CT_AUTOTUNE_OFF)
		return CT_OK;
	CT_TRY(need_cache(c, device));
	CT_TRY_ALLOC(name = entry_name(g, filter));
	*known = ct_plan_cache_find(c->cache, name);
	ct_free(name);
	return CT_OK;
}

/* ---- Tuning -------------------------------------------------------------------------------------------- */

/* What one call of make_tuned has done. */
struct tuning {
	ct__cudnn_choices *c;
	const ct__cudnn_target *t;
	const struct ct__timing *where;
	struct ct__cudnn_choice *claimed[MAX_CLAIMS];
	size_t n_held, n_claimed;  /* n_held: also those that were dropped */
	size_t n_missing, n_tuned; /* n_missing: at the beginning */
	int n_failed;
	bool waited, saved; /* waited: for other processes; saved: the last time */
	int64_t saved_ns;
};

/* Chooses the fastest candidate. If there is no memory to measure them, the first one is chosen, but not kept in the
 * cache. */
static enum ct_status take_fastest(struct tuning *u, struct ct__cudnn_choice *one, struct ct__cudnn_candidates *found)
{
	int64_t ns = 0;
	int best = 0;
	const enum ct_status st = ct__timing_best(u->where, one->graph, found, &best, &ns);

	if (st < 0 && st != CT_NOMEM)
		return ct_error_wrap("%s", one->name);
	one->plan = ct__cudnn_candidates_take(found, best);
	if (st == CT_NOMEM) {
		CT_WARN("%s is not tuned: %s", one->name, ct_error_message());
		ct_error_clear();
		return CT_OK;
	}
	CT_DEBUG("%s: plan %s of %d takes %.1f us: %s", one->name, ct__cudnn_plan_info(one->plan)->config, found->n,
		 (double)ns * 1e-3, ct__cudnn_graph_text(one->graph));
	u->n_tuned++;
	return put(u->c->cache, one);
}

static void show(const struct ct__timing *where, size_t done, size_t total)
{
	if (where->progress)
		where->progress(where->user, done, total);
}

/* Keeps the pending error. */
static void save(struct tuning *u)
{
	struct ct_error pending;

	ct_error_save(&pending);
	ct_error_clear();
	u->saved = ct_plan_cache_save(u->c->cache);
	u->saved_ns = ct_now_ns();
	if (pending.status < 0)
		(void)ct_error_restore(&pending);
}

static enum ct_status tune_claimed(struct tuning *u)
{
	ct__plan_search *search;
	enum ct_status st = CT_OK;

	CT_TRY(ct__plan_search_start(u->claimed, u->n_claimed, u->where->device, &search));
	for (size_t i = 0; i < u->n_claimed; i++) {
		struct ct__cudnn_candidates found;

		st = ct__plan_search_take(search, i, &found);
		if (st < 0)
			break;
		st = take_fastest(u, u->claimed[i], &found);
		ct__cudnn_candidates_release(&found);
		u->n_failed += found.n_failed;
		if (st < 0)
			break;
		if (ct_now_ns() - u->saved_ns >= save_interval_ns)
			save(u);
		show(u->where, u->n_missing - count_missing(u->c), u->n_missing);
	}
	ct__plan_search_stop(search);
	save(u);
	return st;
}

/* Claims choices that have no plan, and drops those for which another process has just saved one. */
static enum ct_status claim(struct tuning *u)
{
	struct ct_device_info info;

	u->n_held = u->n_claimed = 0;
	CT_TRY(ct_device_info(u->where->device, &info));
	(void)ct_plan_cache_begin_claims(u->c->cache); /* without them, this process tunes all */
	const bool alone = ct_plan_cache_claim(u->c->cache, info.uuid);
	for (size_t i = 0; alone && i < u->c->n && u->n_held < MAX_CLAIMS; i++) {
		struct ct__cudnn_choice *one = u->c->all[i];
		char *name = one->plan ? NULL : entry_name(one->graph, &one->filter);

		if (!one->plan && !name)
			return CT_NOMEM;
		if (name && ct_plan_cache_claim(u->c->cache, name))
			u->claimed[u->n_held++] = one;
		ct_free(name);
	}
	CT_TRY(load_cache(u->c, u->t, u->where));
	for (size_t i = 0; i < u->n_held; i++) {
		if (!u->claimed[i]->plan)
			u->claimed[u->n_claimed++] = u->claimed[i];
	}
	return CT_OK;
}

static enum ct_status tune_missing(struct tuning *u)
{
	int64_t changed_ns = ct_now_ns();
	int look_ms = FIRST_LOOK_MS;
	size_t before;

	while ((before = count_missing(u->c)) > 0) {
		CT_TRY(claim(u));
		if (u->n_claimed > 0)
			CT_TRY(tune_claimed(u));
		if (u->n_held > 0)
			ct_plan_cache_end_claims(u->c->cache);
		if (count_missing(u->c) < before) {
			show(u->where, u->n_missing - count_missing(u->c), u->n_missing);
			changed_ns = ct_now_ns();
			look_ms = FIRST_LOOK_MS;
			continue;
		}
		if (!u->waited)
			CT_INFO("other processes are tuning plans: waiting for %s", ct_plan_cache_path(u->c->cache));
		u->waited = true;
		if (ct_now_ns() - changed_ns > max_wait_ns) {
			CT_WARN("other processes have tuned plans for ten minutes: continuing without the plans in %s",
				ct_plan_cache_path(u->c->cache));
			return CT_OK;
		}
		(void)poll(NULL, 0, look_ms);
		look_ms = look_ms * 2 < LAST_LOOK_MS ? look_ms * 2 : LAST_LOOK_MS;
	}
	return CT_OK;
}

static enum ct_status make_tuned(ct__cudnn_choices *c, const ct__cudnn_target *t, enum ct_autotune tune,
				 const struct ct__timing *where)
{
	struct tuning u = {.c = c, .t = t, .where = where, .saved_ns = ct_now_ns()};
	const int64_t start = ct_now_ns();
	enum ct_status st = CT_OK;

	CT_TRY(need_cache(c, where->device));
	CT_TRY(load_cache(c, t, where));
	u.n_missing = count_missing(c);
	if (u.n_missing == 0)
		return CT_OK;
	if (tune != CT_AUTOTUNE_CACHED && (ct_plan_cache_begin_claims(c->cache) || tune == CT_AUTOTUNE_ON)) {
		CT_INFO("tuning %zu operations of cuDNN", u.n_missing);
		show(where, 0, u.n_missing);
		st = tune_missing(&u);
		ct_plan_cache_end_claims(c->cache);
	}
	if (st == CT_OK && u.n_tuned > 0)
		CT_INFO("tuned %zu operations in %.1f s; the plans are stored in %s", u.n_tuned,
			ct_seconds_since(start), u.saved ? ct_plan_cache_path(c->cache) : "no file");
	if (u.n_failed > 0)
		CT_INFO("cuDNN plans that failed and were skipped: %d (log.level=debug names them)", u.n_failed);
	return st == CT_OK ? take_first_of_all(c, t) : st;
}

enum ct_status ct__cudnn_choices_make(ct__cudnn_choices *c, const ct__cudnn_target *t, enum ct_autotune tune,
				      const struct ct__timing *where)
{
	enum ct_status st = CT_OK;
	size_t n = 0;

	if (count_missing(c) > 0)
		st = tune == CT_AUTOTUNE_OFF ? take_first_of_all(c, t) : make_tuned(c, t, tune, where);
	/* The next program must not fail because of the graphs of this one. */
	for (size_t i = 0; i < c->n; i++) {
		if (c->all[i]->plan)
			c->all[n++] = c->all[i];
		else
			destroy_choice(c->all[i]);
	}
	c->n = n;
	return st;
}
