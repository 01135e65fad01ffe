/* `ctrain slurm CONFIG.yaml` and `ctrain slurm status`. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process/subprocess.h"
#include "trainer/job/slurm/job.h"
#include "trainer/launch/slurm/job_status.h"
#include "trainer/launch/slurm/script.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

#define SUBMIT_NS (60 * CT_SEC)
#define TAIL_LINES 5
#define MAX_SCRIPT_BYTES ((size_t)1 << 20)

/* These keys become options of sbatch, or have a place of their own on the command line. */
static bool is_placed(const char *key)
{
	static const char *const keys[] = {"launch.nodes", "launch.procs", "run.dir"};

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

static enum ct_status collect_sets(const struct ct_cli *cli, char ***out, size_t *n)
{
	CT_TRY_ALLOC(*out = CT_NEW_ARRAY(char *, cli->n_sets + 1));
	for (size_t i = 0; i < cli->n_sets; i++)
		if (!is_placed(cli->sets[i].key))
			CT_TRY_ALLOC((*out)[(*n)++] = ct_strfmt("%s=%s", cli->sets[i].key, cli->sets[i].value));
	return CT_OK;
}

static void join_words(const struct ct_cli *cli, struct ct_str *out)
{
	for (int i = 1; i < cli->argc; i++)
		ct_str_addf(out, "%s%s", i > 1 ? " " : "", cli->argv[i]);
}

/* What the options request from Slurm. */
struct request {
	int64_t min_nodes, nodes; /* min_nodes: 0, or if Slurm may assign fewer nodes */
	const char *gpus;         /* of each node: "N" or "TYPE:N"; NULL: none */
	int64_t n_gpus;
	char all_gpus[24]; /* of --gpus, for each node */
};

/* "2" or "1..4" */
static enum ct_status parse_nodes(const struct ct_config_set *s, struct request *r)
{
	const char *dots = strstr(s->value, "..");
	char min[24];

	if (!dots)
		return ct_cli_number(s->origin, s->value, 1, 1, 4096, &r->nodes);
	snprintf(min, sizeof(min), "%.*s", (int)(dots - s->value), s->value);
	CT_TRY(ct_cli_number(s->origin, min, 1, 1, 4096, &r->min_nodes));
	CT_TRY(ct_cli_number(s->origin, dots + 2, 1, r->min_nodes, 4096, &r->nodes));
	r->min_nodes = r->min_nodes < r->nodes ? r->min_nodes : 0;
	return CT_OK;
}

/* Adds the value with which the config is checked: that of the first task of an array. */
static enum ct_status add_checked(const struct ct_config_set *s, bool array, struct ct_config_set *out)
{
	const char *place = array ? strstr(s->value, "%a") : NULL;

	*out = (struct ct_config_set){s->key, NULL, s->origin};
	CT_TRY_ALLOC(out->value = place ? ct_strfmt("%.*s0%s", (int)(place - s->value), s->value, place + 2)
					: ct_strdup(s->value));
	return CT_OK;
}

/* Divides the GPUs of the job among the nodes. */
static enum ct_status share_gpus(const struct ct_config_set *s, struct request *r)
{
	int64_t all;

	CT_TRY(ct_cli_number(s->origin, s->value, 0, 1, 4096 * 64, &all));
	if (r->gpus || r->min_nodes > 0 || all % r->nodes != 0) {
		CT_FAIL(CT_USAGE, "%s %s is the number of GPUs of the job, which %s", s->origin, s->value,
			r->gpus ? "--gpus-per-node sets, too" : "cannot be divided evenly among the nodes");
		return ct_error_hint("use --gpus-per-node alone");
	}
	r->n_gpus = all / r->nodes;
	snprintf(r->all_gpus, sizeof(r->all_gpus), "%lld", (long long)r->n_gpus);
	r->gpus = r->all_gpus;
	return CT_OK;
}

/* Loads the config without the number of nodes, because the address of node 0 is not known yet. For other commands,
 * --gpus is another name of --procs, but for Slurm it is the number of GPUs of the job. */
static enum ct_status load(const struct ct_cli *cli, struct ct_config **cfg, struct request *r)
{
	const struct ct_slurm_options *o = cli->own;
	const struct ct_config_set *gpus = NULL;
	struct ct_config_set *sets;
	enum ct_status st = CT_OK;
	size_t n = 0;

	CT_TRY_ALLOC(sets = CT_NEW_ARRAY(struct ct_config_set, cli->n_sets + 1));
	for (size_t i = 0; i < cli->n_sets && st == CT_OK; i++) {
		const struct ct_config_set *s = &cli->sets[i];

		if (strcmp(s->key, "launch.nodes") == 0) {
			st = parse_nodes(s, r);
		} else if (strcmp(s->key, "launch.procs") == 0 && strcmp(s->origin, "--gpus") == 0) {
			gpus = s;
		} else if (strcmp(s->key, "launch.procs_list") == 0) {
			CT_FAIL(CT_USAGE,
				"a batch script from ctrain slurm must have the same number of ranks on all nodes (%s %s)",
				s->origin, s->value);
			st = ct_error_hint("use the same number of ranks on all nodes: --procs N");
		} else if (strcmp(s->key, "launch.node_rank") == 0) {
			CT_FAIL(CT_USAGE, "%s cannot be used with ctrain slurm", s->origin);
			st = ct_error_hint("Slurm numbers the nodes");
		} else {
			st = add_checked(s, o->array != NULL, &sets[n++]);
		}
	}
	if (st == CT_OK && gpus)
		st = share_gpus(gpus, r);
	if (st == CT_OK)
		st = ct_config_load(cli->args[0], sets, n, cfg);
	for (size_t i = 0; i < n; i++)
		ct_free((char *)(uintptr_t)sets[i].value);
	ct_free(sets);
	return st;
}

/* With fewer nodes, there are fewer ranks, which must be able to continue with the same global batch. */
static enum ct_status check_range(const struct ct_config *cfg, const struct request *r, int tasks)
{
	if (r->min_nodes == 0)
		return CT_OK;
	if (cfg->batch.global == 0) {
		CT_FAIL(CT_USAGE,
			"--nodes %lld..%lld needs batch.global: otherwise, the global batch would depend on the nodes",
			(long long)r->min_nodes, (long long)r->nodes);
		return ct_error_hint("set batch.global, for example batch.global=%lld",
				     (long long)(r->nodes * tasks * cfg->batch.per_rank));
	}
	for (int64_t n = r->min_nodes; n <= r->nodes; n++) {
		if (cfg->batch.global % (n * tasks) == 0)
			continue;
		CT_FAIL(CT_USAGE,
			"--nodes %lld..%lld: batch.global %lld is not divisible by the %lld ranks of %lld nodes",
			(long long)r->min_nodes, (long long)r->nodes, (long long)cfg->batch.global,
			(long long)(n * tasks), (long long)n);
		return ct_error_hint("choose a global batch that each number of ranks divides");
	}
	return CT_OK;
}

static enum ct_status count_tasks(const struct ct_config *cfg, const struct request *r, int *out)
{
	*out = cfg->launch.procs > 0 ? (int)cfg->launch.procs
	       : r->n_gpus > 0       ? (int)r->n_gpus
				     : ct_plan_local_procs(cfg);
	if (r->n_gpus == 0 || *out <= r->n_gpus)
		return check_range(cfg, r, *out);
	CT_FAIL(CT_USAGE, "%d ranks would have to share %lld GPU%s on each node", *out, (long long)r->n_gpus,
		ct_plural(r->n_gpus));
	return ct_error_hint("use --procs %lld", (long long)r->n_gpus);
}

static enum ct_status make_script(const struct ct_cli *cli, const struct ct_config *cfg, const struct request *r,
				  const char *run_dir, struct ct_str *out)
{
	const struct ct_slurm_options *o = cli->own;
	struct ct_slurm_script s = {.name = cfg->run.name,
				    .config = cli->args[0],
				    .run_dir = run_dir,
				    .more = cli->args + 1,
				    .n_more = (size_t)cli->n_args - 1,
				    .min_nodes = (int)r->min_nodes,
				    .nodes = (int)r->nodes,
				    .gpus = r->gpus,
				    .cpus = o->cpus,
				    .time = o->time,
				    .partition = o->partition,
				    .account = o->account,
				    .mem = o->mem,
				    .array = o->array};
	struct ct_str line = {0};
	char program[PATH_MAX], **sets = NULL;
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

	program[len > 0 ? len : 0] = '\0';
	s.program = len > 0 ? program : "ctrain";
	enum ct_status st = count_tasks(cfg, r, &s.tasks);
	if (st == CT_OK)
		st = collect_sets(cli, &sets, &s.n_sets);
	join_words(cli, &line);
	s.sets = (const char *const *)sets;
	s.command_line = ct_str_text(&line);
	if (st == CT_OK)
		st = ct_slurm_script(&s, out);
	for (size_t i = 0; sets && i < s.n_sets; i++)
		ct_free(sets[i]);
	ct_free(sets);
	ct_str_release(&line);
	return st;
}

/* A file that someone has written by hand is not overwritten. */
static enum ct_status check_target(const char *path)
{
	char *data;
	size_t len;

	if (!ct_file_exists(path))
		return CT_OK;
	CT_TRY(ct_file_read(path, MAX_SCRIPT_BYTES, &data, &len));
	bool ours = strstr(data, "\n" CT_SLURM_MARK) != NULL;
	ct_free(data);
	if (ours)
		return CT_OK;
	CT_FAIL(CT_USAGE, "%s exists, and was not generated by ctrain slurm", path);
	return ct_error_hint("choose another file with --out");
}

static enum ct_status submit(const char *path)
{
	struct ct_str id = {0};
	enum ct_status st = ct_subprocess_run((const char *const[]){"sbatch", "--parsable", path, NULL},
					      ct_deadline_in(SUBMIT_NS), &id);
	const int len = (int)strcspn(ct_str_text(&id), ";\n");

	if (st == CT_OK && len == 0) {
		CT_FAIL(CT_IO, "sbatch %s succeeded, but did not print the id of the job", path);
		st = ct_error_hint("run squeue --me to see whether the job was submitted");
	}
	if (st == CT_OK)
		printf("submitted job %.*s; its state: ctrain slurm status %.*s\n", len, ct_str_text(&id), len,
		       ct_str_text(&id));
	ct_str_release(&id);
	return st;
}

static enum ct_status write_script(const struct ct_cli *cli, const char *path, const struct ct_str *text)
{
	const struct ct_slurm_options *o = cli->own;

	CT_TRY(check_target(path));
	CT_TRY(ct_file_replace(path, ct_str_text(text), text->len));
	if (o->submit)
		return submit(path);
	printf("wrote %s; submit it: sbatch %s\n", path, path);
	return CT_OK;
}

enum ct_status ct_cmd_slurm(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;
	struct ct_str text = {0};
	char *path = NULL, *run_dir = NULL;
	const struct ct_slurm_options *o = cli->own;
	struct request r = {.nodes = 1, .gpus = o->gpus};

	if (o->gpus) {
		const char *colon = strrchr(o->gpus, ':');

		CT_TRY(ct_cli_number("--gpus-per-node", colon ? colon + 1 : o->gpus, 0, 1, 64, &r.n_gpus));
	}
	CT_TRY(load(cli, &cfg, &r));
	enum ct_status st = CT_NOMEM;
	if ((run_dir = ct_plan_run_dir(cfg)))
		st = make_script(cli, cfg, &r, run_dir, &text);
	if (st == CT_OK)
		st = (path = cli->out ? ct_strdup(cli->out) : ct_strfmt("%s.sbatch", cfg->run.name))
			     ? write_script(cli, path, &text)
			     : CT_NOMEM;
	ct_free(path);
	ct_free(run_dir);
	ct_str_release(&text);
	ct_config_destroy(cfg);
	return st;
}

/* Adds one object for each line of Slurm's answer. */
static void add_jobs(char *lines, ct_json *list)
{
	for (char *save = NULL, *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ct_json_push(list, ct_slurm_status(line, TAIL_LINES));
}

static enum ct_status show_job(const char *job, ct_json *list)
{
	struct ct_str answer = {0};
	enum ct_status st = ct_slurm_show_job(job, &answer);

	if (st == CT_OK && answer.len > 0)
		add_jobs(answer.s, list);
	ct_str_release(&answer);
	return st;
}

static enum ct_status show_own_jobs(ct_json *list)
{
	struct ct_str ids = {0};
	enum ct_status st = ct_slurm_own_jobs(&ids);
	char *save = NULL, *id = st == CT_OK && ids.len > 0 ? strtok_r(ids.s, "\n", &save) : NULL;

	for (; id && st == CT_OK; id = strtok_r(NULL, "\n", &save))
		st = show_job(id, list);
	ct_str_release(&ids);
	return st;
}

enum ct_status ct_cmd_slurm_status(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	ct_json *list;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(list = ct_json_array());
	for (int i = 0; i < cli->n_args && st == CT_OK; i++)
		st = show_job(cli->args[i], list);
	if (cli->n_args == 0)
		st = show_own_jobs(list);
	if (st == CT_OK && cli->json)
		return ct_print_json(list, true);
	for (size_t i = 0; i < ct_json_len(list) && st == CT_OK; i++)
		ct_slurm_status_text(ct_json_at(list, i), &text);
	if (st == CT_OK && ct_json_len(list) == 0)
		ct_str_add(&text, "you have no job that was submitted with a script of ctrain slurm\n");
	ct_json_destroy(list);
	if (st == CT_OK)
		return ct_print_text(&text);
	ct_str_release(&text);
	return st;
}
