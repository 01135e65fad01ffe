/* The configuration is one struct. Its fields and the table that describes them (trainer/config/schema.c) are generated
 * from one list of keys, trainer/config/keys.def. Parsing, range checks, suggestions, `ctrain check`, `ctrain help
 * KEY`, the resolved dump, docs/CONFIG.md and the JSON Schema all use this table.
 *
 * Precedence: command line (KEY=VALUE and launch options) > environment > file (later `base:` children win) > default.
 * If two keys exclude each other (batch.global and batch.per_rank), the key from the source with higher precedence is
 * used, and the other key is treated as not set. Similarly, a key that applies only to a model, data set, optimizer or
 * schedule that was not chosen is reset to its default if the choice comes from a source with higher precedence than
 * the key. Within a single source, both cases are errors. The problems of all sources are collected and reported
 * together, as `file:line:column: error: text`. */
#ifndef CT_TRAINER_CONFIG_CONFIG_H
#define CT_TRAINER_CONFIG_CONFIG_H

#include <stdint.h>

#include "base/cpu/features.h"
#include "base/mem.h"
#include "nn/models/model.h"
#include "nn/optim/lr_schedule.h"
#include "nn/optim/optim.h"
#include "trainer/config/choices.h"

#define CT_CFG_AUTO (-1)         /* value of a number that is set to "auto" */
#define CT_DATA_DEFAULT_SIZE 224 /* size of compressed images if data.train.size is not set */

struct ct_int_list {
	int n;
	int64_t v[16];
};
struct ct_float_list {
	int n;
	double v[16];
};
struct ct_str_list {
	int n;
	char **v; /* up to 1,024 entries */
};
/* Image sizes by epoch, such as `224` or `[[0,128],[10,160]]`. The first epoch is 0, and the epochs are in increasing
 * order. */
struct ct_size_list {
	int n;
	struct {
		int64_t epoch, size;
	} v[16];
};

/* The C type of a key's field, by the type of the key. Strings are owned and never NULL; "" means "not set". */
#define CT_FIELD_INT int64_t
#define CT_FIELD_FLOAT double
#define CT_FIELD_MIB double
#define CT_FIELD_SECONDS double
#define CT_FIELD_BOOL bool
#define CT_FIELD_STR char *
#define CT_FIELD_ENUM(tag, list) enum tag
#define CT_FIELD_INTS struct ct_int_list
#define CT_FIELD_FLOATS struct ct_float_list
#define CT_FIELD_STRS struct ct_str_list
#define CT_FIELD_SIZES struct ct_size_list

/* One field for each key, of the same name: the key data.augment.flip is the field data.augment.flip. The list of keys
 * documents them. */
struct ct_config {
	/* clang-format off */
#define SECTION(path, doc) struct {
#define END(name) } name;
/* clang-format on */
#define KEY(section, field, type, ...) CT_FIELD_##type field;
#define TOP(field, type, ...) CT_FIELD_##type field;
#define PART(section, key, field, type, ...) CT_FIELD_##type field;
#define RANGE(section, field, min, ...) int64_t field, min;
#include "trainer/config/keys.def"

	/* The following fields are not keys. */
	bool ranks_are_started; /* this process is a rank of another launcher, which determines the number of ranks */
	void *origins;          /* for each key, the origin of its value */
};

/* A KEY=VALUE from the command line. Errors and `plan` show `origin`, for example "--procs" or "argument 3". */
struct ct_config_set {
	const char *key, *value, *origin;
};

/* Reads the file and its `base:` chain, applies the environment variables and `sets`, and checks all values. On
 * failure, the error message contains all problems, one per line, and the status is CT_CONFIG (exit code 2), even if a
 * file is missing. If path is NULL, there is no file. *out is owned by the caller. */
enum ct_status ct_config_load(const char *path, const struct ct_config_set *sets, size_t n_sets,
			      struct ct_config **out) CT_MUST_CHECK;
/* If name is that of an example config, such as "mnist_ddp", returns the path of the config that is installed with
 * ctrain (base/process/program.h), else NULL. ct_config_load uses it if there is no file of this name. The result is
 * owned. */
char *ct_config_example(const char *name);
/* Appends the names of the example configs that contain the word, separated by commas. */
void ct_config_examples_like(const char *word, struct ct_str *out);
/* Reads what can be read of a config for which ct_config_load has failed, so that this node can report its failure to
 * the other nodes. Other values are defaults. *out is owned by the caller. */
enum ct_status ct_config_salvage(const char *path, const struct ct_config_set *sets, size_t n_sets,
				 struct ct_config **out) CT_MUST_CHECK;
