#ifndef CT_DIST_STORE_IFACE_IMPL_H
#define CT_DIST_STORE_IFACE_IMPL_H

#include "base/status.h"

/* Sets the error of a selection of interfaces without an address: CT_CONFIG, with the interfaces of this host. */
enum ct_status ct__net_nothing_selected(const char *key, const char *selection) CT_MUST_CHECK;

#endif
