#ifndef CT_DIST_NET_IFACE_IMPL_H
#define CT_DIST_NET_IFACE_IMPL_H

#include "base/status.h"

#define CT__NET_ALL "0.0.0.0/0,::/0" /* selects all addresses of this host, also those of the loopback interface */

/* Sets the error of a selection of interfaces without an address: CT_CONFIG, with the usable interfaces of this host.
 */
enum ct_status ct__net_nothing_selected(const char *key, const char *selection) CT_MUST_CHECK;

#endif
