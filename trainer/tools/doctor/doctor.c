/* Doctor has three steps that know nothing of each other: facts are collected, exchanged, and judged. The form for a
 * run (preflight) omits the exchange and whatever takes long, and judges this node alone. It ends the run for errors,
 * except for those about the master address (report_preflight). */
#define CT_LOG_COMPONENT "doctor"
#include "trainer/tools/doctor/doctor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/plan/devices.h"
#include "trainer/tools/doctor/checks_impl.h"
#include "trainer/tools/doctor/collect_impl.h"
#include "trainer/tools/doctor/exchange.h"

enum ct_status ct_doctor_run(const struct ct_collect_opts *o, struct ct_doctor *out)
{
	const int64_t start = ct_now_ns();
	struct ct_cluster *c = &out->cluster;
	/* What other nodes report is unknown in the quick form, so this node is judged alone. */
	const bool compare = !o->quick && o->cfg && o->ranks.n_nodes > 1;

	*out = (struct ct_doctor){0};
	c->n = compare ? o->ranks.n_nodes : 1;
	c->self = compare ? o->ranks.node : 0;
	CT_TRY_ALLOC(c->nodes = CT_NEW_ARRAY(struct ct_facts, (size_t)c->n));
	ct_facts_collect(o, &c->nodes[c->self]);
	if (compare)
		CT_TRY(ct_doctor_exchange(o, c));
	CT_TRY(ct_checks_run(c, &out->findings));
	out->seconds = ct_seconds_since(start);
	return CT_OK;
}

void ct_doctor_release(struct ct_doctor *d)
{
	ct_findings_release(&d->findings);
	ct_free(d->cluster.links);
	ct_free(d->cluster.nodes);
	*d = (struct ct_doctor){0};
}

static bool is_of(const struct ct_finding *f, const char *check)
{
	return strcmp(f->check, check) == 0;
}

static void warn(const struct ct_finding *f)
{
	CT_WARN("%s [%s]; %s; fix: %s", f->what, f->check, f->why, f->fix);
}

/* Only a connection shows whether the master address leads to node 0: its name may become known later, its port may be
 * forwarded, and node 0 may be on this host. The launcher finds out. */
static enum ct_status report_preflight(const struct ct_findings *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct ct_finding *f = &list->all[i];

		if (is_of(f, "master-address"))
			continue;
		if (f->severity == CT_FINDING_ERROR && !is_of(f, "loopback-name")) {
			CT_FAIL(f->status, "%s (%s); found by the check %s", f->what, f->why, f->check);
			return ct_error_hint("%s; `ctrain doctor` checks all nodes", f->fix);
		}
		warn(f);
	}
	return CT_OK;
}

enum ct_status ct_doctor_check_gpus(const struct ct_config *cfg, const struct ct_ranks *ranks)
{
	struct ct_findings list = {0};
	struct ct_plan_devices d;
	struct ct_facts *f;

	if (ranks->n_nodes > 1 || strcmp(cfg->device, "cpu") == 0 || !ct_file_exists("/proc/driver/nvidia/gpus"))
		return CT_OK;
	CT_TRY(ct_plan_devices(cfg, &d));
	CT_TRY_ALLOC(f = CT_NEW(struct ct_facts));
	snprintf(f->device, sizeof(f->device), "%s", d.kind);
	(void)gethostname(f->host, sizeof(f->host) - 1);
	ct__collect_gpus("/sys", "/proc", f);
	ct__check_lost(f, &list);
	for (size_t i = 0; i < list.n; i++) {
		list.all[i].check = "lost-gpu";
		warn(&list.all[i]);
	}
	ct_findings_release(&list);
	ct_free(f);
	return CT_OK;
}

enum ct_status ct_doctor_preflight(const struct ct_config *cfg, const struct ct_ranks *ranks)
{
	const struct ct_collect_opts o = {.cfg = cfg, .ranks = *ranks, .quick = true};
	struct ct_doctor d;

	if (ranks->n_nodes == 1)
		return CT_OK;
	enum ct_status st = ct_doctor_run(&o, &d);
	if (st == CT_OK)
		st = report_preflight(&d.findings);
	ct_doctor_release(&d);
	return st;
}
