/* The command line. The parser and the help pages are driven by one table of commands and options (cli_table.c). Launch
 * options have ctrain's names (--procs, --nodes ...) and those of torchrun (--nproc_per_node, --nnodes, --standalone
 * ...; '-' and '_' are equivalent); they become config sets. */
#ifndef CT_TRAINER_COMMANDS_CLI_H
#define CT_TRAINER_COMMANDS_CLI_H

#include "trainer/config/config.h"

#define CT_MAX_ARGS 64
#define CT_ANY_ARGS 1000000

struct ct_cli {
	const struct ct_command *command;
	const char **args; /* positional arguments after the command, without KEY=VALUE; strings borrowed from argv */
	int n_args;
	struct ct_config_set *sets; /* owned, including its strings; in the order of the command line */
	size_t n_sets;
	/* options of single commands; NULL or false if not given */
	const char *checkpoint, *out, *seed, *train_count, *test_count, *steps, *threads, *seconds;
	const char *classes, *val_map, *shard_size, *short_side, *quality, *shuffle, *epoch, *count;
	const char *config, *top;
	bool json, origins, seekable, force;
	int argc; /* the complete command line, to start workers with */
	char **argv;
};

/* A command. `run` returns its status; results go to standard output, everything else to standard error. */
struct ct_command {
	const char *name, *sub; /* "ckpt", "show"; "train" is implied by CONFIG.yaml */
	const char *args;       /* "CONFIG.yaml [KEY=VALUE ...]" */
	const char *doc;
	enum ct_status (*run)(const struct ct_cli *cli);
	unsigned options; /* option groups that it accepts: CT_OPT_... */
	int min_args, max_args;
};

/* Parses the command line. CT_USAGE with a suggestion if a name is misspelled. help, --help and --version print to
 * standard output; the command is then one with run == NULL. Release `out` in every case. */
enum ct_status ct_cli_parse(int argc, char **argv, struct ct_cli *out) CT_MUST_CHECK;
void ct_cli_release(struct ct_cli *cli);

/* Parses the integer value of an option; `fallback` if text is NULL. CT_USAGE names the option. */
enum ct_status ct_cli_number(const char *option, const char *text, int64_t fallback, int64_t lo, int64_t hi,
			     int64_t *out) CT_MUST_CHECK;

/* Appends the help page of a command, or the overview if command is NULL. */
void ct_cli_help(const struct ct_command *command, struct ct_str *out);
/* NULL past the end. */
const struct ct_command *ct_command_at(size_t i);

/* The commands, each in the file with its name unless noted. */
enum ct_status ct_cmd_train(const struct ct_cli *cli); /* runs as a worker or as the launcher */
enum ct_status ct_cmd_eval(const struct ct_cli *cli);
enum ct_status ct_cmd_predict(const struct ct_cli *cli);
enum ct_status ct_cmd_plan(const struct ct_cli *cli);
enum ct_status ct_cmd_check(const struct ct_cli *cli);       /* cmd_config.c */
enum ct_status ct_cmd_config_docs(const struct ct_cli *cli); /* cmd_config.c: `ctrain config docs|schema|dump` */
enum ct_status ct_cmd_config_schema(const struct ct_cli *cli);
enum ct_status ct_cmd_config_dump(const struct ct_cli *cli);
enum ct_status ct_cmd_info(const struct ct_cli *cli);
enum ct_status ct_cmd_data_digits(const struct ct_cli *cli);
enum ct_status ct_cmd_data_check(const struct ct_cli *cli);
enum ct_status ct_cmd_data_pack(const struct ct_cli *cli);
enum ct_status ct_cmd_data_show(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_show(const struct ct_cli *cli); /* cmd_ckpt.c */
enum ct_status ct_cmd_ckpt_verify(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_export(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_step(const struct ct_cli *cli); /* cmd_bench.c */
enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_data(const struct ct_cli *cli);

#endif
