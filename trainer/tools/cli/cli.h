/* The command line. The parser and the help pages use one table of commands and options (cli_table.c). Launch options
 * can be written with ctrain's names (--procs, --nodes ...) or torchrun's names (--nproc_per_node, --nnodes,
 * --standalone ...; '-' and '_' are equivalent). Each launch option sets a config key. */
#ifndef CT_TRAINER_TOOLS_CLI_CLI_H
#define CT_TRAINER_TOOLS_CLI_CLI_H

#include "trainer/config/config.h"

#define CT_MAX_ARGS 64
#define CT_ANY_ARGS 1000000

struct ct_identity;

struct ct_cli {
	const struct ct_command *command;
	const char **args; /* positional arguments after the command, without KEY=VALUE; the strings are borrowed from
			      argv */
	int n_args;
	struct ct_config_set *sets; /* owned, including the strings; in command-line order */
	size_t n_sets;
	/* options of individual commands; NULL or false if not given */
	const char *checkpoint, *out, *seed, *train_count, *test_count, *steps, *threads, *seconds;
	const char *classes, *val_map, *shard_size, *short_side, *quality, *shuffle, *epoch, *count;
	const char *config, *top, *tta, *labels;
	const char *rank, *world_size, *local_rank;
	const char *hosts, *ssh;
	const char *op, *type, *redop, *root, *min, *max, *factor, *step, *iters, *warmup;
	const char *assume, *simulate, *step_ms, *link_intra, *link_inter, *allreduce;
	const char *gpus, *cpus, *time, *partition, *account, *mem, *array;
	const char *filter, *sort;
	const char *trace;
	bool report, json, jsonl, csv, origins, seekable, force, submit, verbose, yes, dry_run, no_measure;
	bool before_after, mixup;
	int argc; /* the complete command line, which is passed to the workers */
	char **argv;
};

/* A command. `run` executes it, and writes results to standard output and everything else to standard error. */
struct ct_command {
	const char *name,
		*sub; /* the words of the command, for example "ckpt" and "show"; CONFIG.yaml alone implies "train" */
	const char *args; /* arguments as help shows them: "CONFIG.yaml [KEY=VALUE ...]" */
	const char *doc;
	enum ct_status (*run)(const struct ct_cli *cli);
	unsigned options; /* option groups that the command accepts: CT_OPT_... */
	int min_args, max_args;
};

/* Parses the command line. Fails with CT_USAGE; if a name is misspelled, the error contains a suggestion. help, --help
 * and --version print to standard output; out->command->run is then NULL. Release `out` even if this function fails. */
enum ct_status ct_cli_parse(int argc, char **argv, struct ct_cli *out) CT_MUST_CHECK;
void ct_cli_release(struct ct_cli *cli);

/* Parses the integer value of an option, or stores `fallback` if text is NULL. A CT_USAGE error names the option. */
enum ct_status ct_cli_number(const char *option, const char *text, int64_t fallback, int64_t lo, int64_t hi,
			     int64_t *out) CT_MUST_CHECK;

/* Determines which info lines of the log are shown: those of some commands, or with --verbose all of them. */
void ct_cli_set_log(const struct ct_cli *cli);

/* Determines which rank this process is (dist/rendezvous/rendezvous.h). --rank, --world-size and --local-rank replace
 * the environment variables of the same names, except in the workers of our own launcher. Fails with CT_USAGE if
 * another launcher has started this process, and an option requests another number of ranks or another node. In a Slurm
 * step, it may change the config (trainer/tools/commands/slurm_nodes_impl.h). */
enum ct_status ct_cli_identity(const struct ct_cli *cli, struct ct_config *cfg, struct ct_identity *out) CT_MUST_CHECK;

/* Appends the help page of a command, or the overview if command is NULL. */
void ct_cli_help(const struct ct_command *command, struct ct_str *out);
/* Returns command i of the table, or NULL if i is past its end. */
const struct ct_command *ct_command_at(size_t i);

/* The commands. Each is in the file cmd_NAME.c, unless noted otherwise. */
enum ct_status ct_cmd_train(const struct ct_cli *cli); /* runs as a worker or as the launcher */
enum ct_status ct_cmd_eval(const struct ct_cli *cli);
enum ct_status ct_cmd_init(const struct ct_cli *cli);
enum ct_status ct_cmd_predict(const struct ct_cli *cli);
enum ct_status ct_cmd_plan(const struct ct_cli *cli);
enum ct_status ct_cmd_check(const struct ct_cli *cli);       /* cmd_config.c */
enum ct_status ct_cmd_config_docs(const struct ct_cli *cli); /* cmd_config.c: `ctrain config docs|schema|dump` */
enum ct_status ct_cmd_config_schema(const struct ct_cli *cli);
enum ct_status ct_cmd_config_dump(const struct ct_cli *cli);
enum ct_status ct_cmd_runs(const struct ct_cli *cli); /* cmd_runs.c: `ctrain runs`, `runs clean`, `compare`, `watch` */
enum ct_status ct_cmd_runs_clean(const struct ct_cli *cli);
enum ct_status ct_cmd_compare(const struct ct_cli *cli);
enum ct_status ct_cmd_watch(const struct ct_cli *cli);
enum ct_status ct_cmd_postmortem(const struct ct_cli *cli);
enum ct_status ct_cmd_report(const struct ct_cli *cli);
enum ct_status ct_cmd_info(const struct ct_cli *cli);
enum ct_status ct_cmd_doctor(const struct ct_cli *cli);
enum ct_status ct_cmd_explain(const struct ct_cli *cli); /* cmd_doctor.c */
enum ct_status ct_cmd_launch(const struct ct_cli *cli);
enum ct_status ct_cmd_import(const struct ct_cli *cli);
enum ct_status ct_cmd_data_digits(const struct ct_cli *cli);
enum ct_status ct_cmd_data_check(const struct ct_cli *cli);
enum ct_status ct_cmd_data_pack(const struct ct_cli *cli);
enum ct_status ct_cmd_data_stats(const struct ct_cli *cli);
enum ct_status ct_cmd_data_show(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_show(const struct ct_cli *cli); /* cmd_ckpt.c */
enum ct_status ct_cmd_ckpt_verify(const struct ct_cli *cli);
enum ct_status ct_cmd_export(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_export(const struct ct_cli *cli); /* cmd_export.c */
enum ct_status ct_cmd_bench_step(const struct ct_cli *cli);  /* cmd_bench.c */
enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_data(const struct ct_cli *cli);
enum ct_status ct_cmd_slurm(const struct ct_cli *cli);
enum ct_status ct_cmd_slurm_status(const struct ct_cli *cli); /* cmd_slurm.c */

#endif
