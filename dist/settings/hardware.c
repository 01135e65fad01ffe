/* Network interfaces and InfiniBand devices that settings select. The rules are those of NCCL: an item is a prefix of
 * names unless the list begins with "=", and "^" excludes. A selection without any interface is wrong, because NCCL
 * would fail; an item to which nothing corresponds is only doubtful. gloo gets one interface from ctrain, by the rules
 * of dist.iface. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/net/net.h"
#include "dist/settings/settings_impl.h"

bool ct__setting_matches(const char *name, const char *list, size_t len, bool exact)
{
	const char *end = list + len;

	while (list < end) {
		const size_t word = strcspn(list, ",");
		const size_t n = strcspn(list, ":,");

		if (n > 0 && strncmp(name, list, n) == 0 && (!exact || !name[n]))
			return true;
		list += word + 1;
	}
	return false;
}

/* Returns true if the list has a word that is neither empty nor a port. */
static bool has_words(const char *list)
{
	return list[strspn(list, ",:0123456789")] != '\0';
}

static void add_name(struct ct_str *names, const char *name)
{
	ct_str_addf(names, "%s%s", names->len ? ", " : "", name);
}

/* ---- network interfaces */

static bool is_family(const char *name)
{
	const char *family = getenv("NCCL_SOCKET_FAMILY");

	return family && strcmp(family, name) == 0;
}

/* Whether NCCL may use the interface, with the family that NCCL_SOCKET_FAMILY requests. */
static bool is_usable(const struct ct_iface *f)
{
	return f->running && ((f->ipv4 && !is_family("AF_INET6")) || (f->ipv6 && !is_family("AF_INET")));
}

/* "^=a,b": without interfaces whose names are a or b. */
static bool is_selected(const char *name, const char *value)
{
	const bool excludes = value[0] == '^';
	const bool exact = value[excludes] == '=';
	const char *list = value + excludes + exact;

	return !has_words(list) || ct__setting_matches(name, list, strlen(list), exact) != excludes;
}

static void suggest_interface(struct ct_setting *s, const struct ct_iface *list, size_t n)
{
	const char **names = CT_NEW_ARRAY(const char *, n + 1), *near = NULL;
	size_t n_usable = 0;

	for (size_t i = 0; names && i < n; i++) {
		if (is_usable(&list[i]))
			names[n_usable++] = list[i].name;
	}
	if (names)
		near = ct_suggest(s->value + strspn(s->value, "^="), names, n_usable);
	if (near && s->value[0] != '^')
		snprintf(s->hint, sizeof(s->hint), "did you mean %s?", near);
	else
		snprintf(
			s->hint, sizeof(s->hint),
			"eth selects all interfaces whose names begin with eth, =eth0 only eth0, and ^docker all but these");
	ct_free(names);
}

/* The words of the list to which nothing corresponds. */
static void check_words(struct ct_setting *s, const struct ct_iface *list, size_t n, const char *usable)
{
	const bool exact = s->value[0] == '=';

	for (const char *p = s->value + exact; *p; p += *p == ',') {
		const size_t len = strcspn(p, ",");
		bool found = len == 0;

		for (size_t i = 0; i < n && !found; i++)
			found = is_usable(&list[i]) && ct__setting_matches(list[i].name, p, len, exact);
		if (!found) {
			ct__setting_judge(s, CT_SETTING_DOUBTFUL,
					  "%s=%.60s: this host has no network interface %.*s (it has %.200s)", s->name,
					  s->value, (int)(len < 40 ? len : 40), p, usable);
			return;
		}
		p += len;
	}
}

static void judge_nccl(struct ct_setting *s, const struct ct_iface *list, size_t n)
{
	struct ct_str usable = {0};
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		if (!is_usable(&list[i]))
			continue;
		add_name(&usable, list[i].name);
		any = any || is_selected(list[i].name, s->value);
	}
	if (!any) {
		ct__setting_judge(s, CT_SETTING_WRONG,
				  "%s=%.60s selects no network interface of this host%s (it has %.200s)", s->name,
				  s->value, is_family("AF_INET6") ? " with an IPv6 address" : "",
				  usable.len ? ct_str_text(&usable) : "none");
		suggest_interface(s, list, n);
	} else if (s->value[0] != '^') {
		check_words(s, list, n, ct_str_text(&usable));
	}
	ct_str_release(&usable);
}

static void judge_gloo(struct ct_setting *s)
{
	const char *comma = strchr(s->value, ',');
	char first[64];

	snprintf(first, sizeof(first), "%.*s", (int)(comma ? comma - s->value : (ptrdiff_t)strlen(s->value)), s->value);
	if (ct_net_check_iface(s->name, first) < 0) {
		ct__setting_judge(s, CT_SETTING_WRONG, "%.380s", ct_error_message());
		snprintf(s->hint, sizeof(s->hint), "%.190s", ct_error_hint_text());
		ct_error_clear();
	} else if (comma) {
		ct__setting_judge(s, CT_SETTING_DOUBTFUL, "%s=%.100s: ctrain uses only the first interface", s->name,
				  s->value);
	}
}

void ct__setting_check_interfaces(struct ct_setting *s)
{
	struct ct_iface *list;
	size_t n;

	if (strncmp(s->name, "GLOO_", 5) == 0) {
		judge_gloo(s);
		return;
	}
	if (strlen(s->value) < 2) /* NCCL ignores it */
		return;
	if (ct_net_ifaces(&list, &n) < 0) {
		ct_error_clear();
		return;
	}
	judge_nccl(s, list, n);
	ct_free(list);
}

/* ---- InfiniBand */

/* NCCL goes on without InfiniBand, so this is no error. */
void ct__setting_check_adapters(struct ct_setting *s)
{
	static const char directory[] = "/sys/class/infiniband";
	DIR *d = opendir(directory);
	struct ct_str names = {0};
	bool any = false;

	for (const struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		add_name(&names, e->d_name);
		any = any || is_selected(e->d_name, s->value);
	}
	if (d)
		closedir(d);
	if (!any)
		ct__setting_judge(s, CT_SETTING_DOUBTFUL,
				  "%s=%.60s selects no InfiniBand device of this host (it has %.200s)", s->name,
				  s->value, names.len ? ct_str_text(&names) : "none");
	if (!any)
		snprintf(s->hint, sizeof(s->hint), "NCCL would use sockets; %s has the names of the devices",
			 directory);
	ct_str_release(&names);
}