void ct_config_destroy(struct ct_config *c);
/* Called with a name and a value; "..." if the value is a list or a mapping that is not empty. */
typedef void (*ct_config_visit_fn)(void *user, const char *name, const char *value);
/* Reads a YAML file (or JSON, which is YAML) of another program, and calls `visit` for each name at its top level.
 * Fails with CT_CONFIG if it is not such a file. */
enum ct_status ct_config_read_other(const char *path, ct_config_visit_fn visit, void *user) CT_MUST_CHECK;
/* Returns the name of the chosen value of an enumeration key, for example "sgd" for "optim.name". The result is a
 * string literal. */
const char *ct_config_choice(const struct ct_config *c, const char *key);
/* Replaces the value of an enumeration key, which was `auto`, by what was chosen. `why` is the origin of the value from
 * now on; it is copied. Fails with CT_DATA if `value` is not one of the choices. */
enum ct_status ct_config_settle(struct ct_config *c, const char *key, const char *value, const char *why) CT_MUST_CHECK;

/* Where the value of a key comes from. */
enum ct_origin_kind {
	CT_ORIGIN_DEFAULT, /* the default of the key */
	CT_ORIGIN_DERIVED, /* a default that depends on another key or on an environment variable */
	CT_ORIGIN_UNSET,   /* not set, because another key is that excludes it */
	CT_ORIGIN_FILE,
	CT_ORIGIN_OTHER /* command line or environment */
};
/* The string of CT_ORIGIN_DEFAULT, and what separates a value from its origin. Both are part of the format of
 * config.yaml and must not change. */
#define CT_CONFIG_DEFAULT "default"
#define CT_CONFIG_ORIGIN_MARK "  # "
/* Returns CT_ORIGIN_DEFAULT if the key is unknown. */
enum ct_origin_kind ct_config_origin_kind(const struct ct_config *c, const char *key);
/* Describes the origin of a key's value for messages and dumps: CT_CONFIG_DEFAULT, "environment CTRAIN_LOG",
 * "configs/a.yaml:3:7" or "--procs". If a value from a file is not used, the result is the reason, for example "not
 * set, because batch.global is". The result is borrowed. Returns NULL if the key is unknown. */
const char *ct_config_origin(const struct ct_config *c, const char *key);
/* Appends YAML that loads to the same config. with_origins adds the origin of each value as a comment. */
enum ct_status ct_config_dump(const struct ct_config *c, bool with_origins, struct ct_str *out) CT_MUST_CHECK;
/* The same with origins, but only of the keys that a file, the command line or the environment has set. */
enum ct_status ct_config_dump_set(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
/* Appends "key=value" lines, in schema order, for the keys that change the training result. Paths, logging, launch and
 * limits are not included. A resume compares the lines with those of the checkpoint. train.epochs and train.max_steps
 * are included only if the schedule depends on the length of the run, so a run with a constant learning rate can be
 * resumed with more epochs. */
enum ct_status ct_config_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
/* Appends the lines of ct_config_lines and, in addition, lines for the keys that determine which collectives are issued
 * and when. The ranks of a run compare these lines. */
enum ct_status ct_config_run_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_digest(const struct ct_config *c, char hex[65]) CT_MUST_CHECK;

/* Generate the reference page (docs/CONFIG.md) and the JSON Schema (docs/config.schema.json). */
enum ct_status ct_config_docs(struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_json_schema(struct ct_str *out) CT_MUST_CHECK;
/* A key of the schema, for help and completion. */
struct ct_config_key {
	const char *name, *doc;
	const char *const *choices; /* NULL-terminated array of the allowed strings; NULL: any */
	const char *other_names;    /* names in other tools, separated by spaces; NULL: none are known */
	bool boolean;
};
/* Stores key i of the schema. Returns false if i is past the end. */
bool ct_config_key_at(size_t i, struct ct_config_key *out);
/* Appends the documentation of a key or section, for `ctrain help`. Returns false if there is no such key or
 * section. */
bool ct_config_help(const char *name, struct ct_str *out);
/* What a name means that is not necessarily the name of a key. */
struct ct_key_hint {
	const char *key;   /* NULL: unknown, or ctrain has no such setting */
	const char *value; /* the given value, or one that fits the key better; can be NULL */
	const char *note;  /* more about it, or NULL */
};
/* Finds the key to which a name unambiguously refers: a key with this name, a key for which other programs use this
 * name, or the only key whose last part is this name (`lr` is optim.lr). `given` is the value that the user wrote, or
 * NULL. If key and note are NULL, the name is unknown. */
struct ct_key_hint ct_config_key_meant(const char *name, const char *given);
/* Like ct_config_key_meant, but if there is no such key, returns the key or section with the most similar name. Returns
 * NULL if no name is similar. */
const char *ct_config_key_suggest(const char *name);

#endif
