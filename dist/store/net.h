/* Sockets of the store: listening, connecting with a deadline, addresses as strings, routes. IPv4 and IPv6; all
 * descriptors are close-on-exec and non-blocking. */
#ifndef CT_DIST_STORE_NET_H
#define CT_DIST_STORE_NET_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

#define CT_ADDR_LEN 64 /* a numeric address with scope */

/* host NULL: every interface, IPv6 and IPv4 in one socket. port 0: any; *bound is the port. A port in use is CT_COMM
 * that names the process which holds it, if /proc shows it. */
enum ct_status ct_net_listen(const char *host, int port, int *fd, int *bound) CT_MUST_CHECK;

/* One attempt at every address of host. Resolving the name is bounded by the resolver's own limits. *err is the
 * system's error of the last address (0: the name did not resolve); the error chain describes it. */
enum ct_status ct_net_connect(const char *host, int port, int64_t deadline_ns, int *fd, int *err) CT_MUST_CHECK;

/* No delay, keepalive and user timeout so that a host that stops responding is noticed within 15 s. */
void ct_net_tune(int fd);
/* Closes and sets to -1; -1 is allowed. */
void ct_net_close(int *fd);

/* Numeric string; IPv4 mapped into IPv6 shows as IPv4. */
enum ct_status ct_net_addr_text(const struct sockaddr_storage *a, char *buf, size_t len) CT_MUST_CHECK;
enum ct_status ct_net_local_addr(int fd, char *buf, size_t len) CT_MUST_CHECK;
bool ct_net_is_loopback(const char *addr);
/* This host's own address: 127.0.0.1, or ::1 where there is no IPv4. */
const char *ct_net_loopback(void);
/* The address that this host would use to reach `peer` (numeric). Sends nothing. */
enum ct_status ct_net_route_source(const char *peer, char *buf, size_t len) CT_MUST_CHECK;

/* CT_CONFIG, naming the interfaces there are, when this host has none of that name (alias labels such as eth0:1 count).
 */
enum ct_status ct_net_check_iface(const char *name) CT_MUST_CHECK;

/* Who listens on a TCP port of this host: "pid 4711 (python3)"; false when /proc does not show it. */
bool ct_net_port_holder(int port, char *buf, size_t len);

#endif
