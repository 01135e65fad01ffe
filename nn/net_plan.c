/* A plan lists only the convolutions that are not direct in every pass, in the order in which they were set. Plans that
 * say the same are therefore the same text, which is what the digest covers, if they list convolutions in the order of
 * the graph, as engines do. */
#include "nn/net_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash/sha256.h"

#define TITLE "ctrain plan 1"

static const char *const layouts[] = {CT_PLAN_LAYOUTS(CT_CHOICE_NAME) NULL};
static const char *const methods[] = {CT_CONV_METHODS(CT_CHOICE_NAME) NULL};

const char *ct_conv_method_name(enum ct_conv_method m)
{
	return ct_choice_name(methods, (int)m);
}

void ct_net_plan_release(struct ct_net_plan *p)
{
	for (int i = 0; i < p->n_convs; i++)
		ct_free(p->convs[i].name);
	ct_free(p->convs);
	*p = (struct ct_net_plan){0};
}

static struct ct_plan_conv *find(const struct ct_net_plan *p, const char *name)
{
	for (int i = 0; i < p->n_convs; i++) {
		if (!strcmp(p->convs[i].name, name))
			return &p->convs[i];
	}
	return NULL;
}

static enum ct_status add(struct ct_net_plan *p, const char *name, struct ct_plan_conv **out)
{
	CT_TRY_GROW(p->convs, p->n_convs, p->cap_convs);
	struct ct_plan_conv *c = &p->convs[p->n_convs];

	*c = (struct ct_plan_conv){.name = ct_strdup(name)};
	if (!c->name)
		return CT_NOMEM;
	p->n_convs++;
	*out = c;
	return CT_OK;
}

static void drop_if_direct(struct ct_net_plan *p, struct ct_plan_conv *c)
{
	for (int i = 0; i < CT_CONV_PASSES; i++) {
		if (c->method[i] != CT_CONV_DIRECT)
			return;
	}
	ct_free(c->name);
	p->n_convs--;
	memmove(c, c + 1, (size_t)(p->convs + p->n_convs - c) * sizeof(*c));
}

enum ct_status ct_net_plan_set(struct ct_net_plan *p, const char *name, enum ct_conv_pass pass,
			       enum ct_conv_method method)
{
	struct ct_plan_conv *c = find(p, name);

	if (!c && (method == CT_CONV_DIRECT || p->n_convs == CT_PLAN_MAX_CONVS))
		return CT_OK;
	if (!c)
		CT_TRY(add(p, name, &c));
	c->method[pass] = method;
	drop_if_direct(p, c);
	return CT_OK;
}

enum ct_status ct_net_plan_copy(const struct ct_net_plan *from, struct ct_net_plan *out)
{
	struct ct_net_plan copy = {.layout = from->layout};
	struct ct_plan_conv *c;

	for (int i = 0; i < from->n_convs; i++) {
		if (add(&copy, from->convs[i].name, &c) < 0) {
			ct_net_plan_release(&copy);
			return CT_NOMEM;
		}
		memcpy(c->method, from->convs[i].method, sizeof(c->method));
	}
	*out = copy;
	return CT_OK;
}

enum ct_conv_method ct_net_plan_method(const struct ct_net_plan *p, const char *name, enum ct_conv_pass pass)
{
	const struct ct_plan_conv *c = find(p, name);

	return c ? c->method[pass] : CT_CONV_DIRECT;
}

bool ct_net_plan_uses(const struct ct_net_plan *p, const char *name, enum ct_conv_method method)
{
	for (int pass = 0; pass < CT_CONV_PASSES; pass++) {
		if (ct_net_plan_method(p, name, (enum ct_conv_pass)pass) == method)
			return true;
	}
	return false;
}

void ct_net_plan_write(const struct ct_net_plan *p, struct ct_str *out)
{
	ct_str_addf(out, "%s\nlayout %s\n", TITLE, layouts[p->layout]);
	for (int i = 0; i < p->n_convs; i++) {
		const struct ct_plan_conv *c = &p->convs[i];

		ct_str_addf(out, "conv %s", c->name);
		for (int pass = 0; pass < CT_CONV_PASSES; pass++)
			ct_str_addf(out, " %s", methods[c->method[pass]]);
		ct_str_add(out, "\n");
	}
}

/* ---- Parsing ------------------------------------------------------------------------------------------- */

enum { MAX_LINE = 256, MAX_FILE = 1 << 20 };

struct parser {
	const char *source;
	int line;
	struct ct_net_plan *plan;
};

static enum ct_status bad(const struct parser *s, const char *expected)
{
	CT_FAIL(CT_CONFIG, "%s:%d: %s is expected", s->source, s->line, expected);
	return ct_error_hint("a plan is a file that ctrain has written, such as plan.txt in the directory of a run");
}

/* Ends the first word of *at and moves *at to the next one. Returns "" if there is none. */
static const char *word(char **at)
{
	char *w = *at + strspn(*at, " "), *end = w + strcspn(w, " ");

	*at = *end ? end + 1 : end;
	*end = '\0';
	return w;
}

