/* Private to trainer/config: the schema table, values and origins. Other directories include
 * trainer/config/config.h. */
#ifndef CT_TRAINER_CONFIG_CONFIG_IMPL_H
#define CT_TRAINER_CONFIG_CONFIG_IMPL_H

#include "trainer/config/config.h"
#include "trainer/config/problems_impl.h"
#include "trainer/config/yaml_events_impl.h"

/* CT_FIELD_... in trainer/config/config.h are the C types of the fields. */
enum ct_key_type {
	CT_KEY_INT,
	CT_KEY_FLOAT,
	CT_KEY_MIB,     /* in MiB: 4, 4MiB, 512KiB, 1GiB */
	CT_KEY_SECONDS, /* 30, 30s, 500ms, 10min, 1h */
	CT_KEY_BOOL,    /* true, false */
	CT_KEY_STR,
	CT_KEY_ENUM, /* an enumeration whose values are indexes into choices, or CT_CFG_UNSET */
	CT_KEY_INTS,
	CT_KEY_FLOATS,
	CT_KEY_STRS,
	CT_KEY_SIZES /* a number, or [[epoch, number], ...]; lo and hi apply to the numbers */
};

enum {
	CT_KEY_AUTO = 1,     /* for integers and sizes in MiB: "auto" is allowed, and is stored as CT_CFG_AUTO; for
			      * lists of strings, it is stored as a list with this string */
	CT_KEY_OPEN_LO = 2,  /* the range does not include lo */
	CT_KEY_OPEN_HI = 4,  /* the range does not include hi */
	CT_KEY_OTHERS = 8,   /* strings other than the choices are allowed */
	CT_KEY_LEARNED = 16, /* changes the training result; included in ct_config_lines */
	CT_KEY_LEARNED_TOTAL = 32, /* like LEARNED, but only for schedules that depend on the length of the run */
	CT_KEY_REQUIRED = 64,
	CT_KEY_HIDE_UNSET = 128, /* 0, "" and auto mean "not set", and are omitted from a dump */
	CT_KEY_SHARED = 256,     /* changes which collectives are issued; included in ct_config_run_lines */
	/* For integers: "MIN..MAX" is allowed. MAX is stored in the field, and MIN in the next field of struct
	 * ct_config, which is 0 if there is only one number. */
	CT_KEY_RANGE = 512,
	/* For keys that were added to a released version: ct_config_lines omits the key while it has its default value,
	 * so the digests of older configs, and with them their checkpoints, remain valid. */
	CT_KEY_ADDED = 1024
};

#define CT_CFG_UNSET (-1) /* value of an enumeration key that has no default and was not set */
#define CT_MAX_TEXT 4096  /* maximum size of a string value in bytes */

/* One row of the schema. trainer/config/keys.def sets the name, type and offset from the name and type of an entry, and
 * the other members are its columns. */
struct ct_key {
	const char *name; /* "optim.lr" */
	enum ct_key_type type;
	size_t offset; /* of the field in struct ct_config */
	unsigned flags;
	double lo, hi;              /* range of numbers and list elements; if hi is 0, there is no upper bound */
	int min_n, max_n;           /* range of the length of a list */
	const char *const *choices; /* NULL-terminated array of the allowed strings, or NULL if any is allowed */
	const char *def;            /* default, in command-line syntax; NULL: none (strings and lists are empty) */
	const char *example;        /* a typical value, in command-line syntax, or NULL */
	const char *only;           /* condition for the key to apply, such as "model.name=mlp|layers"; NULL: always */
	const char *env;            /* environment variable, or NULL */
	const char *alias;          /* other names of choices, such as "true=global|false=none", or NULL */
	const char *why;            /* the reason why other values are not available; NULL: other values are unknown */
	const char *doc;            /* one line */
	bool advanced;              /* documented in a separate section, after the other keys */
};

struct ct_section {
	const char *name, *doc; /* name is, for example, "optim" or "data.augment" */
};

size_t ct__key_count(void);
enum { CT__KEYS_MAX = 512 }; /* at least the number of keys and sections */
/* Returns the name of the i-th condition (ct_key.only) that is shared by many keys, and stores the condition in *only.
 * Returns NULL if i is past the end. */
const char *ct__only_group_at(size_t i, const char **only);
const struct ct_key *ct__key_at(size_t i);
/* Returns the index of a key, or SIZE_MAX if there is no such key. A key with parts, such as data.train, is also found
 * under the name data.train.path. */
size_t ct__key_index(const char *name);
/* Returns true if the names of other keys begin with the name of this key and a dot. The value of such a key is a
 * string. In a file, it can be written as a string or as part of a mapping: `train: PATH`, or `train: {path: PATH,
 * size: 224}`. */
