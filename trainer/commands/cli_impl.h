/* The table of options. Private to trainer/commands/cli*.c. */
#ifndef CT_TRAINER_COMMANDS_CLI_IMPL_H
#define CT_TRAINER_COMMANDS_CLI_IMPL_H

#include "trainer/commands/cli.h"

/* Option groups of commands. */
enum {
	CT_OPT_SETS = 1 << 0, /* KEY=VALUE, and the launch options */
	CT_OPT_CKPT = 1 << 1, /* --checkpoint */
	CT_OPT_JSON = 1 << 2,
	CT_OPT_OUT = 1 << 3,
	CT_OPT_DIGITS = 1 << 4,
	CT_OPT_STEPS = 1 << 5,
	CT_OPT_ORIGINS = 1 << 6,
	CT_OPT_THREADS = 1 << 7,
	CT_OPT_PACK = 1 << 8,
	CT_OPT_SHOW = 1 << 9,
	CT_OPT_SECONDS = 1 << 10,
	CT_OPT_PREDICT = 1 << 11,
	CT_OPT_COMM = 1 << 12,
	CT_OPT_SIMULATE = 1 << 13,
	CT_OPT_RANK = 1 << 14, /* the identity of a process that another launcher has started */
	CT_OPT_SLURM = 1 << 15,
	CT_OPT_REMOTE = 1 << 16,
	CT_OPT_TRACE = 1 << 24,
	CT_OPT_RUNS = 1 << 19,  /* --filter, --sort */
	CT_OPT_CLEAN = 1 << 20, /* --yes, --dry-run */
	CT_OPT_NOTES =
		1 << 17, /* no option: the command shows info lines of the log, for example that it waits for nodes */
	CT_OPT_FORCE = 1 << 18,
	CT_OPT_EVAL = 1 << 21,  /* --report of eval */
	CT_OPT_MODEL = 1 << 22, /* --config, for weights that do not describe their model */
	CT_OPT_INFO = 1 << 23,   /* --report of info */
	CT_OPT_INIT = 1 << 24,   /* --labels */
	CT_OPT_LAUNCH = 1 << 25, /* no option: the help page lists the launch options */
	CT_OPT_SEARCH = 1 << 29,
	CT_OPT_ALL = 1 << 30 /* accepted by every command: --help, --version, --verbose */
};

enum ct_option_kind {
	CT_OPTION_TEXT,  /* sets the const char * at `offset` in struct ct_cli */
	CT_OPTION_FLAG,  /* sets the bool at `offset`; has no value */
	CT_OPTION_KEY,   /* sets the config key `key` */
	CT_OPTION_PROCS, /* launch.procs, launch.procs_list or (torchrun: cpu, gpu) device */
	CT_OPTION_STANDALONE,
	CT_OPTION_QUIET,
	CT_OPTION_ENDPOINT, /* host[:port] */
	CT_OPTION_BACKEND,  /* torchrun's rendezvous back ends; ignored */
	CT_OPTION_HELP,
	CT_OPTION_SEARCH, /* of help */
	CT_OPTION_VERSION
};

struct ct_option {
	const char *names; /* separated by spaces, without leading dashes; help shows the first one */
	const char *value; /* name of the value in help; NULL: the option has no value */
	unsigned group;
	enum ct_option_kind kind;
	const char *key;
	size_t offset;
	const char *doc; /* NULL: the option is accepted only for compatibility with other tools; not shown in help */
};

/* Returns option i of the table, or NULL if i is past its end. */
const struct ct_option *ct__option_at(size_t i);
/* Finds an option by any of its names; '-' and '_' are equivalent. Returns NULL if it is unknown. */
const struct ct_option *ct__option_find(const char *name, size_t len);
/* Returns the option of this name that the command accepts: the same name may have a meaning in each of several commands.
 * Returns NULL if the command does not accept it. */
const struct ct_option *ct__option_of(const struct ct_command *c, const struct ct_option *o);
/* Finds a command by name and sub (which may be NULL). Returns NULL if it is unknown. `ctrain slurm` has the sub
 * "status", but also works without one; then, sub is not a part of the command, and is ignored. */
const struct ct_command *ct__command_find(const char *name, const char *sub);
/* Returns true if the command needs a sub. */
bool ct__command_has_subs(const char *name);

#endif
