/* The network interfaces of this host. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/store/iface_impl.h"
#include "dist/store/net.h"

static struct ct_iface *find(struct ct_iface *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	}
	return NULL;
}

static void note_address(struct ct_iface *f, const struct ifaddrs *a)
{
	f->running = f->running || (a->ifa_flags & IFF_RUNNING);
	if (!a->ifa_addr)
		return;
	if (a->ifa_addr->sa_family == AF_INET)
		f->ipv4 = true;
	if (a->ifa_addr->sa_family == AF_INET6 &&
	    !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr))
		f->ipv6 = true;
}

static enum ct_status collect(const struct ifaddrs *all, struct ct_iface **list, size_t *n)
{
	size_t cap = 0;

	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct ct_iface *f = find(*list, *n, a->ifa_name);

		if (!f) {
			CT_TRY_GROW(*list, *n, cap);
			f = &(*list)[(*n)++];
			*f = (struct ct_iface){0};
			snprintf(f->name, sizeof(f->name), "%s", a->ifa_name);
		}
		note_address(f, a);
	}
	return CT_OK;
}

enum ct_status ct_net_ifaces(struct ct_iface **out, size_t *n)
{
	struct ct_iface *list = NULL;
	struct ifaddrs *all;
	enum ct_status st;

	*out = NULL;
	*n = 0;
	if (getifaddrs(&all) != 0)
		return CT_FAIL(CT_COMM, "cannot list the network interfaces of this host: %s", strerror(errno));
	st = collect(all, &list, n);
	freeifaddrs(all);
	if (st < 0)
		ct_free(list);
	else
		*out = list;
	return st;
}

enum ct_status ct__net_nothing_selected(const char *key, const char *selection)
{
	const bool is_name = !strpbrk(selection, ",/^:");
	const char **names = NULL, *near = NULL;
	struct ct_str text = {0};
	struct ct_iface *list;
	size_t n;

	CT_TRY(ct_net_ifaces(&list, &n));
	names = CT_NEW_ARRAY(const char *, n + 1);
	for (size_t i = 0; names && i < n; i++) {
		names[i] = list[i].name;
		ct_str_addf(&text, "%s%s", i ? ", " : "", names[i]);
	}
	if (names && is_name && !find(list, n, selection))
		near = ct_suggest(selection, names, n);
	(void)CT_FAIL(CT_CONFIG, "%s: this host has no %s \"%.200s\"; its interfaces are %.300s", key,
		      !is_name				? "address in"
		      : find(list, n, selection)	? "address on the network interface"
							: "network interface",
		      selection, n > 0 ? ct_str_text(&text) : "none");
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("choose one of them, or leave %s empty to use the interface that reaches host 0", key);
	ct_str_release(&text);
	ct_free(names);
	ct_free(list);
	return CT_CONFIG;
}
