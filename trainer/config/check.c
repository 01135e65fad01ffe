/* Checks that involve several keys. If two different keys exclude each other, the one from the source with higher
 * precedence wins: `batch.global=256` on the command line replaces `per_rank: 64` in the file. A contradiction is an
 * error only if both keys come from the same source. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "trainer/config/check_impl.h"
#include "trainer/config/value_impl.h"

const struct ct_origin *ct__check_origin(const struct ct_checker *k, const char *key)
{
	size_t i = ct__key_index(key);

	CT_ASSERT(i != SIZE_MAX);
	return &k->origins[i];
}

bool ct__check_fine(const struct ct_checker *k, const char *key)
{
	return !ct__check_origin(k, key)->bad;
}

void ct__check_problem(struct ct_checker *k, const char *key, const char *fmt, ...)
{
	const struct ct_origin *o = ct__check_origin(k, key);
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	if (o->layer > CT_LAYER_DEFAULT) {
		const struct ct_place at = {.name = o->name, .line = o->line, .column = o->column};

		ct__problems_add(k->p, &at, "%s", ct_str_text(&text));
	} else {
		ct__problems_add_whole(k->p, k->path, ct_str_text(&text));
	}
	ct_str_release(&text);
}

static void check_required(struct ct_checker *k)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *key = ct__key_at(i);
		struct ct_str b = {0};

		if (!(key->flags & CT_KEY_REQUIRED) || k->origins[i].layer > CT_LAYER_DEFAULT)
			continue;
		ct__key_describe(key, &b);
		ct__check_problem(k, key->name, "%s is missing; choose one of %s", key->name, ct_str_text(&b));
		ct_str_release(&b);
	}
}

/* Resets a key and records the reason as its origin. Takes where. */
static enum ct_status fall_back(struct ct_checker *k, size_t key, bool unset, char *where)
{
	enum ct_status st;

	CT_TRY_ALLOC(where);
	st = ct__key_reset(key, k->c, unset);
	ct__config_note_default(k->c, key, unset ? CT_ORIGIN_UNSET : CT_ORIGIN_DERIVED, where);
	return st;
}

/* Of two keys that exclude each other, the key from the source with higher precedence is used. */
static enum ct_status exclude(struct ct_checker *k, const char *name_a, const char *name_b)
{
	size_t a = ct__key_index(name_a), b = ct__key_index(name_b), swap;

	if (k->origins[a].layer == k->origins[b].layer) {
		if (k->origins[a].layer > CT_LAYER_DEFAULT && !ct__key_is_unset(ct__key_at(a), k->c) &&
		    !ct__key_is_unset(ct__key_at(b), k->c))
			ct__check_problem(k, name_b, "%s and %s (%s) exclude each other; set only one of them", name_b,
					  name_a, k->origins[a].where);
		return CT_OK;
	}
	if (k->origins[a].layer < k->origins[b].layer) {
		swap = a;
		a = b;
		b = swap;
	}
	/* An explicit `auto` counts as a value, but an explicit 0 does not. */
	if (ct__key_is_unset(ct__key_at(a), k->c) && !(ct__key_at(a)->flags & CT_KEY_AUTO))
		return CT_OK;
	return fall_back(k, b, true, ct_strfmt("not set, because %s is", ct__key_at(a)->name));
}

/* Handles keys that do not apply to the chosen model, data set, optimizer or schedule. */
static enum ct_status check_only(struct ct_checker *k)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *key = ct__key_at(i);
		struct ct_origin *o = &k->origins[i];
		size_t controller;
		const char *kinds, *chosen;

		if (!key->only || o->layer == CT_LAYER_DEFAULT || ct__key_applies(key, k->c))
			continue;
		kinds = ct__key_only(key, &controller);
		chosen = ct__config_choice(k->c, controller);
		if (k->origins[controller].bad || chosen[0] == '\0')
			continue;
		if (o->layer >= k->origins[controller].layer) {
			ct__check_problem(k, key->name, "%s does not apply to %s %s, only to %s", key->name,
					  ct__key_at(controller)->name, chosen, kinds);
			continue;
		}
		CT_TRY(fall_back(k, i, false,
				 ct_strfmt("default (the value at %s is for another %s)", o->where,
					   ct__key_at(controller)->name)));
	}
	return CT_OK;
}

/* Accepts the same strings as ct_log_configure, but does not configure anything. */
static void check_log_level(struct ct_checker *k)
{
	const char *const *levels = ct__key_find("log.level")->choices;
	const char *s = k->c->log.level;

	while (*s) {
		size_t len = strcspn(s, ","), name = strcspn(s, ",=");
		size_t start = name < len ? name + 1 : 0;
		char level[16];

		snprintf(level, sizeof(level), "%.*s", (int)(len - start < 15 ? len - start : 15), s + start);
		if (len > 0 && ct_choice_find(levels, level) < 0) {
			const char *near = ct_suggest(level, levels, 5);

			ct__check_problem(k, "log.level", "log.level: unknown level \"%s\"; did you mean \"%s\"?",
					  level, near ? near : "info");
			return;
		}
		s += len + (s[len] == ',');
	}
}

static void check_names(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const char *const *words = ct__key_find("train.resume")->choices;
	const char *resume = c->train.resume, *near;

	if (strchr(c->run.name, '/') || strcmp(c->run.name, ".") == 0 || strcmp(c->run.name, "..") == 0)
		ct__check_problem(k, "run.name", "run.name \"%s\" cannot be used as a directory name", c->run.name);
	/* Strings in a config were checked when they were read, but the name of the file was not. */
	else if (!ct__text_is_plain(c->run.name, strlen(c->run.name)))
		ct__check_problem(
			k, "run.name",
			"the name of this file contains a control character or is not valid UTF-8, so it cannot be "
			"the name of the run; set run.name");
	if (ct_choice_find(words, resume) >= 0 || strchr(resume, '/') || ct_file_exists(resume))
		return;
	near = ct_suggest(resume, words, 3);
	ct__check_problem(k, "train.resume",
			  "train.resume \"%s\" is not auto, never, must or an existing directory%s%s%s", resume,
			  near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

enum ct_status ct__config_check(struct ct_config *c, const char *path, struct ct_problems *p)
{
	struct ct_checker k = {.c = c, .origins = ct__config_origins(c), .p = p, .path = path};

	check_required(&k);
	CT_TRY(exclude(&k, "data.val", "data.val_fraction"));
	CT_TRY(exclude(&k, "data.val_labels", "data.val_fraction"));
	CT_TRY(exclude(&k, "batch.global", "batch.per_rank"));
	CT_TRY(exclude(&k, "launch.procs", "launch.procs_list"));
	CT_TRY(exclude(&k, "schedule.warmup_epochs", "schedule.warmup_steps"));
	CT_TRY(check_only(&k));
	ct__check_training(&k);
	ct__check_launch(&k);
	check_log_level(&k);
	CT_TRY(ct__check_resolve(&k));
	check_names(&k);
	return CT_OK;
}
