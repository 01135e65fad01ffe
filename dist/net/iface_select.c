/* Selections of network interfaces (dist.iface). A selection is applied to addresses, not to interfaces, because an
 * item may be a network. An address is in a list if an item is the name of its interface, or a network that contains
 * it; a single address is a network of all its bits. Addresses that other hosts cannot use, because they are down or
 * valid on one link only, are never selected. If a list with "^" leaves no address, it is an error only if the list
 * itself contains all of them, because a host may have nothing but its loopback interface. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dist/net/iface_impl.h"
#include "dist/net/net.h"

struct network {
	int family; /* AF_UNSPEC: not a network but a name */
	unsigned bits;
	uint8_t addr[16];
};

/* Parses a network or an address. Returns false if it is malformed; a name is not. */
static bool parse_network(const char *text, size_t len, struct network *out)
{
	char addr[CT_ADDR_LEN], *slash;
	int64_t bits, most;

	*out = (struct network){.family = AF_UNSPEC};
	if (len >= sizeof(addr))
		return false;
	memcpy(addr, text, len);
	addr[len] = '\0';
	slash = strchr(addr, '/');
	if (slash)
		*slash = '\0';
	if (inet_pton(AF_INET, addr, out->addr) == 1)
		out->family = AF_INET;
	else if (inet_pton(AF_INET6, addr, out->addr) == 1)
		out->family = AF_INET6;
	else
		return !slash;
	most = out->family == AF_INET ? 32 : 128;
	bits = most;
	if (slash && (ct_parse_i64(slash + 1, &bits) != CT_OK || bits < 0 || bits > most)) {
		ct_error_clear();
		return false;
	}
	out->bits = (unsigned)bits;
	return true;
}

static const uint8_t *bytes_of(const struct sockaddr *a)
{
	return a->sa_family == AF_INET ? (const uint8_t *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
				       : (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
}

static bool in_network(const struct network *n, const struct sockaddr *a)
{
	const uint8_t *p = bytes_of(a);
	unsigned whole = n->bits / 8, rest = n->bits % 8;

	if (n->family != a->sa_family || memcmp(n->addr, p, whole) != 0)
		return false;
	return rest == 0 || ((n->addr[whole] ^ p[whole]) >> (8 - rest)) == 0;
}

/* Returns true if an item of the list is the name of the interface or contains its address. */
static bool listed(const char *list, const struct ifaddrs *a)
{
	struct network n;

	for (const char *p = list; *p; p += *p == ',') {
		size_t len = strcspn(p, ",");

		if (strlen(a->ifa_name) == len && memcmp(p, a->ifa_name, len) == 0)
			return true;
		if (parse_network(p, len, &n) && n.family != AF_UNSPEC && in_network(&n, a->ifa_addr))
			return true;
		p += len;
	}
	return false;
}

static bool is_usable(const struct ifaddrs *a)
{
	if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
		return false;
	if (a->ifa_addr->sa_family == AF_INET6)
		return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr);
	return a->ifa_addr->sa_family == AF_INET;
}

static bool is_selected(const char *selection, const struct ifaddrs *a)
{
	if (!is_usable(a))
		return false;
	if (selection[0] == '^' || !selection[0])
		return !(a->ifa_flags & IFF_LOOPBACK) && !listed(selection + (selection[0] == '^'), a);
	return listed(selection, a);
}

static enum ct_status collect(const char *selection, const struct ifaddrs *all, struct ct_net_addr **list, size_t *n)
{
	size_t cap = 0;

	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct sockaddr_storage s = {0};
		struct ct_net_addr *out;

		if (!is_selected(selection, a))
			continue;
		memcpy(&s, a->ifa_addr,
		       a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
		CT_TRY_GROW(*list, *n, cap);
		out = &(*list)[*n];
		*out = (struct ct_net_addr){.ipv6 = s.ss_family == AF_INET6};
		snprintf(out->iface, sizeof(out->iface), "%s", a->ifa_name);
		CT_TRY(ct_net_addr_text(&s, out->addr, sizeof(out->addr)));
		(*n)++;
	}
	return CT_OK;
}

enum ct_status ct_net_select(const char *selection, struct ct_net_addr **out, size_t *n)
{
	struct ct_net_addr *list = NULL;
	struct ifaddrs *all;
	enum ct_status st;

	*out = NULL;
	*n = 0;
	if (getifaddrs(&all) != 0)
		return CT_FAIL(CT_COMM, "cannot list the network interfaces of this host: %s", strerror(errno));
	st = collect(selection, all, &list, n);
	freeifaddrs(all);
	if (st < 0)
		ct_free(list);
	else
		*out = list;
	return st;
}

enum ct_status ct_net_choose(const char *key, const char *selection, const char *prefer, char buf[CT_ADDR_LEN])
{
	bool v6 = strchr(prefer, ':') != NULL;
	const struct ct_net_addr *best = NULL;
	struct ct_net_addr *list;
	size_t n;

	CT_TRY(ct_net_check_iface(key, selection));
	CT_TRY(ct_net_select(selection, &list, &n));
	for (size_t i = 0; i < n; i++) {
		if (!best || (best->ipv6 != v6 && list[i].ipv6 == v6) || strcmp(list[i].addr, prefer) == 0)
			best = &list[i];
	}
	snprintf(buf, CT_ADDR_LEN, "%s", best ? best->addr : prefer);
	ct_free(list);
	return CT_OK;
}

static enum ct_status check_items(const char *key, const char *selection)
{
	struct network network;

	for (const char *p = selection + (selection[0] == '^');; p++) {
		size_t len = strcspn(p, ",");

		if (len == 0 || !parse_network(p, len, &network)) {
			CT_FAIL(CT_CONFIG, "%s: \"%.*s\" is neither the name of an interface nor a network", key,
				(int)(len < 60 ? len : 60), p);
			return ct_error_hint(
				"write names and networks such as eth0,10.1.0.0/16, or ^docker0 for all interfaces but this one");
		}
		p += len;
		if (!*p)
			return CT_OK;
	}
}

static enum ct_status count_selected(const char *selection, size_t *n)
{
	struct ct_net_addr *list;

	CT_TRY(ct_net_select(selection, &list, n));
	ct_free(list);
	return CT_OK;
}

enum ct_status ct_net_check_iface(const char *key, const char *selection)
{
	size_t n, n_listed, n_all;

	CT_TRY(check_items(key, selection));
	CT_TRY(count_selected(selection, &n));
	if (n == 0 && selection[0] == '^') {
		CT_TRY(count_selected(selection + 1, &n_listed));
		CT_TRY(count_selected(CT__NET_ALL, &n_all));
		if (n_listed < n_all)
			return CT_OK;
	}
	return n > 0 ? CT_OK : ct__net_nothing_selected(key, selection);
}
