/* The table of options. */
#ifndef CT_TRAINER_TOOLS_CLI_OPTIONS_H
#define CT_TRAINER_TOOLS_CLI_OPTIONS_H

#include "trainer/tools/cli/cli.h"

/* Option groups of commands: CT_OPT_SETS and so on. They are numbered here, so that no two of them have the same bit.
 */
/* clang-format off */
#define CT_OPT_GROUPS(X) \
	X(SETS) /* KEY=VALUE, and the launch options */ \
	X(LAUNCH) /* no option: the help page lists the launch options */ \
	X(CKPT) /* --checkpoint */ \
	X(JSON) \
	X(OUT) \
	X(DIGITS) \
	X(STEPS) \
	X(ORIGINS) \
	X(THREADS) \
	X(PACK) \
	X(SHOW) \
	X(SECONDS) \
	X(PREDICT) \
	X(COMM) \
	X(SIMULATE) /* --simulate, --assume and others of plan */ \
	X(RANK) /* the identity of a process that another launcher has started */ \
	X(SLURM) \
	X(REMOTE) \
	X(TRACE) \
	X(NOTES) /* no option: the command shows info lines of the log, for example that it waits for nodes */ \
	X(FORCE) \
	X(RUNS) /* --filter, --sort */ \
	X(CLEAN) /* --yes, --dry-run */ \
	X(EVAL) /* --report of eval */ \
	X(INFO) /* --report of info */ \
	X(INIT) /* --labels of init */ \
	X(CHECK) /* --labels of data check */ \
	X(MODEL) /* --config, for weights that do not describe their model */ \
	X(SEARCH) \
	X(ALL) /* accepted by every command: --help, --version, --verbose */
/* clang-format on */
#define CT_OPT_NUMBER(name) CT_OPT_NUMBER_##name,
#define CT_OPT_BIT(name) CT_OPT_##name = 1 << CT_OPT_NUMBER_##name,
enum { CT_OPT_GROUPS(CT_OPT_NUMBER) CT_OPT_N };
enum { CT_OPT_GROUPS(CT_OPT_BIT) };
_Static_assert(CT_OPT_N <= 31, "option groups are bits of an int");

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
const struct ct_option *ct_option_at(size_t i);
/* Finds an option by any of its names; '-' and '_' are equivalent. Returns NULL if it is unknown. */
const struct ct_option *ct_option_find(const char *name, size_t len);
/* Returns the option of this name that the command accepts: the same name may have a meaning in each of several
 * commands. Returns NULL if the command does not accept it. */
const struct ct_option *ct_option_of(const struct ct_command *c, const struct ct_option *o);
/* Finds a command by name and sub (which may be NULL). Returns NULL if it is unknown. `ctrain slurm` has the sub
 * "status", but also works without one; then, sub is not a part of the command, and is ignored. */
const struct ct_command *ct_command_find(const char *name, const char *sub);
/* Returns true if the command needs a sub. */
bool ct_command_has_subs(const char *name);

#endif
