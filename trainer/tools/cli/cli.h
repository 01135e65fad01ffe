/* The command line. The parser and the help pages use one table of commands and options (table.h). Launch options can
 * be written with ctrain's names (--procs, --nodes ...) or torchrun's names (--nproc_per_node, --nnodes,
 * --standalone ...; '-' and '_' are equivalent). Each launch option sets a config key. */
#ifndef CT_TRAINER_TOOLS_CLI_CLI_H
#define CT_TRAINER_TOOLS_CLI_CLI_H

#include "trainer/config/config.h"
#include "trainer/tools/cli/table.h"

/* --rank and others: the identity of a process that another launcher has started */
struct ct_rank_options {
	const char *rank, *world_size, *local_rank;
};

struct ct_cli {
	const struct ct_cli_table *table;
	const struct ct_command *command;
	const char **args; /* positional arguments after the command, without KEY=VALUE; the strings are borrowed from
			      argv */
	int n_args;
	struct ct_config_set *sets; /* owned, including the strings; in command-line order */
	size_t n_sets;
	/* Options that several commands accept; NULL or false if not given */
	const char *checkpoint, *config, *out, *steps, *threads, *filter, *sort;
	struct ct_rank_options identity;
	bool json, force, verbose;
	void *own; /* owned: the struct of the command's own options (struct ct_command), or NULL */
	int argc;  /* the complete command line, which is passed to the workers */
	char **argv;
};

/* Parses the command line. Fails with CT_USAGE; if a name is misspelled, the error contains a suggestion. The
 * command of a line with --help or --version is help or version, and the other words are not checked. Release `out`
 * even if this function fails. */
enum ct_status ct_cli_parse(const struct ct_cli_table *table, int argc, char **argv, struct ct_cli *out) CT_MUST_CHECK;
void ct_cli_release(struct ct_cli *cli);

/* Parses the integer value of an option, or stores `fallback` if text is NULL. A CT_USAGE error names the option. */
enum ct_status ct_cli_number(const char *option, const char *text, int64_t fallback, int64_t lo, int64_t hi,
			     int64_t *out) CT_MUST_CHECK;

/* Determines which info lines of the log are shown: those of some commands, or with --verbose all of them. */
void ct_cli_set_log(const struct ct_cli *cli);

#endif
