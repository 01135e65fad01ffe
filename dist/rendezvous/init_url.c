/* The schemes are in the order of enum ct_init_scheme. store:// is not suggested, because only the launcher uses it.
 * The last colon separates the port, so an IPv6 address needs brackets, which are removed; ct__init_url_make adds them
 * again. A path must fit its buffer, since a path that is cut would be another file. */
#include "dist/rendezvous/init_url_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/rendezvous/rendezvous.h"

enum ct_status ct__init_port_parse(const char *text, const char *what, int *out)
{
	int64_t v;

	if (ct_parse_i64(text, &v) != CT_OK || v < 1 || v > 65535) {
		CT_FAIL(CT_USAGE, "%s is \"%.40s\", which is not a port", what, text);
		return ct_error_hint("ports are numbers from 1 to 65535");
	}
	*out = (int)v;
	return CT_OK;
}

static enum ct_status bad_url(const char *text, const char *why)
{
	CT_FAIL(CT_USAGE, "init URL \"%.240s\": %s", text, why);
	return ct_error_hint("use env://, tcp://HOST:PORT or file:///PATH");
}

/* Parses "host:port". An IPv6 address must be in brackets. */
static enum ct_status parse_host_port(const char *text, const char *p, struct ct_init_url *out)
{
	const char *end = p[0] == '[' ? strchr(p, ']') : strrchr(p, ':'), *colon;
	size_t n;

	if (p[0] == '[') {
		p++;
		colon = end ? end + 1 : NULL;
	} else {
		colon = end;
		if (end && memchr(p, ':', (size_t)(end - p)))
			return bad_url(text, "an IPv6 address must be in brackets: tcp://[ADDRESS]:PORT");
	}
	if (!colon || *colon != ':')
		return bad_url(text, "the port is missing");
	n = (size_t)(end - p);
	if (n == 0)
		return bad_url(text, "the host is missing");
	if (n >= sizeof(out->host))
		return bad_url(text, "the host name is too long");
	memcpy(out->host, p, n);
	out->host[n] = '\0';
	if (out->host[strcspn(out->host, "/@[] \t")] != '\0')
		return bad_url(text, "the host name contains an invalid character");
	if (ct__init_port_parse(colon + 1, "the port", &out->port) != CT_OK)
		return ct_error_wrap("init URL \"%.240s\"", text);
	return CT_OK;
}

enum ct_status ct__init_url_parse(const char *text, struct ct_init_url *out)
{
	static const char *const names[] = {"env", "tcp", "file", "store"};
	const char *sep = strstr(text, "://"), *near;
	char scheme[16] = "";
	size_t i = 0, n = sep ? (size_t)(sep - text) : 0;

	*out = (struct ct_init_url){0};
	if (!sep || n == 0 || n >= sizeof(scheme))
		return bad_url(text, "it does not start with a scheme");
	memcpy(scheme, text, n);
	while (i < CT_ARRAY_LEN(names) && strcmp(names[i], scheme) != 0)
		i++;
	if (i == CT_ARRAY_LEN(names)) {
		near = ct_suggest(scheme, names, 3);
		(void)bad_url(text, "unknown scheme");
		if (near)
			ct_error_hint("did you mean %s://?", near);
		return CT_USAGE;
	}
	out->scheme = (enum ct_init_scheme)i;
	sep += 3;
	if (out->scheme == CT_INIT_ENV)
		return *sep ? bad_url(text, "nothing may follow env://") : CT_OK;
	if (out->scheme != CT_INIT_FILE)
		return parse_host_port(text, sep, out);
	if (sep[0] != '/')
		return bad_url(text, "the path must be absolute: file:///PATH");
	if (sep[1] == '\0' || sep[strlen(sep) - 1] == '/')
		return bad_url(text, "the path is a directory; a file is needed");
	if (strlen(sep) >= sizeof(out->path))
		return bad_url(text, "the path is longer than 239 bytes");
	memcpy(out->path, sep, strlen(sep) + 1);
	return CT_OK;
}

enum ct_status ct_init_url_endpoint(const char *url, char *host, size_t len, int *port)
{
	struct ct_init_url u;

	CT_TRY(ct__init_url_parse(url, &u));
	if (u.scheme != CT_INIT_TCP)
		return CT_FAIL(CT_UNSUPPORTED, "%s does not have the form tcp://HOST:PORT", url);
	snprintf(host, len, "%s", u.host);
	*port = u.port;
	return CT_OK;
}

enum ct_status ct__init_url_make(char *buf, size_t len, const char *scheme, const char *host, int port)
{
	bool v6 = strchr(host, ':') && host[0] != '[';
	int n = snprintf(buf, len, "%s://%s%s%s:%d", scheme, v6 ? "[" : "", host, v6 ? "]" : "", port);

	if (n < 0 || (size_t)n >= len)
		return CT_FAIL(CT_USAGE, "the host name \"%.60s...\" is too long", host);
	return CT_OK;
}
