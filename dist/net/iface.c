/* The network interfaces of this host. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/net/iface_impl.h"
#include "dist/net/net.h"

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

/* Lists the names of the interfaces with an address that can be selected. names is NULL if memory runs out. */
static size_t name_usable(const struct ct_net_addr *list, size_t n, const char **names, struct ct_str *text)
{
	size_t n_names = 0;

	for (size_t i = 0; names && i < n; i++) {
		size_t k = 0;

		while (k < n_names && strcmp(names[k], list[i].iface) != 0)
			k++;
		if (k < n_names)
			continue;
		names[n_names++] = list[i].iface;
		ct_str_addf(text, "%s%s", k ? ", " : "", list[i].iface);
	}
	if (n_names == 0)
		ct_str_add(text, "none");
	return n_names;
}

static void say_nothing_selected(const char *key, const char *selection, bool exists, const char *usable)
{
	const bool is_name = !strpbrk(selection, ",/^:");

	if (selection[0] == '^')
		CT_FAIL(CT_CONFIG, "%s: \"%.200s\" excludes all interfaces of this host: %.300s", key, selection,
			usable);
	else
		CT_FAIL(CT_CONFIG, "%s: this host has no %s \"%.200s\"; its usable interfaces are %.300s", key,
			!is_name ? "address in"
			: exists ? "address on the network interface"
				 : "network interface",
			selection, usable);
}

enum ct_status ct__net_nothing_selected(const char *key, const char *selection)
{
	const char **names, *near = NULL;
	struct ct_net_addr *usable;
	struct ct_str text = {0};
	struct ct_iface *list;
	bool exists;
	size_t n;

	CT_TRY(ct_net_ifaces(&list, &n));
	exists = find(list, n, selection) != NULL;
	ct_free(list);
	CT_TRY(ct_net_select(CT__NET_ALL, &usable, &n));
	names = CT_NEW_ARRAY(const char *, n + 1);
	n = name_usable(usable, n, names, &text);
	if (names && !exists && !strpbrk(selection, ",/^:"))
		near = ct_suggest(selection, names, n);
	say_nothing_selected(key, selection, exists, ct_str_text(&text));
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("%s, or leave %s empty to use the interface that reaches host 0",
			      selection[0] == '^' ? "exclude fewer of them" : "choose one of them", key);
	ct_str_release(&text);
	ct_free(names);
	ct_free(usable);
	return CT_CONFIG;
}
