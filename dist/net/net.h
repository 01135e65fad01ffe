/* Sockets of the store: functions that listen, connect with a deadline, format addresses and find routes, for IPv4 and
 * IPv6. All descriptors are close-on-exec and non-blocking. */
#ifndef CT_DIST_NET_NET_H
#define CT_DIST_NET_NET_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

#define CT_ADDR_LEN 64 /* room for a numeric address with its scope */

/* Listens on host:port. If host is NULL, one socket listens on all interfaces for both IPv6 and IPv4. If port is 0, the
 * system chooses one. *bound is the actual port. Fails with CT_COMM if the port is in use; the message names the
 * process that uses it if /proc shows that process. */
enum ct_status ct_net_listen(const char *host, int port, int *fd, int *bound) CT_MUST_CHECK;

/* A range of ports (dist.port_range). 0 to 0: the system chooses the ports. */
struct ct_port_range {
	int first, last;
};
/* Listens on the first free port of the range, or on a port that the system chooses. Fails with CT_COMM if all of them
 * are in use. */
enum ct_status ct_net_listen_in(const char *host, const struct ct_port_range *range, int *fd, int *bound) CT_MUST_CHECK;

/* Tries all addresses of host at the same time (race.h), once. The deadline does not limit name resolution, which has
 * its own timeouts. On failure *err is the errno for the last address, or 0 if the name could not be resolved; the
 * error chain describes the failure. */
enum ct_status ct_net_connect(const char *host, int port, int64_t deadline_ns, int *fd, int *err) CT_MUST_CHECK;
/* Resolves a host name or a numeric address with getaddrinfo and its flags AI_*. The caller frees *out with
 * freeaddrinfo. */
struct addrinfo;
enum ct_status ct_net_resolve(const char *host, int port, int flags, struct addrinfo **out) CT_MUST_CHECK;

/* Sets TCP_NODELAY, keepalive and the user timeout, so that a host that stops responding is detected within 15 s. */
void ct_net_tune(int fd);
/* Closes *fd and sets it to -1; does nothing if it is -1. */
void ct_net_close(int *fd);

/* Formats an address in numeric form. An IPv4-mapped IPv6 address is shown as IPv4. */
enum ct_status ct_net_addr_text(const struct sockaddr_storage *a, char *buf, size_t len) CT_MUST_CHECK;
enum ct_status ct_net_local_addr(int fd, char *buf, size_t len) CT_MUST_CHECK;
bool ct_net_is_loopback(const char *addr);
/* Returns the loopback address of this host: 127.0.0.1, or ::1 if the host has no IPv4. */
const char *ct_net_loopback(void);
/* Gets the local address that this host would use to reach `peer`, a numeric address. Sends nothing. */
enum ct_status ct_net_route_source(const char *peer, char *buf, size_t len) CT_MUST_CHECK;

/* A network interface, or an alias label of one such as eth0:1. */
struct ct_iface {
	char name[16];
	bool running;
	bool ipv4, ipv6; /* has an address of this family other than the loopback address of IPv6 */
};
/* Lists the network interfaces of this host. The caller frees *out with ct_free. */
enum ct_status ct_net_ifaces(struct ct_iface **out, size_t *n) CT_MUST_CHECK;

/* A selection of network interfaces: their names, addresses or networks ("eth0,10.1.0.0/16"), or "^" and those that are
 * not to be used ("^docker0,virbr0"); then, the loopback interface is not used either. A selection for all hosts may
 * contain names that some of them do not have. `key` is the name of the setting, for messages. */

/* Returns CT_CONFIG if the selection is malformed, or if this host has no address in it. It is no error if a list with
 * "^" leaves only the loopback interface, which may be the only one of the host, but it must not list this one too. */
enum ct_status ct_net_check_iface(const char *key, const char *selection) CT_MUST_CHECK;
struct ct_net_addr {
	char iface[16];
	char addr[CT_ADDR_LEN]; /* numeric */
	bool ipv6;
};
/* Lists the selected addresses of this host, without those of IPv6 that are valid on one link only. The caller frees
 * *out with ct_free. "" selects all except the loopback interface. */
enum ct_status ct_net_select(const char *selection, struct ct_net_addr **out, size_t *n) CT_MUST_CHECK;
/* Chooses one of the selected addresses: `prefer`, else one of the same family, else another one. If "^" leaves
 * only the loopback interface, chooses `prefer`. */
enum ct_status ct_net_choose(const char *key, const char *selection, const char *prefer,
			     char buf[CT_ADDR_LEN]) CT_MUST_CHECK;

/* Describes the process that listens on a TCP port of this host: "pid 4711 (python3)". Returns false if /proc does not
 * show this process. */
bool ct_net_port_holder(int port, char *buf, size_t len);

#endif