bool ct__key_has_parts(const struct ct_key *k);
#define CT_KEY_OWN_PART "path"
const struct ct_key *ct__key_find(const char *name);
/* Adds the default of a key between quotes, or "required" or "empty". */
void ct__key_add_default(const struct ct_key *k, struct ct_str *out, const char *quote);
/* Returns section i, or NULL if i is past the end. */
const struct ct_section *ct__section_at(size_t i);
bool ct__section_exists(const char *name);
/* A setting for which other programs use other names than ctrain. */
struct ct_synonym {
	const char *words;   /* the other names, separated by spaces; case is ignored */
	const char *key;     /* NULL: ctrain has no such setting, and `note` says why */
	const char *example; /* value to suggest instead of one that does not fit, or NULL */
	const char *note;    /* or NULL */
};
/* The same for a value of a key with fixed choices. */
struct ct_value_synonym {
	const char *key, *words, *choice;
};
/* Return entry i of the tables, or NULL past their end. */
const struct ct_synonym *ct__synonym_at(size_t i);
const struct ct_value_synonym *ct__value_synonym_at(size_t i);
/* Return the entry with this name, or NULL; and the choice that is meant by a value of a key, or NULL. */
const struct ct_synonym *ct__key_synonym(const char *name);
const char *ct__choice_synonym(const char *key, const char *text);
/* Appends a suggestion for an unknown key, such as `; did you mean "optim.lr"?`, or nothing if no name is similar. name
 * is the full name of the key, and value is its value, or NULL if it is not a single word. If the setting has another
 * name in other programs, the suggestion contains the line to write, for a file or for the command line. */
void ct__key_suggest(const char *name, const char *value, bool is_file, struct ct_str *out);
/* Copies the i-th word of "a|b|c" to buf. Returns false past the end. */
bool ct__word_at(const char *words, size_t i, char *buf, size_t size);
bool ct__word_in(const char *words, const char *text);
/* Returns the part of key->only after "=", and stores the index of the key before "=" in *controller. */
const char *ct__key_only(const struct ct_key *k, size_t *controller);

/* Precedence of sources: higher layers win. Files are numbered from 1, starting with the innermost `base:`. */
enum { CT_LAYER_DEFAULT = 0, CT_LAYER_ENV = 1000, CT_LAYER_ARGS = 1001 };

struct ct_origin {
	enum ct_origin_kind kind;
	char *where;      /* owned; for messages and dumps; NULL means CT_CONFIG_DEFAULT */
	char *name;       /* owned; the name of the source; NULL if where is the reason for a default */
	int line, column; /* of the value; 0: the source has no positions */
	int layer;
	bool bad; /* the value was invalid, so checks that involve several keys ignore this key */
};

/* A source of values. */
struct ct_source {
	const char *name; /* a file name, "argument 3" or "environment CTRAIN_LOG", for example */
	int layer;
	bool is_file; /* messages show line and column after the name */
};
/* Returns the place of v if the source is a file, otherwise the name of the source, which is borrowed from s. */
struct ct_place ct__source_place(const struct ct_source *s, const struct ct_yaml_node *v);

static inline void *ct__key_slot(const struct ct_key *k, const struct ct_config *c)
{
	return (char *)(uintptr_t)c + k->offset;
}
struct ct_origin *ct__config_origins(const struct ct_config *c); /* [ct__key_count()] */
/* Returns the name of the chosen value of a CT_KEY_ENUM key, or "" if it is not set. */
const char *ct__config_choice(const struct ct_config *c, size_t key);

/* Converts v according to the key's type, and stores the result with its origin. If v is invalid, adds a problem to p
 * and leaves the value unchanged. The only error that this function returns is CT_NOMEM. */
enum ct_status ct__key_store(size_t key, struct ct_config *c, const struct ct_yaml_node *v, const struct ct_source *s,
			     struct ct_problems *p) CT_MUST_CHECK;
/* Does the same for a string from the command line or the environment. */
enum ct_status ct__key_store_text(size_t key, struct ct_config *c, const char *text, const struct ct_source *s,
				  struct ct_problems *p) CT_MUST_CHECK;
/* Resets the key to the default of the schema or, if unset is true, to "not set" (0, empty or auto). */
enum ct_status ct__key_reset(size_t key, struct ct_config *c, bool unset) CT_MUST_CHECK;
/* Records that the value of a key comes from this place. Copies at.name. */
enum ct_status ct__config_note_place(struct ct_config *c, size_t key, int layer, struct ct_place at) CT_MUST_CHECK;
/* Records that a key has a default, or is not set. Takes ownership of where. */
void ct__config_note_default(struct ct_config *c, size_t key, enum ct_origin_kind kind, char *where);
bool ct__key_is_unset(const struct ct_key *k, const struct ct_config *c);
/* Returns true if the condition k->only is satisfied. */
bool ct__key_applies(const struct ct_key *k, const struct ct_config *c);
/* Appends the value. If `yaml` is true, it is quoted where YAML requires this; otherwise it is never quoted, as in
 * ct_config_lines. */
void ct__key_format(const struct ct_key *k, const struct ct_config *c, bool yaml, struct ct_str *out);
void ct__key_release(const struct ct_key *k, struct ct_config *c);
/* Appends a description of the allowed values, such as "integer from 1 to 64" or "sgd, adamw". */
void ct__key_describe(const struct ct_key *k, struct ct_str *out);
void ct__key_add_range(const struct ct_key *k, struct ct_str *out); /* appends "above 0 and at most 1", for example */
void ct__str_list_release(struct ct_str_list *l);

/* Applies environment variables to the keys that the command line has not set. */
enum ct_status ct__config_apply_environment(struct ct_config *c, struct ct_problems *p) CT_MUST_CHECK;

/* Checks rules that involve several keys, after all sources have been read. Also sets names and directories whose
 * defaults depend on other keys. */
enum ct_status ct__config_check(struct ct_config *c, const char *path, struct ct_problems *p) CT_MUST_CHECK;
/* Sets only these names and directories. */
enum ct_status ct__config_resolve(struct ct_config *c, const char *path) CT_MUST_CHECK;

/* For the fuzzer: runs one YAML file, without `base:` and environment, through the schema, the checks and the dump. */
enum ct_status ct__config_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
