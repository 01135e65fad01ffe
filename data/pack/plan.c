/* Divides a list of images into shards, and names the shards. */
#include <stdio.h>
#include <string.h>

#include "data/pack/pack_impl.h"

#define MAX_SHARDS 1000000
#define DEFAULT_SAMPLES 1000
#define BLOCK 512

static enum ct_status bad_pattern(const char *text, const char *why)
{
	CT_FAIL(CT_USAGE, "%.200s: %s", text, why);
	return ct_error_hint(
		"write out/train-%%06d.tar, or out/train-{000000..000007}.tar for eight shards of about the same size");
}

static bool is_digits(const char *p, size_t n)
{
	return n > 0 && n <= 9 && strspn(p, "0123456789") >= n;
}

static uint32_t number(const char *p, size_t n)
{
	uint32_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint32_t)(p[i] - '0');
	return v;
}

/* %06d: *end points after it. */
static bool parse_percent(const char *p, int *width, const char **end)
{
	size_t digits = strspn(p + 1, "0123456789");

	if (digits > 2 || (digits > 0 && p[1] != '0') || p[1 + digits] != 'd')
		return false;
	*width = digits ? (int)number(p + 1, digits) : 1;
	*end = p + digits + 2;
	return *width <= 9;
}

/* {000000..000007} */
static bool parse_braces(const char *p, int *width, uint32_t *n, const char **end)
{
	size_t a = strspn(p + 1, "0123456789"), b;

	if (!is_digits(p + 1, a) || strncmp(p + 1 + a, "..", 2) != 0)
		return false;
	b = strspn(p + 3 + a, "0123456789");
	if (!is_digits(p + 3 + a, b) || b != a || p[3 + a + b] != '}' || number(p + 1, a) != 0)
		return false;
	*width = (int)a;
	*n = number(p + 3 + a, b) + 1;
	*end = p + 4 + a + b;
	return true;
}

enum ct_status ct__pack_pattern_parse(const char *text, struct pack_pattern *out)
{
	size_t len = strlen(text), before = strcspn(text, "%{");
	const char *end = NULL;

	*out = (struct pack_pattern){0};
	if (len < 5 || strcmp(text + len - 4, ".tar") != 0)
		return bad_pattern(text, "the name of a shard must end in .tar");
	if (text[before] == '%' ? !parse_percent(text + before, &out->width, &end)
				: text[before] != '{' || !parse_braces(text + before, &out->width, &out->n, &end))
		return bad_pattern(text, "the pattern has no number");
	if (strpbrk(end, "%{/"))
		return bad_pattern(text, "the pattern must have exactly one number, in the last part of the path");
	if (out->n > MAX_SHARDS)
		return bad_pattern(text, "more than a million shards");
	out->prefix = ct_strndup(text, before);
	out->suffix = ct_strdup(end);
	return out->prefix && out->suffix ? CT_OK : CT_NOMEM;
}

void ct__pack_pattern_release(struct pack_pattern *p)
{
	ct_free(p->prefix);
	ct_free(p->suffix);
	*p = (struct pack_pattern){0};
}

char *ct__pack_pattern_name(const struct pack_pattern *p, uint32_t i)
{
	return ct_strfmt("%s%0*u%s", p->prefix, p->width, i, p->suffix);
}

static uint64_t member_bytes(uint64_t n)
{
	return BLOCK + (n + BLOCK - 1) / BLOCK * BLOCK;
}

/* Returns the end (exclusive) of the shard that starts at `first`. */
static size_t shard_end(const struct ct_pack_opts *o, const struct pack_pattern *pattern, const struct pack_list *list,
			size_t first, uint32_t index)
{
	size_t size = o->shard_samples ? o->shard_samples : DEFAULT_SAMPLES, i = first;
	uint64_t bytes = 0;

	if (pattern->n > 0)
		return (size_t)((uint64_t)list->n * (index + 1) / pattern->n);
	if (o->shard_bytes == 0)
		return list->n - first < size ? list->n : first + size;
	do
		bytes += member_bytes(list->v[i].size) + member_bytes(1);
	while (++i < list->n &&
	       bytes + member_bytes(list->v[i].size) + member_bytes(1) + (uint64_t)2 * BLOCK <= o->shard_bytes);
	return i;
}

enum ct_status ct__pack_plan(const struct ct_pack_opts *opts, const struct pack_pattern *pattern,
			     const struct pack_list *list, struct pack_shard **out, uint32_t *n)
{
	struct pack_shard *shards = NULL;
	size_t cap = 0, first = 0;

	if (pattern->n > list->n)
		return CT_FAIL(CT_USAGE, "%u shards were requested, but there are only %zu images", pattern->n,
			       list->n);
	for (*n = 0; first < list->n; (*n)++) {
		struct pack_shard *v = *n < MAX_SHARDS ? ct_array_grow(shards, *n, &cap, sizeof(*v)) : NULL;

		if (!v) {
			ct_free(shards);
			return *n < MAX_SHARDS ? CT_NOMEM
					       : CT_FAIL(CT_USAGE, "%zu images would make more than %d shards", list->n,
							 MAX_SHARDS);
		}
		shards = v;
		shards[*n] = (struct pack_shard){first, shard_end(opts, pattern, list, first, *n) - first};
		first += shards[*n].n;
	}
	*out = shards;
	return CT_OK;
}
