/* Doctor: checks before a run whether hosts, network, directories and devices are as the run needs them. It collects
 * facts (collect.h), exchanges them with the other nodes (exchange.h), judges them (checks.h), and reports the
 * findings. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_DOCTOR_H
#define CT_TRAINER_TOOLS_DOCTOR_DOCTOR_H

#include "trainer/tools/doctor/checks.h"
#include "trainer/tools/doctor/collect.h"

struct ct_doctor {
	struct ct_cluster cluster;
	struct ct_findings findings;
	double seconds;
};

/* Runs all checks. With several nodes and o->quick false, compares them: every node must call this. Release *out even
 * on failure. */
enum ct_status ct_doctor_run(const struct ct_collect_opts *o, struct ct_doctor *out) CT_MUST_CHECK;
/* A table of the nodes, the speeds of their links, and the findings. */
void ct_doctor_text(const struct ct_doctor *d, struct ct_str *out);
/* The facts, links and findings. The result is owned by the caller. */
ct_json *ct_doctor_json(const struct ct_doctor *d);
void ct_doctor_release(struct ct_doctor *d);

/* The checks before a run on several nodes, of this node only and without measurements. Logs warnings. Fails with the
 * first error, except for those of the master address: dist/rendezvous/place.h. */
enum ct_status ct_doctor_preflight(const struct ct_config *cfg, const struct ct_ranks *ranks) CT_MUST_CHECK;

/* Before a run on one node: logs a warning if the driver has lost a GPU. The run uses those that are left. */
enum ct_status ct_doctor_check_gpus(const struct ct_config *cfg, const struct ct_ranks *ranks) CT_MUST_CHECK;

#endif
