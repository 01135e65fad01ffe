/* An address belongs to this host if a socket can be bound to it: the kernel decides, and no lists of addresses have to
 * be compared. A name has often several addresses, of which one is enough. Lists of addresses are for messages only, so
 * a failure leaves them empty. */
#include "dist/net/local_addr.h"

#include <netdb.h>
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
	struct addrinfo *list;

	snprintf(addr, CT_ADDR_LEN, "%.*s", CT_ADDR_LEN - 1, host);
	*local = strcmp(host, "localhost") == 0 || ct_net_is_loopback(host);
	if (*local)
		return CT_OK;
	CT_TRY(ct_net_resolve(host, 0, 0, &list));
	if (getnameinfo(list->ai_addr, list->ai_addrlen, addr, CT_ADDR_LEN, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(addr, CT_ADDR_LEN, "?");
	for (const struct addrinfo *a = list; a && !*local; a = a->ai_next)
		*local = can_bind(a);
	freeaddrinfo(list);
	return CT_OK;
}

void ct_net_local_list(char *buf, size_t len)
{
	struct ct_net_addr *all = NULL;
	struct ct_str list = {0};
	size_t n = 0;

	if (ct_net_select("", &all, &n) != CT_OK)
		ct_error_clear();
	for (size_t i = 0; i < n; i++)
		ct_str_addf(&list, "%s%s (%s)", i > 0 ? ", " : "", all[i].addr, all[i].iface);
	snprintf(buf, len, "%s", list.len ? ct_str_text(&list) : "no address except loopback");
	ct_str_release(&list);
	ct_free(all);
}

void ct_net_iface_of(const char *addr, char name[16])
{
	struct ct_net_addr *all = NULL;
	size_t n = 0;

	snprintf(name, 16, "%s", ct_net_is_loopback(addr) ? "lo" : "?");
	if (ct_net_select("", &all, &n) != CT_OK)
		ct_error_clear();
	for (size_t i = 0; i < n; i++) {
		if (strcmp(all[i].addr, addr) == 0)
			snprintf(name, 16, "%s", all[i].iface);
	}
	ct_free(all);
}
