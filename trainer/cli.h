/* The command line: one table of commands and options drives parser and help. Launch options are spelled as DESIGN 3.1 and as
 * torchrun does (--nproc_per_node, --nnodes, --standalone ...; '-' and '_' are the same) and become config sets. */
#ifndef CT_TRAINER_CLI_H
#define CT_TRAINER_CLI_H

#include "trainer/config.h"

struct ct_cli {
	const struct ct_command *command;
	const char *args[8];          /* positional arguments after the command, without KEY=VALUE */
	int n_args;
	struct ct_config_set *sets;   /* owned array, borrowed texts (argv) */
	size_t n_sets;
	/* options of single commands; NULL / false / 0 when not given */
	const char *checkpoint, *out, *seed, *train_count, *test_count, *steps, *backend;
	bool json, force, markdown, schema, origins;
	int argc;                     /* the whole line again, for starting workers */
	char **argv;
};

/* A command runs and returns its status; results go to standard output, chatter to standard error. */
struct ct_command {
	const char *name, *sub;       /* "ckpt", "show"; "train" is implied by CONFIG.yaml */
	const char *args;             /* "CONFIG.yaml [KEY=VALUE ...]" */
	const char *doc;
	enum ct_status (*run)(const struct ct_cli *cli);
	unsigned options;             /* which option groups it takes */
	int min_args, max_args;
};

/* CT_USAGE with a suggestion for what is misspelt. --help and --version print and give a command with run == NULL. */
enum ct_status ct_cli_parse(int argc, char **argv, struct ct_cli *out) CT_MUST_CHECK;
void ct_cli_release(struct ct_cli *cli);

/* Commands, each in the file named after it. */
enum ct_status ct_cmd_train(const struct ct_cli *cli);        /* launch.c decides: worker or launcher */
enum ct_status ct_cmd_eval(const struct ct_cli *cli);
enum ct_status ct_cmd_plan(const struct ct_cli *cli);
enum ct_status ct_cmd_check(const struct ct_cli *cli);        /* cmd_config.c */
enum ct_status ct_cmd_config_docs(const struct ct_cli *cli);  /* cmd_config.c: `ctrain config docs|schema|dump` */
enum ct_status ct_cmd_config_schema(const struct ct_cli *cli);
enum ct_status ct_cmd_config_dump(const struct ct_cli *cli);
enum ct_status ct_cmd_info(const struct ct_cli *cli);
enum ct_status ct_cmd_data_digits(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_show(const struct ct_cli *cli);    /* cmd_ckpt.c */
enum ct_status ct_cmd_ckpt_verify(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_step(const struct ct_cli *cli);   /* cmd_bench.c */
enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli);

#endif
