/* The command line: one table of commands and options (cli_table.c) drives parser and help. Launch options are spelled
 * in our way (--procs, --nodes ...) and as torchrun does (--nproc_per_node, --nnodes, --standalone ...; '-' and '_' are
 * the same) and become config sets. */
#ifndef CT_TRAINER_COMMANDS_CLI_H
#define CT_TRAINER_COMMANDS_CLI_H

#include "trainer/config/config.h"

#define CT_MAX_ARGS 64
#define CT_ANY_ARGS 1000000

struct ct_cli {
	const struct ct_command *command;
	const char **args; /* positional arguments after the command, without KEY=VALUE; texts borrowed from argv */
	int n_args;
	struct ct_config_set *sets; /* owned, as are its texts; in the order of the command line */
	size_t n_sets;
	/* options of single commands; NULL / false when not given */
	const char *checkpoint, *out, *seed, *train_count, *test_count, *steps, *threads, *seconds;
	const char *classes, *val_map, *shard_size, *short_side, *quality, *shuffle, *epoch, *count;
	const char *config, *top;
	bool json, origins, seekable, force;
	int argc; /* the whole line again, for starting workers */
	char **argv;
};

/* A command runs and returns its status; results go to standard output, chatter to standard error. */
struct ct_command {
	const char *name, *sub; /* "ckpt", "show"; "train" is implied by CONFIG.yaml */
	const char *args;       /* "CONFIG.yaml [KEY=VALUE ...]" */
	const char *doc;
	enum ct_status (*run)(const struct ct_cli *cli);
	unsigned options; /* which option groups it takes: CT_OPT_... */
	int min_args, max_args;
};

/* Reads the line. CT_USAGE with a suggestion for what is misspelt. help, --help and --version print to standard output
 * and give a command with run == NULL. Release `out` in every case. */
enum ct_status ct_cli_parse(int argc, char **argv, struct ct_cli *out) CT_MUST_CHECK;
void ct_cli_release(struct ct_cli *cli);

/* The whole number of an option: fallback where text is NULL. CT_USAGE names the option. */
enum ct_status ct_cli_number(const char *option, const char *text, int64_t fallback, int64_t lo, int64_t hi,
			     int64_t *out) CT_MUST_CHECK;

/* The overview (command NULL) or one command's page, appended. */
void ct_cli_help(const struct ct_command *command, struct ct_str *out);
/* NULL past the end. */
const struct ct_command *ct_command_at(size_t i);

/* Commands, each in the file named after it. */
enum ct_status ct_cmd_train(const struct ct_cli *cli); /* launch.c decides: worker or launcher */
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
