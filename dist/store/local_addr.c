#include "dist/store/local_addr.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* The kernel permits binding a socket only to addresses of this host. */
static bool can_bind(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;

	ct_net_close(&fd);
	return ok;
}

enum ct_status ct_net_is_local(const char *host, bool *local, char addr[CT_ADDR_LEN])
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
	struct addrinfo *list;
	int err;

	snprintf(addr, CT_ADDR_LEN, "%.*s", CT_ADDR_LEN - 1, host);
	*local = strcmp(host, "localhost") == 0 || ct_net_is_loopback(host);
	if (*local)
		return CT_OK;
	err = getaddrinfo(host, NULL, &hints, &list);
	if (err != 0)
		return CT_FAIL(CT_COMM, "cannot resolve the host name \"%.200s\": %s", host, gai_strerror(err));
	if (getnameinfo(list->ai_addr, list->ai_addrlen, addr, CT_ADDR_LEN, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(addr, CT_ADDR_LEN, "?");
	for (const struct addrinfo *a = list; a && !*local; a = a->ai_next)
		*local = can_bind(a);
	freeaddrinfo(list);
	return CT_OK;
}

static bool is_listed(const struct ifaddrs *a)
{
	if (!a->ifa_addr || (a->ifa_flags & IFF_LOOPBACK))
		return false;
	if (a->ifa_addr->sa_family == AF_INET)
		return true;
	return a->ifa_addr->sa_family == AF_INET6 &&
	       !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr);
}

void ct_net_local_list(char *buf, size_t len)
{
	struct ifaddrs *all = NULL;
	struct ct_str list = {0};

	if (getifaddrs(&all) != 0)
		all = NULL;
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		char addr[CT_ADDR_LEN];
		socklen_t n = is_listed(a) && a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
										: sizeof(struct sockaddr_in6);

		if (is_listed(a) && getnameinfo(a->ifa_addr, n, addr, sizeof(addr), NULL, 0, NI_NUMERICHOST) == 0)
			ct_str_addf(&list, "%s%s (%s)", list.len ? ", " : "", addr, a->ifa_name);
	}
	if (all)
		freeifaddrs(all);
	snprintf(buf, len, "%s", list.len ? ct_str_text(&list) : "no address except loopback");
	ct_str_release(&list);
}
