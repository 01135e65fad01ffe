/* Which addresses belong to this host. */
#ifndef CT_DIST_NET_LOCAL_ADDR_H
#define CT_DIST_NET_LOCAL_ADDR_H

#include "dist/net/net.h"

/* Resolves `host`. *local is true if one of its addresses belongs to this host; addr [CT_ADDR_LEN] is its first
 * address, in numeric form. Fails with CT_COMM if the name cannot be resolved. Sends nothing but the queries of the
 * resolver. */
enum ct_status ct_net_is_local(const char *host, bool *local, char addr[CT_ADDR_LEN]) CT_MUST_CHECK;
/* Writes the addresses of this host, for example "10.77.0.2 (eth0), fd00::2 (eth0)", without loopback and link-local
 * addresses. Writes "no address except loopback" if there is none. */
void ct_net_local_list(char *buf, size_t len);
/* Writes the name of the interface that has the numeric address, or "?". */
void ct_net_iface_of(const char *addr, char name[16]);

#endif
