/* A condition is parsed before the runs are looked at, so a wrong name is an error even if there are no runs. Values
 * are compared as numbers if both are numbers, otherwise as strings, where = and != accept patterns. A value that is
 * unknown fulfills nothing but !=. Runs with equal values, and those with unknown ones, are in the order of their
 * names, so the output is the same every time. */
#include "trainer/tools/runs/select.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/config/config.h"

#define MAX_WORD 256

/* A field that is a number. */
static const struct field {
	const char *name;
	size_t offset;
	bool descending; /* large values come first */
} fields[] = {
	{"top1", offsetof(struct ct_run_info, best_top1), true},
	{"loss", offsetof(struct ct_run_info, best_loss), false},
	{"epochs", offsetof(struct ct_run_info, epochs), true},
	{"step", offsetof(struct ct_run_info, step), true},
	{"time", offsetof(struct ct_run_info, seconds), false},
	{"rate", offsetof(struct ct_run_info, images_per_sec), true},
	{"started", offsetof(struct ct_run_info, started), true},
};

static const struct field *find_field(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(fields); i++)
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

static double number_of(const struct ct_run_info *r, const struct field *f)
{
	return *(const double *)((const char *)r + f->offset);
}

struct condition {
	char name[MAX_WORD], value[MAX_WORD];
	char op[3];
};

static enum ct_status parse_condition(const char *text, size_t len, struct condition *c)
{
	const size_t name = strcspn(text, "=!<>,");
	size_t op = name < len ? strspn(text + name, "=!<>") : 0;

	if (op > len - name)
		op = len - name;
	if (name == 0 || op == 0 || op > 2 || name >= MAX_WORD || len - name - op >= MAX_WORD)
		goto bad;
	snprintf(c->name, sizeof(c->name), "%.*s", (int)name, text);
	snprintf(c->op, sizeof(c->op), "%.*s", (int)op, text + name);
	snprintf(c->value, sizeof(c->value), "%.*s", (int)(len - name - op), text + name + op);
	if (!ct_word_in("= == != < <= > >=", c->op, op))
		goto bad;
	if (find_field(c->name) || strcmp(c->name, "name") == 0 || strcmp(c->name, "state") == 0)
		return CT_OK;
	const char *key = ct_config_key_meant(c->name, NULL).key;
	if (!key) {
		CT_FAIL(CT_USAGE, "--filter: \"%s\" is neither a field nor a config key", c->name);
		return ct_error_hint("%s", "fields are " CT_RUN_FIELDS "; other names are config keys");
	}
	snprintf(c->name, sizeof(c->name), "%s", key);
	return CT_OK;
bad:
	CT_FAIL(CT_USAGE, "--filter: \"%.*s\" is not a condition such as NAME=VALUE", (int)(len < 60 ? len : 60), text);
	return ct_error_hint("for example --filter 'state=done,top1>=0.9,optim.lr=0.1'");
}

static bool compare(const char *op, int order)
{
	if (op[0] == '<')
		return order < 0 || (op[1] && order == 0);
	if (op[0] == '>')
		return order > 0 || (op[1] && order == 0);
	return (op[0] == '!') != (order == 0);
}

static bool fulfils(const struct ct_run_info *r, const struct condition *c)
{
	const struct field *f = find_field(c->name);
	const char *text = strcmp(c->name, "name") == 0    ? r->name
			   : strcmp(c->name, "state") == 0 ? ct_run_state_name(r->state)
			   : f                             ? NULL
							   : ct_run_setting(r, c->name);
	double want, have = f ? number_of(r, f) : NAN;
	const bool unknown = f ? isnan(have) : !text;

	if (unknown)
		return c->op[0] == '!';
	const bool number = ct_parse_f64(c->value, &want) == CT_OK && (f || ct_parse_f64(text, &have) == CT_OK);
	ct_error_clear();
	if (number)
		return compare(c->op, (have > want) - (have < want));
	if (f)
		return c->op[0] == '!';
	if (c->op[0] == '=' || c->op[0] == '!')
		return (c->op[0] == '!') != (fnmatch(c->value, text, 0) == 0);
	return compare(c->op, strcmp(text, c->value));
}

enum ct_status ct_run_list_filter(struct ct_run_list *l, const char *filter)
{
	for (const char *at = filter; *at;) {
		const size_t len = strcspn(at, ",");
		struct condition c;
		size_t n = 0;

		CT_TRY(parse_condition(at, len, &c));
		for (size_t i = 0; i < l->n; i++) {
			if (fulfils(&l->runs[i], &c))
				l->runs[n++] = l->runs[i];
			else
				ct_run_info_release(&l->runs[i]);
		}
		l->n = n;
		at += len + (at[len] == ',');
	}
	return CT_OK;
}

struct order {
	const struct field *field; /* NULL: by state or name */
	bool by_state, reverse;
};

static int compare_runs(const void *pa, const void *pb, void *user)
{
	const struct ct_run_info *a = pa, *b = pb;
	const struct order *o = user;
	int order = 0;

	if (o->field) {
		const double x = number_of(a, o->field), y = number_of(b, o->field);

		if (isnan(x) != isnan(y))
			return isnan(x) ? 1 : -1;
		order = isnan(x) ? 0 : (x > y) - (x < y);
		order = o->field->descending ? -order : order;
	} else if (o->by_state) {
		order = (int)a->state - (int)b->state;
	} else {
		order = strcmp(a->name, b->name);
	}
	if (order == 0)
		return strcmp(a->name, b->name);
	return o->reverse ? -order : order;
}

enum ct_status ct_run_list_sort(struct ct_run_list *l, const char *field)
{
	struct order o = {.reverse = field[0] == '-'};
	const char *name = field + o.reverse;

	o.field = find_field(name);
	o.by_state = strcmp(name, "state") == 0;
	if (!o.field && !o.by_state && strcmp(name, "name") != 0) {
		CT_FAIL(CT_USAGE, "--sort: unknown field \"%.60s\"", name);
		return ct_error_hint("%s", "fields are " CT_RUN_FIELDS);
	}
	if (l->n > 1)
		qsort_r(l->runs, l->n, sizeof(*l->runs), compare_runs, &o);
	return CT_OK;
}
