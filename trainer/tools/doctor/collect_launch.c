/* How this process was started, and the environment variables. The rank of the node in Slurm is recorded only in a step
 * of several nodes, because steps of one node each may be the nodes of a run, and then each of them is node 0 of its
 * step. Only settings that are not fine and names that nothing reads are kept, as far as they fit in the facts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dist/settings/settings.h"
#include "trainer/tools/doctor/collect_impl.h"

static void collect_settings(const char *prefix, struct ct_facts *f)
{
	struct ct_settings s;

	if (ct_settings_read(prefix, &s) < 0) {
		ct_error_clear();
		return;
	}
	for (size_t i = 0; i < s.n && f->n_settings < CT_FACTS_SETTINGS; i++) {
		const struct ct_setting *one = &s.all[i];

		if (one->state == CT_SETTING_FINE)
			continue;
		struct ct_setting_facts *out = &f->settings[f->n_settings++];
		snprintf(out->name, sizeof(out->name), "%s", one->name);
		snprintf(out->why, sizeof(out->why), "%s", one->why);
		snprintf(out->hint, sizeof(out->hint), "%s", one->hint);
		out->wrong = one->state == CT_SETTING_WRONG;
	}
	ct_settings_release(&s);
}

void ct__collect_launch(const struct ct_collect_opts *o, struct ct_facts *f)
{
	const char *name, *meant;

	snprintf(f->launcher, sizeof(f->launcher), "%s", ct_launcher_name(o->by));
	f->tasks_here = 0;
	f->slurm_node = -1;
	if (getenv("SLURM_STEP_ID")) {
		/* Steps of one node each may be the nodes of a run. */
		f->slurm_node = ct_env_i64("SLURM_STEP_NUM_NODES", 1) > 1 ? ct_env_i64("SLURM_NODEID", -1) : -1;
		/* "2(x3)" */
		const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
		f->tasks_here = tasks ? strtol(tasks, NULL, 10) : 1;
	}
	/* A run checks names and settings itself when it starts. */
	if (o->quick)
		return;
	for (size_t i = 0; ct_identity_misspelled_at(i, &name, &meant); i++) {
		if (!getenv(name) || getenv(meant) || f->n_names == CT_FACTS_NAMES)
			continue;
		struct ct_name_facts *out = &f->names[f->n_names++];
		snprintf(out->name, sizeof(out->name), "%s", name);
		snprintf(out->meant, sizeof(out->meant), "%s", meant);
	}
	collect_settings("NCCL_", f);
	collect_settings("GLOO_", f);
}
