#include "dist/rendezvous/place.h"

#include <string.h>

#include "base/clock.h"
#include "dist/net/local_addr.h"

#define PROBE_NS (700 * CT_MS)

/* True if the connection leads to the server of this process. */
static bool is_ours(const ct_store *s, const struct ct_store_opts *me)
{
	char host[64];
	int pid;

	ct_store_owner(s, NULL, &pid, host);
	return pid == me->pid && strcmp(host, me->host) == 0;
}

static enum ct_status misplaced(const char *what, const char *role, const char *host, const char *addr,
				const struct ct_store_opts *me, const char *reply)
{
	char mine[256];

	ct_net_local_list(mine, sizeof(mine));
	CT_FAIL(CT_USAGE,
		"%s must run on the host of %s, %.200s%s%s%s, but that is not an address of this host, %s: it has %s%s%s",
		role, what, host, strcmp(host, addr) == 0 ? "" : " (", strcmp(host, addr) == 0 ? "" : addr,
		strcmp(host, addr) == 0 ? "" : ")", me->host, mine, reply[0] ? "; " : "", reply);
	return ct_error_hint("on this host, use another rank (--node-rank, RANK), or set %s to one of its addresses",
			     what);
}

enum ct_status ct_place_check(const char *what, const char *role, const char *host, int port,
			      const struct ct_store_opts *opts, ct_store **out)
{
	char addr[CT_ADDR_LEN];
	struct ct_error reply;
	enum ct_status st;
	ct_store *s;
	bool local;

	*out = NULL;
	if (ct_net_is_local(host, &local, addr) != CT_OK) {
		ct_error_clear();
		return CT_OK;
	}
	if (local)
		return CT_OK;
	st = ct_store_connect(host, port, opts, ct_deadline_in(PROBE_NS), &s);
	if (st == CT_OK && is_ours(s, opts)) {
		*out = s;
		return CT_OK;
	}
	if (st == CT_OK)
		ct_store_drop(s);
	ct_error_save(&reply);
	return misplaced(what, role, host, addr, opts, st == CT_MISMATCH ? reply.message : "");
}
