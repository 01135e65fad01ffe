/* Inside of trainer/cli*.c: the options. */
#ifndef CT_TRAINER_COMMANDS_CLI_IMPL_H
#define CT_TRAINER_COMMANDS_CLI_IMPL_H

#include "trainer/commands/cli.h"

/* Option groups of commands. */
enum {
	CT_OPT_SETS = 1, /* KEY=VALUE and the launch options */
	CT_OPT_CKPT = 2, /* --checkpoint */
	CT_OPT_JSON = 4,
	CT_OPT_OUT = 8,
	CT_OPT_DIGITS = 16,
	CT_OPT_STEPS = 32,
	CT_OPT_ORIGINS = 64,
	CT_OPT_THREADS = 256,
	CT_OPT_PACK = 512,
	CT_OPT_SHOW = 1024,
	CT_OPT_SECONDS = 2048,
	CT_OPT_PREDICT = 4096,
	CT_OPT_ALL = 128 /* every command: --help, --version */
};

enum ct_option_kind {
	CT_OPTION_TEXT,  /* const char * of struct ct_cli at offset */
	CT_OPTION_FLAG,  /* bool at offset, no value */
	CT_OPTION_KEY,   /* sets config key */
	CT_OPTION_PROCS, /* launch.procs, launch.procs_list or (torchrun: cpu, gpu) device */
	CT_OPTION_NODES, /* N, or torchrun's N:N */
	CT_OPTION_STANDALONE,
	CT_OPTION_ENDPOINT, /* host[:port] */
	CT_OPTION_BACKEND,  /* torchrun's rendezvous back ends: all the same to us */
	CT_OPTION_RESTARTS, /* only 0 */
	CT_OPTION_HELP,
	CT_OPTION_VERSION
};

struct ct_option {
	const char *names; /* blank-separated, without dashes, '-' between words; the first is the one to show */
	const char *value; /* what help calls the value, NULL: takes none */
	unsigned group;
	enum ct_option_kind kind;
	const char *key;
	size_t offset;
	const char *doc; /* NULL: an alias for other tools' sake, not shown */
};

/* NULL past the end. */
const struct ct_option *ct__option_at(size_t i);
/* By any of its names, '-' and '_' the same; NULL when unknown. */
const struct ct_option *ct__option_find(const char *name, size_t len);
/* name and sub (may be NULL); NULL when unknown. */
const struct ct_command *ct__command_find(const char *name, const char *sub);
bool ct__command_has_subs(const char *name);

#endif
