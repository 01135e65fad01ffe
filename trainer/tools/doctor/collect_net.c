/* Names, addresses and interfaces of this host. The source address is the one from which the kernel would reach the
 * master, so it shows the interface that the run will use. The key consists of the boot id and the network namespace:
 * containers with networks of their own have different keys even on one host, and processes with the same key share
 * their addresses, which are then no duplicates. The lookups of both names are timed as one. The own name is looked up
 * only because other libraries publish its address. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "dist/net/net.h"
#include "trainer/tools/doctor/collect_impl.h"

static int64_t mtu_of(const char *iface)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int64_t mtu = -1;

	if (fd < 0)
		fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", iface);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &r) == 0)
		mtu = r.ifr_mtu;
	ct_net_close(&fd);
	return mtu;
}

static void collect_addrs(struct ct_facts *f)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *a = all; a && f->n_addrs < CT_FACTS_ADDRS; a = a->ifa_next) {
		struct ct_addr_facts *out = &f->addrs[f->n_addrs];
		struct sockaddr_storage s = {0};

		if (!a->ifa_addr || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
			continue;
		memcpy(&s, a->ifa_addr,
		       a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
		if (ct_net_addr_text(&s, out->addr, sizeof(out->addr)) < 0) {
			ct_error_clear();
			continue;
		}
		snprintf(out->iface, sizeof(out->iface), "%.15s", a->ifa_name);
		out->ipv6 = a->ifa_addr->sa_family == AF_INET6;
		out->running = (a->ifa_flags & IFF_UP) && (a->ifa_flags & IFF_RUNNING);
		out->mtu = mtu_of(out->iface);
		f->n_addrs++;
	}
	freeifaddrs(all);
}

/* Writes the first address of a name and whether it has addresses of each family. Returns the reason if it has none. */
static const char *look_up(const char *name, char *addr, size_t len, bool *v4, bool *v6)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	int err = getaddrinfo(name, NULL, &hints, &list);

	*v4 = *v6 = false;
	addr[0] = '\0';
	if (err != 0)
		return gai_strerror(err);
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		struct sockaddr_storage s = {0};

		memcpy(&s, a->ai_addr, a->ai_addrlen < sizeof(s) ? a->ai_addrlen : sizeof(s));
		*v4 = *v4 || a->ai_family == AF_INET;
		*v6 = *v6 || a->ai_family == AF_INET6;
		if (!addr[0] && ct_net_addr_text(&s, addr, len) < 0)
			ct_error_clear();
	}
	freeaddrinfo(list);
	return NULL;
}

static bool is_here(const struct ct_facts *f, const char *addr)
{
	bool found = ct_net_is_loopback(addr);

	for (int64_t i = 0; i < f->n_addrs; i++)
		found = found || strcmp(f->addrs[i].addr, addr) == 0;
	return found;
}

static void collect_master(struct ct_facts *f)
{
	const char *why = look_up(f->master, f->master_addr, sizeof(f->master_addr), &f->master_ipv4, &f->master_ipv6);

	if (why)
		snprintf(f->master_error, sizeof(f->master_error), "%s", why);
	f->master_here = !why && is_here(f, f->master_addr);
	if (!why && ct_net_route_source(f->master_addr, f->source, sizeof(f->source)) < 0)
		ct_error_clear();
}

/* Identifies the network namespace. */
static void collect_key(struct ct_facts *f)
{
	char space[64] = "", *boot = NULL;
	size_t len;

	if (readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0)
		return;
	if (ct_file_read("/proc/sys/kernel/random/boot_id", 4096, &boot, &len) < 0)
		ct_error_clear();
	snprintf(f->net_key, sizeof(f->net_key), "%.36s %s", boot ? boot : "", space);
	ct_free(boot);
}

void ct__collect_net(const struct ct_collect_opts *o, struct ct_facts *f)
{
	const int64_t start = ct_now_ns();
	bool v4, v6;

	collect_key(f);
	collect_addrs(f);
	/* ctrain itself does not need the address of its own host name. */
	if (!o->quick)
		(void)look_up(f->host, f->own_addr, sizeof(f->own_addr), &v4, &v6);
	f->port = o->cfg ? o->cfg->launch.master_port : 0;
	if (o->cfg && o->cfg->launch.master_addr[0]) {
		snprintf(f->master, sizeof(f->master), "%.199s", o->cfg->launch.master_addr);
		collect_master(f);
	}
	f->resolve_s = ct_seconds_since(start);
}