static enum ct_status parse_conv(const struct parser *s, char *at)
{
	const char *name = word(&at);
	int found[CT_CONV_PASSES];

	for (int pass = 0; pass < CT_CONV_PASSES; pass++)
		found[pass] = ct_choice_find(methods, word(&at));
	for (int pass = 0; pass < CT_CONV_PASSES; pass++) {
		if (found[pass] < 0 || *word(&at))
			return bad(s,
				   "\"conv NAME METHOD METHOD METHOD\", with the methods direct, winograd and gemm,");
	}
	if (find(s->plan, name))
		return CT_FAIL(CT_CONFIG, "%s:%d: the convolution %s is listed twice", s->source, s->line, name);
	if (s->plan->n_convs == CT_PLAN_MAX_CONVS)
		return CT_FAIL(CT_CONFIG, "%s:%d: at most %d convolutions are possible", s->source, s->line,
			       CT_PLAN_MAX_CONVS);
	for (int pass = 0; pass < CT_CONV_PASSES; pass++)
		CT_TRY(ct_net_plan_set(s->plan, name, (enum ct_conv_pass)pass, (enum ct_conv_method)found[pass]));
	return CT_OK;
}

static enum ct_status parse_line(const struct parser *s, char *line)
{
	if (s->line == 1)
		return strcmp(line, TITLE) ? bad(s, "\"" TITLE "\"") : CT_OK;
	char *at = line;
	const char *kind = word(&at);
	if (s->line == 2) {
		const int layout = ct_choice_find(layouts, word(&at));

		if (strcmp(kind, "layout") != 0 || layout < 0 || *word(&at))
			return bad(s, "\"layout blocked\" or \"layout nhwc\"");
		s->plan->layout = (enum ct_plan_layout)layout;
		return CT_OK;
	}
	return strcmp(kind, "conv") ? bad(s, "\"conv\"") : parse_conv(s, at);
}

static enum ct_status parse(struct parser *s, const char *text)
{
	char line[MAX_LINE];

	while (*text || s->line < 2) {
		const size_t n = strcspn(text, "\n");

		s->line++;
		if (n >= sizeof(line))
			return bad(s, "a shorter line");
		memcpy(line, text, n);
		line[n] = '\0';
		CT_TRY(parse_line(s, line));
		text += n + (text[n] == '\n');
	}
	return CT_OK;
}

enum ct_status ct_net_plan_parse(const char *text, const char *source, struct ct_net_plan *out)
{
	struct parser s = {.source = source, .plan = out};
	const enum ct_status st = parse(&s, text);

	if (st < 0)
		ct_net_plan_release(out);
	return st;
}

enum ct_status ct_net_plan_read(const char *path, struct ct_net_plan *out)
{
	char *text;
	size_t len;

	CT_TRY(ct_file_read(path, MAX_FILE, &text, &len));
	const enum ct_status st = ct_net_plan_parse(text, path, out);
	ct_free(text);
	return st;
}

const char *ct_plan_layout_name(enum ct_plan_layout layout)
{
	return ct_choice_name(layouts, (int)layout);
}

enum ct_status ct_net_plan_compare(const struct ct_net_plan *a, const struct ct_net_plan *b, const char ***names,
				   int *n)
{
	const char **list;

	*n = 0;
	CT_TRY_ALLOC(list = CT_NEW_ARRAY(const char *, (size_t)(a->n_convs + b->n_convs) + 1));
	for (int i = 0; i < a->n_convs; i++) {
		const struct ct_plan_conv *other = find(b, a->convs[i].name);

		if (!other || memcmp(a->convs[i].method, other->method, sizeof(other->method)) != 0)
			list[(*n)++] = a->convs[i].name;
	}
	for (int i = 0; i < b->n_convs; i++) {
		if (!find(a, b->convs[i].name))
			list[(*n)++] = b->convs[i].name;
	}
	*names = list;
	return CT_OK;
}

enum ct_status ct_net_plan_digest(const struct ct_net_plan *p, char hex[65])
{
	struct ct_str text = {0};
	struct ct_sha256 h;

	ct_net_plan_write(p, &text);
	const enum ct_status st = ct_str_status(&text);
	ct_sha256_init(&h);
	if (st == CT_OK)
		ct_sha256_update(&h, text.s, text.len);
	ct_sha256_final_hex(&h, hex);
	ct_str_release(&text);
	return st;
}

/* A plan has at most one method other than direct, because each suits one layout. */
static enum ct_conv_method special_method(const struct ct_net_plan *p)
{
	int pass = 0;

	while (p->convs[0].method[pass] == CT_CONV_DIRECT)
		pass++;
	return p->convs[0].method[pass];
}

void ct_net_plan_summary(const struct ct_net_plan *p, int convolutions, char *text, size_t len)
{
	if (p->n_convs == 0)
		snprintf(text, len, "%s, direct", layouts[p->layout]);
	else
		snprintf(text, len, "%s, %d of %d convolutions with %s", layouts[p->layout], p->n_convs, convolutions,
			 methods[special_method(p)]);
}
