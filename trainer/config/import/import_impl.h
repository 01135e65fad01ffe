/* The parts of a translation. */
#ifndef CT_TRAINER_CONFIG_IMPORT_IMPORT_IMPL_H
#define CT_TRAINER_CONFIG_IMPORT_IMPORT_IMPL_H

#include "trainer/config/import/import.h"

/* ---- words.c */

struct ct_words {
	char **all; /* [n] */
	size_t n, cap;
};

/* Splits a command as a shell does, but keeps variables and $(...). Fails with CT_USAGE if a quote or parenthesis is
 * not closed, or if there are several commands. Release *out even on failure. */
enum ct_status ct__words_split(const char *line, struct ct_words *out) CT_MUST_CHECK;
void ct__words_release(struct ct_words *w);
/* Adds a word, quoted so that the shell still replaces variables in it. */
void ct__word_add(struct ct_str *out, const char *word);

/* ---- import.c */

enum { CT_IMPORT_SETS = 64 };

struct ct_import {
	struct ct_words words;
	size_t at;             /* the next word */
	struct ct_str wrapper; /* environment variables, srun or mpirun, in front of the command */
	struct ct_str notes;   /* comment lines */
	struct ct_str unknown; /* options that were not translated */
	struct {
		/* A key of the config, or "?" and the name of something that ct__import_settle needs. Owned. */
		char *key, *value;
	} sets[CT_IMPORT_SETS];
	size_t n_sets;
	const char *script;    /* the file name of the training script; NULL: none */
	const char *arguments; /* names of its arguments without dashes, separated by spaces */
	bool imagenet;         /* it is the ImageNet example, or has its options */
	bool mnist;            /* it is the MNIST example */
	bool under_launcher;   /* srun or mpirun starts the processes */
	bool per_process;      /* a launcher of PyTorch starts the processes */
	enum ct_status status; /* of the first failure */
};

/* Replaces or adds a setting. The value is copied. */
void ct__import_set(struct ct_import *im, const char *key, const char *value);
/* Removes a setting, if it exists. */
void ct__import_drop(struct ct_import *im, const char *key);
/* Returns the value of a setting, or NULL. */
const char *ct__import_get(const struct ct_import *im, const char *key);
void ct__import_note(struct ct_import *im, const char *fmt, ...) CT_PRINTF(2, 3);

/* ---- options.c */

struct ct_rule {
	const char *names; /* of the option, without dashes, separated by spaces; '-' and '_' are equivalent */
	bool flag;         /* has no value */
	const char *set;   /* the key that gets the value; for a flag, KEY=VALUE; NULL: none */
	void (*apply)(struct ct_import *im, const char *value); /* instead of set */
	const char *note;                                       /* what to know about the option */
};

struct ct_rules {
	const struct ct_rule *all;
	size_t n;
};

extern const struct ct_rules ct__torchrun_rules, ct__accelerate_rules;
extern const struct ct_rules ct__script_rules; /* script.c */

/* "--lr=0.1": word; "lr": name [len]; "0.1": value, or NULL if the value is the next word, if there is one. */
struct ct_option_word {
	const char *word, *name, *value;
	size_t len;
};

/* Reads the next word if it is an option. */
bool ct__import_next(struct ct_import *im, struct ct_option_word *out);
/* Returns the value of an option, which may be the next word, or NULL if it has none. */
const char *ct__import_value(struct ct_import *im, const struct ct_option_word *o);
/* Applies the rule for an option. Returns false if there is none. */
bool ct__import_apply(struct ct_import *im, const struct ct_rules *rules, const struct ct_option_word *o);
/* Lists an option as not translated. */
void ct__import_unknown(struct ct_import *im, const struct ct_option_word *o);
/* Translates the options of a launcher, up to the script. */
void ct__import_launcher(struct ct_import *im, const struct ct_rules *rules);
/* Sets address and port from HOST[:PORT]. */
void ct__import_set_endpoint(struct ct_import *im, const char *value);
void ct__import_set_precision(struct ct_import *im, const char *value);

/* ---- script.c */

/* Translates the options of the training script, up to the end. */
void ct__import_script(struct ct_import *im);
/* Returns the config that replaces the script. */
const char *ct__import_config(struct ct_import *im);

/* ---- settle.c */

/* Decides what depends on several options: number of nodes, address and batch size. */
void ct__import_settle(struct ct_import *im);

#endif
