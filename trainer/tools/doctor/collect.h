/* Collects the facts of this node. Nothing is judged here. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_COLLECT_H
#define CT_TRAINER_TOOLS_DOCTOR_COLLECT_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/doctor/facts.h"

struct ct_collect_opts {
	const struct ct_config *cfg; /* NULL: no configuration; then only facts about this host are collected */
	struct ct_ranks ranks;
	enum ct_launcher by;
	bool asks_for_ranks; /* the command line has --procs or --nodes */
	bool quick;          /* without what takes long: versions of libraries, speeds */
};

/* Facts that cannot be determined are unknown, which is not an error. */
void ct_facts_collect(const struct ct_collect_opts *o, struct ct_facts *out);

#endif
