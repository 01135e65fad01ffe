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

/* Options that the script sets itself. With other values, ranks and job would not fit each other. */
static const char *const own_options[] = {"-N", "--nodes",         "-n", "--ntasks", "--ntasks-per-node",
					  "-a", "--array",         "-G", "--gpus",   "--gpus-per-node",
					  "-c", "--cpus-per-task", "-o", "--output", "--comment"};

/* Adds further options, each on a line. A word without a dash is the value of the option before it. */
static enum ct_status add_more(const struct ct_slurm_script *s, struct ct_str *out)
{
	for (size_t i = 0; i < s->n_more; i++) {
		const char *word = s->more[i], *next = i + 1 < s->n_more ? s->more[i + 1] : "-";

		if (word[0] != '-' || strlen(word) < 2) {
			CT_FAIL(CT_USAGE, "\"%.80s\" is not an option of sbatch", word);
			return ct_error_hint("options of sbatch follow --, for example: -- --qos=high --exclusive");
		}
		for (size_t k = 0; k < CT_ARRAY_LEN(own_options); k++) {
			const size_t len = word[1] == '-' ? strcspn(word, "=") : 2;

			if (strlen(own_options[k]) != len || strncmp(own_options[k], word, len) != 0)
				continue;
			CT_FAIL(CT_USAGE, "%s cannot follow --, because ctrain slurm sets this option itself",
				own_options[k]);
			return ct_error_hint("ctrain help slurm shows its options");
		}
		CT_TRY(check_value("an option of sbatch", word));
		ct_str_addf(out, "#SBATCH %s", word);
		if (next[0] != '-') {
			CT_TRY(check_value(word, next));
			ct_str_addf(out, " %s", next);
			i++;
		}
		ct_str_add(out, "\n");
	}
	return CT_OK;
}

/* Adds a word of the shell in which %a is the index of the task of an array. */
static void add_set(const struct ct_slurm_script *s, const char *word, struct ct_str *out)
{
	const char *place = s->array ? strstr(word, "%a") : NULL;
	struct ct_str before = {0};

	if (place) {
		ct_str_add_bytes(&before, word, (size_t)(place - word));
		ct_str_add_shell(out, ct_str_text(&before));
		ct_str_add(out, "\"$SLURM_ARRAY_TASK_ID\"");
		if (place[2])
			add_set(s, place + 2, out);
		out->failed |= before.failed;
		ct_str_release(&before);
	} else {
		ct_str_add_shell(out, word);
	}
}

static enum ct_status add_options(const struct ct_slurm_script *s, struct ct_str *out)
{
	char nodes[24], tasks[24];

	if (s->min_nodes > 0)
		snprintf(nodes, sizeof(nodes), "%d-%d", s->min_nodes, s->nodes);
	else
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
	return add_more(s, out);
}

enum ct_status ct_slurm_script(const struct ct_slurm_script *s, struct ct_str *out)
{
	CT_TRY(check_value("the run directory", s->run_dir));
	ct_str_add(out, "#!/bin/bash\n" CT_SLURM_MARK ": ");
	ct_str_add_escaped(out, s->command_line, strlen(s->command_line), 2000);
	ct_str_addf(
		out,
		"\n# %s%d node%s with %d rank%s each. Submit this file with sbatch; ctrain slurm status shows the job.\n\n",
		s->min_nodes > 0 ? "Up to " : "", s->nodes, ct_plural(s->nodes), s->tasks, ct_plural(s->tasks));
	CT_TRY(add_options(s, out));
	ct_str_add(
		out,
		"# Where compute nodes lack squeue and scontrol, add: #SBATCH --signal=USR1@300\n"
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
		add_set(s, s->sets[i], out);
	}
	ct_str_add(out, "\n");
	return ct_str_status(out);
}
