/* The tables of commands and options, from which the parser (cli.h) and the help pages work. trainer/tools/commands
 * contains them; the parser and the help get a pointer to them, so that they do not depend on the commands. */
#ifndef CT_TRAINER_TOOLS_CLI_TABLE_H
#define CT_TRAINER_TOOLS_CLI_TABLE_H

#include "base/status.h"

struct ct_cli;

#define CT_MAX_ARGS 64
#define CT_ANY_ARGS 1000000

/* Groups of options that several commands accept: CT_OPT_SETS and so on. They are numbered here, so that no two of them
 * have the same bit.
 */
/* clang-format off */
#define CT_OPT_GROUPS(X) \
	X(SETS) /* KEY=VALUE, and the launch options */ \
	X(LAUNCH) /* no option: the help page lists the launch options */ \
	X(PLACE) /* the number of nodes and ranks, and how they find each other */ \
	X(CKPT) /* --checkpoint */ \
	X(JSON) \
	X(OUT) \
	X(STEPS) \
	X(THREADS) \
	X(RANK) /* the identity of a process that another launcher has started */ \
	X(NOTES) /* no option: the command shows info lines of the log, for example that it waits for nodes */ \
	X(FORCE) \
	X(RUNS) /* --filter, --sort */ \
	X(MODEL) /* --config, for weights that do not describe their model */ \
	X(ALL) /* accepted by every command: --help, --version, --verbose */
/* clang-format on */
#define CT_OPT_NUMBER(name) CT_OPT_NUMBER_##name,
#define CT_OPT_BIT(name) CT_OPT_##name = 1 << CT_OPT_NUMBER_##name,
enum { CT_OPT_GROUPS(CT_OPT_NUMBER) CT_OPT_N };
enum { CT_OPT_GROUPS(CT_OPT_BIT) };
_Static_assert(CT_OPT_N <= 31, "option groups are bits of an int");

enum ct_option_kind {
	CT_OPTION_TEXT,  /* sets the const char * at `offset` */
	CT_OPTION_FLAG,  /* sets the bool at `offset`; has no value */
	CT_OPTION_KEY,   /* sets the config key `key` */
	CT_OPTION_PROCS, /* launch.procs, launch.procs_list or (torchrun: cpu, gpu) device */
	CT_OPTION_STANDALONE,
	CT_OPTION_QUIET,
	CT_OPTION_ENDPOINT, /* host[:port] */
	CT_OPTION_BACKEND,  /* torchrun's rendezvous back ends; ignored */
	CT_OPTION_HELP,
	CT_OPTION_VERSION
};

/* The struct of the options that only one command accepts. The address of this description identifies it. */
struct ct_own_options {
	size_t size;
};

/* A command. `run` executes it, and writes results to standard output and everything else to standard error. */
struct ct_command {
	const char *name,
		*sub; /* the words of the command, for example "ckpt" and "show"; CONFIG.yaml alone implies "train" */
	const char *args; /* arguments as help shows them: "CONFIG.yaml [KEY=VALUE ...]" */
	const char *doc;
	enum ct_status (*run)(const struct ct_cli *cli);
	unsigned options;                 /* option groups that the command accepts: CT_OPT_... */
	const struct ct_own_options *own; /* further options, or NULL */
	int min_args, max_args;
};

struct ct_option {
	const char *names; /* separated by spaces, without leading dashes; help shows the first one */
	const char *value; /* name of the value in help; NULL: the option has no value */
	enum ct_option_kind kind;
	const char *key;
	unsigned group;                   /* CT_OPT_..., or 0 */
	const struct ct_own_options *own; /* of the command that accepts it, or NULL */
	size_t offset;                    /* of its value in the own options, or in struct ct_cli */
	const char *doc; /* NULL: the option is accepted only for compatibility with other tools; not shown in help */
};

struct ct_cli_table {
	const struct ct_command *commands;
	size_t n_commands;
	const struct ct_option *options;
	size_t n_options;
};

/* Return command or option i of the table, or NULL if i is past its end. */
const struct ct_command *ct_command_at(const struct ct_cli_table *t, size_t i);
const struct ct_option *ct_option_at(const struct ct_cli_table *t, size_t i);
/* Returns true if the option belongs to one of the groups, or to the own options. */
bool ct_option_is_in(const struct ct_option *o, unsigned groups, const struct ct_own_options *own);
/* Finds an option by any of its names; '-' and '_' are equivalent. Returns NULL if it is unknown. */
const struct ct_option *ct_option_find(const struct ct_cli_table *t, const char *name, size_t len);
/* Returns the option of this name that the command accepts: the same name may have a meaning in each of several
 * commands. Returns NULL if the command does not accept it. */
const struct ct_option *ct_option_of(const struct ct_cli_table *t, const struct ct_command *c,
				     const struct ct_option *o);
/* Finds a command by name and sub (which may be NULL). Returns NULL if it is unknown. `ctrain slurm` has the sub
 * "status", but also works without one; then, sub is not a part of the command, and is ignored. */
const struct ct_command *ct_command_find(const struct ct_cli_table *t, const char *name, const char *sub);
/* Returns true if the command needs a sub. */
bool ct_command_has_subs(const struct ct_cli_table *t, const char *name);
/* Writes "data pack" for the command, and returns it. */
const char *ct_command_name(const struct ct_command *c, char name[40]);

#endif
