#include "trainer/launch/remote/hosts.h"

#include <string.h>

#define MAX_HOSTS 1024
#define MAX_PROCS 1024

static enum ct_status parse_one(const char *text, size_t len, struct ct_hosts *out)
{
	const char *end = text + len, *bracket = memchr(text, ']', len);
	const char *colon = memchr(bracket ? bracket : text, ':', (size_t)(end - (bracket ? bracket : text)));
	const char *name = text[0] == '[' && bracket ? text + 1 : text;
	const size_t name_len = (size_t)((name > text ? bracket : colon ? colon : end) - name);
	char *number = colon ? ct_strndup(colon + 1, (size_t)(end - colon - 1)) : NULL;
	int64_t procs = 0;
	enum ct_status st = CT_OK;

	if (colon && (!number || ct_parse_i64(number, &procs) < 0 || procs < 1 || procs > MAX_PROCS)) {
		CT_FAIL(CT_USAGE, "--hosts: \"%.*s\" has no number of ranks between 1 and %d after ':'", (int)len, text,
			MAX_PROCS);
		st = ct_error_hint("write HOST:N for N ranks, and [ADDRESS]:N for an IPv6 address");
	} else if (name_len == 0 || name[0] == '-')
		st = CT_FAIL(CT_USAGE, "--hosts: \"%.*s\" is not the name of a host", (int)len, text);
	else if (out->n > 0 && (out->all[0].procs == 0) != (procs == 0))
		st = CT_FAIL(CT_USAGE, "--hosts: give the number of ranks for every host (a:4,b:4), or for none");
	else if (out->n == MAX_HOSTS)
		st = CT_FAIL(CT_USAGE, "--hosts: more than %d hosts", MAX_HOSTS);
	ct_free(number);
	CT_TRY(st);
	CT_TRY_GROW(out->all, out->n, out->cap);
	CT_TRY_ALLOC(out->all[out->n].name = ct_strndup(name, name_len));
	out->all[out->n++].procs = (int)procs;
	return CT_OK;
}

enum ct_status ct_hosts_parse(const char *text, struct ct_hosts *out)
{
	*out = (struct ct_hosts){0};
	for (;;) {
		const size_t len = strcspn(text, ",");

		CT_TRY(parse_one(text, len, out));
		if (text[len] == '\0')
			return CT_OK;
		text += len + 1;
	}
}

void ct_hosts_release(struct ct_hosts *h)
{
	for (size_t i = 0; i < h->n; i++)
		ct_free(h->all[i].name);
	ct_free(h->all);
	*h = (struct ct_hosts){0};
}

const char *ct_host_address(const struct ct_host *h)
{
	const char *at = strchr(h->name, '@');

	return at ? at + 1 : h->name;
}
