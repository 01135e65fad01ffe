/* Values of #SBATCH lines are not parsed by a shell, and Slurm does not treat quotes as a shell does, so values with
 * spaces or quotes are refused there. Words of the srun command are quoted for the shell. The user's command line
 * appears only in a comment, escaped, so that it cannot start a new line. The comment of the job holds the run
 * directory, by which `ctrain slurm status` finds the job again. */
#include "trainer/launch/slurm/script.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Slurm does not remove quotes from values in the way that a shell does. */
static enum ct_status check_value(const char *what, const char *value)
{
	if (value[0] == '\0')
		return CT_FAIL(CT_USAGE, "%s is empty", what);
	for (const char *p = value; *p; p++) {
		if (isspace((unsigned char)*p) || iscntrl((unsigned char)*p) || strchr("\"'\\", *p))
			return CT_FAIL(CT_USAGE,
				       "%s \"%.80s\": a batch script cannot contain spaces and quotes in this value",
				       what, value);
	}
	return CT_OK;
}

static enum ct_status add_option(struct ct_str *out, const char *option, const char *value, const char *comment)
{
	if (!value)
		return CT_OK;
	CT_TRY(check_value(option, value));
	const size_t start = out->len;
	ct_str_addf(out, "#SBATCH %s=%s", option, value);
	if (comment)
		ct_str_addf(out, "%*s# %s", out->len - start < 40 ? (int)(40 - (out->len - start)) : 1, "", comment);
	ct_str_add(out, "\n");
	return CT_OK;
}

static enum ct_status add_options(const struct ct_slurm_script *s, struct ct_str *out)
{
	char nodes[24], tasks[24];

	snprintf(nodes, sizeof(nodes), "%d", s->nodes);
	snprintf(tasks, sizeof(tasks), "%d", s->tasks);
	CT_TRY(add_option(out, "--job-name", s->name, NULL));
	CT_TRY(add_option(out, "--partition", s->partition, NULL));
	CT_TRY(add_option(out, "--account", s->account, NULL));
	CT_TRY(add_option(out, "--nodes", nodes, NULL));
	CT_TRY(add_option(out, "--ntasks-per-node", tasks, "one task for each rank"));
	CT_TRY(add_option(out, "--gpus-per-node", s->gpus, NULL));
	CT_TRY(add_option(out, "--cpus-per-task", s->cpus, "compute and loader threads of a rank"));
	CT_TRY(add_option(out, "--mem", s->mem, "memory on each node"));
	CT_TRY(add_option(out, "--time", s->time, "ctrain saves, stops and requeues the job before this limit"));
	CT_TRY(add_option(out, "--array", s->array, "one run for each index, in a run directory of its own"));
	ct_str_addf(out, "#SBATCH --output=%s-%s.log\n", s->name, s->array ? "%A_%a" : "%j");
	ct_str_add(out, "#SBATCH --open-mode=append              # a requeued job continues its log\n"
			"#SBATCH --requeue                       # after a preemption or the loss of a node, too\n");
	/* The comment is quoted, because it contains a space. */
	ct_str_addf(out, "#SBATCH --comment=\"" CT_SLURM_COMMENT "%s%s\"", s->run_dir, s->array ? "-%a" : "");
	ct_str_add(out, "  # for ctrain slurm status\n");
	return CT_OK;
}

enum ct_status ct_slurm_script(const struct ct_slurm_script *s, struct ct_str *out)
{
	CT_TRY(check_value("the run directory", s->run_dir));
	ct_str_add(out, "#!/bin/bash\n" CT_SLURM_MARK ": ");
	ct_str_add_escaped(out, s->command_line, strlen(s->command_line), 2000);
	ct_str_addf(
		out,
		"\n# %d node%s with %d rank%s each. Submit this file with sbatch; ctrain slurm status shows the job.\n\n",
		s->nodes, ct_plural(s->nodes), s->tasks, ct_plural(s->tasks));
	CT_TRY(add_options(s, out));
	ct_str_add(
		out,
		"\n# If programs or libraries come from modules, load them here, for example: module load cuda\n\n"
		"# srun starts the ranks, so neither torchrun nor --procs is needed. ctrain itself ends all ranks if one\n"
		"# fails; when the job stops, ranks end at different times because rank 0 saves. srun must not kill it.\n"
		"exec srun --kill-on-bad-exit=0");
	if (s->cpus) {
		ct_str_add(out, " --cpus-per-task=");
		ct_str_add_shell(out, s->cpus);
	}
	ct_str_add(out, " \\\n\t");
	ct_str_add_shell(out, s->program);
	ct_str_add(out, " ");
	ct_str_add_shell(out, s->config);
	ct_str_add(out, " run.dir=");
	ct_str_add_shell(out, s->run_dir);
	if (s->array)
		ct_str_add(out, "-\"$SLURM_ARRAY_TASK_ID\"");
	for (size_t i = 0; i < s->n_sets; i++) {
		ct_str_add(out, " ");
		ct_str_add_shell(out, s->sets[i]);
	}
	ct_str_add(out, "\n");
	return ct_str_status(out);
}
