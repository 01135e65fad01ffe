/* Only the settings of libraries that the run may use are checked: those of dist.backend, or with `auto` those that
 * this choice could become. The launcher checks them before it starts ranks, and each rank checks them again, because
 * the hosts of a run may differ. All ranks write the settings to their log files, but one of each host prints the
 * warnings. NCCL's log is opened early, without a look for GPUs: their driver may start threads, before which signals
 * must have been blocked. */
#include "trainer/plan/comm_settings.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/kind.h"
#include "dist/net/net.h"
#include "dist/settings/settings.h"
#include "trainer/plan/devices.h"

bool ct_plan_may_use_nccl(const struct ct_config *c, int world)
{
	const char *backend = c->dist.backend;

	return world > 1 &&
	       (ct_comm_has(backend, CT_COMM_USES_NCCL) || (strcmp(backend, "auto") == 0 && !ct_plan_on_cpu(c)));
}

static bool may_use_gloo(const struct ct_config *c, int world)
{
	const char *backend = c->dist.backend;

	return world > 1 &&
	       (ct_comm_has(backend, CT_COMM_USES_GLOO) || (strcmp(backend, "auto") == 0 && c->launch.nodes > 1));
}

static enum ct_status check(const char *prefix, bool log)
{
	struct ct_settings s;
	enum ct_status st;

	CT_TRY(ct_settings_read(prefix, &s));
	if (log)
		ct_settings_log(&s);
	st = ct_settings_check(&s);
	ct_settings_release(&s);
	return st;
}

static enum ct_status check_all(const struct ct_config *c, int world, bool log)
{
	if (ct_plan_may_use_nccl(c, world))
		CT_TRY(check("NCCL_", log));
	return may_use_gloo(c, world) ? check("GLOO_", log) : CT_OK;
}

enum ct_status ct_plan_check_comm_settings(const struct ct_config *c, int world)
{
	/* With several nodes, the ranks check it, so that all nodes learn which one lacks an interface. */
	if (world > 1 && c->launch.nodes == 1 && c->dist.iface[0])
		CT_TRY(ct_net_check_iface("dist.iface", c->dist.iface));
	return check_all(c, world, false);
}

enum ct_status ct_plan_use_comm_settings(const struct ct_config *c, const struct ct_identity *id)
{
	enum ct_status st;

	/* One of the ranks of a host prints the warnings. All write them to their log files. */
	ct_log_off_terminal(id->local_rank > 0);
	st = check_all(c, id->world, true);
	ct_log_off_terminal(false);
	return st;
}

/* Does not look for GPUs, because their driver may start threads. */
enum ct_status ct_plan_open_nccl_log(const struct ct_config *c, int world, ct_nccl_log **out)
{
	const char *backend = c->dist.backend;

	*out = NULL;
	if (world == 1 || (!ct_comm_has(backend, CT_COMM_USES_NCCL) && strcmp(backend, "auto") != 0))
		return CT_OK;
	return ct_nccl_log_open(out);
}

struct ct_port_range ct_plan_port_range(const struct ct_config *c)
{
	int64_t first, last;

	if (!ct_parse_range(c->dist.port_range, 1, 65535, &first, &last)) /* empty */
		return (struct ct_port_range){0};
	return (struct ct_port_range){.first = (int)first, .last = (int)last};
}
