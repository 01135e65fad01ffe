/* Private to trainer/config: the schema table, values and origins. Other directories include trainer/config/config.h. */
#ifndef CT_TRAINER_CONFIG_CONFIG_IMPL_H
#define CT_TRAINER_CONFIG_CONFIG_IMPL_H

#include "trainer/config/config.h"
#include "trainer/config/problems_impl.h"
#include "trainer/config/yaml_events_impl.h"

enum ct_key_type {
	CT_KEY_INT,     /* int64_t */
	CT_KEY_FLOAT,   /* double */
	CT_KEY_MIB,     /* double, MiB: 4, 4MiB, 512KiB, 1GiB */
	CT_KEY_SECONDS, /* double: 30, 30s, 500ms, 10min, 1h */
	CT_KEY_BOOL,    /* bool: true, false */
	CT_KEY_STR,     /* char * */
	CT_KEY_ENUM,    /* an enumeration whose values are positions in choices; CT_CFG_UNSET without a default */
	CT_KEY_INTS,    /* struct ct_int_list */
	CT_KEY_FLOATS,  /* struct ct_float_list */
	CT_KEY_STRS,    /* struct ct_str_list */
	CT_KEY_SIZES    /* struct ct_size_list: a number, or [[epoch, number], ...]; lo, hi: of the numbers */
};

enum {
	CT_KEY_AUTO = 1,    /* integers: "auto" is allowed and stored as CT_CFG_AUTO */
	CT_KEY_OPEN_LO = 2, /* lo itself is outside the range */
	CT_KEY_OPEN_HI = 4,
	CT_KEY_OTHERS = 8,         /* strings other than the choices are allowed */
	CT_KEY_LEARNED = 16,       /* changes what is learned: part of ct_config_lines */
	CT_KEY_LEARNED_TOTAL = 32, /* the same, but only for schedules that depend on the length of the run */
	CT_KEY_REQUIRED = 64,
	CT_KEY_HIDE_UNSET = 128, /* 0, "" or auto mean "not set" and are omitted from a dump */
	CT_KEY_SHARED =
		256 /* ranks with different values would issue different collectives: part of ct_config_run_lines */
};

#define CT_CFG_UNSET (-1) /* an enumeration that has no default and was not given */
#define CT_MAX_TEXT 4096  /* bytes of a string value */

/* One row of the schema. */
struct ct_key {
	const char *name; /* "optim.lr" */
	enum ct_key_type type;
	size_t offset; /* in struct ct_config */
	unsigned flags;
	double lo, hi;              /* numbers and elements of lists; hi == 0: no upper bound */
	int min_n, max_n;           /* lists: lengths */
	const char *const *choices; /* strings and enumerations: the names, then NULL; NULL: any text */
	const char *def;            /* default as on the command line; NULL: none (strings and lists: empty) */
	const char *only;           /* "model.name=mlp|layers": the key applies only then; NULL: always */
	const char *env;            /* environment variable, NULL: none */
	const char *alias;          /* "true=global|false=none": other names of choices; NULL: none */
	const char *why;            /* why values other than the choices are refused; NULL: they are unknown */
	const char *doc;            /* one line */
	bool advanced;              /* documented in a separate section, after the other keys */
};

struct ct_section {
	const char *name, *doc; /* name without a dot, or "data.augment" */
};

size_t ct__key_count(void);
/* Name of a condition (ct_key.only) that many keys have in common; NULL past the end. */
const char *ct__only_group_at(size_t i, const char **only);
const struct ct_key *ct__key_at(size_t i);
/* SIZE_MAX if there is none. A key with parts (data.train, because of data.train.size) is also found as data.train.path. */
size_t ct__key_index(const char *name);
/* Are there keys below this one? Such a key is a string, and in a file also a group: `train: PATH`, or
 * `train: {path: PATH, size: 224}`. */
bool ct__key_has_parts(const struct ct_key *k);
#define CT_KEY_OWN_PART "path"
const struct ct_key *ct__key_find(const char *name);
/* NULL past the end. */
const struct ct_section *ct__section_at(size_t i);
bool ct__section_exists(const char *name);
/* Appends `; did you mean "optim.lr"?` for an unknown full name, or nothing if no name is near. */
void ct__key_suggest(const char *name, struct ct_str *out);
/* The key, or the choice of a key, that other programs call by this name; NULL: none. */
const char *ct__key_synonym(const char *name);
const char *ct__choice_synonym(const char *key, const char *text);
/* i-th of "a|b|c" into buf; false past the end. */
bool ct__word_at(const char *words, size_t i, char *buf, size_t size);
bool ct__word_in(const char *words, const char *text);
/* The part of key->only after "model.name=", and the index of model.name. */
const char *ct__key_only(const struct ct_key *k, size_t *controller);

/* Precedence: higher layers win. Files are numbered from 1, beginning with the innermost `base:`. */
enum { CT_LAYER_DEFAULT = 0, CT_LAYER_ENV = 1000, CT_LAYER_ARGS = 1001 };

struct ct_origin {
	char *where; /* owned, NULL: "default" */
	int layer;
	bool bad; /* a value was given and refused: checks over several keys ignore it */
};

/* Where values come from. */
struct ct_source {
	const char *name; /* file, "argument 3", "environment CTRAIN_LOG" */
	int layer;
	bool is_file; /* line and column follow the name */
};
/* "file:3:7" or the name; returns owned. */
char *ct__source_where(const struct ct_source *s, const struct ct_yaml_node *v);

static inline void *ct__key_slot(const struct ct_key *k, const struct ct_config *c)
{
	return (char *)(uintptr_t)c + k->offset;
}
struct ct_origin *ct__config_origins(const struct ct_config *c); /* [ct__key_count()] */
/* The name of the chosen value of a CT_KEY_ENUM key, "" when it is not set. */
const char *ct__config_choice(const struct ct_config *c, size_t key);

/* Converts v according to the key's type and stores it with its origin. Problems are added to p and leave the value unchanged.
 * Fails with CT_NOMEM only. */
enum ct_status ct__key_store(size_t key, struct ct_config *c, const struct ct_yaml_node *v, const struct ct_source *s,
			     struct ct_problems *p) CT_MUST_CHECK;
/* The same for a string of the command line or the environment. */
enum ct_status ct__key_store_text(size_t key, struct ct_config *c, const char *text, const struct ct_source *s,
				  struct ct_problems *p) CT_MUST_CHECK;
/* Back to the schema's default, or to "not set" (0, empty, auto). */
enum ct_status ct__key_reset(size_t key, struct ct_config *c, bool unset) CT_MUST_CHECK;
/* Takes where (owned). */
void ct__config_note(struct ct_config *c, size_t key, int layer, char *where);
bool ct__key_is_unset(const struct ct_key *k, const struct ct_config *c);
/* Whether key->only holds. */
bool ct__key_applies(const struct ct_key *k, const struct ct_config *c);
/* As YAML (quoted where needed) or, raw, for ct_config_lines. */
void ct__key_format(const struct ct_key *k, const struct ct_config *c, bool yaml, struct ct_str *out);
void ct__key_release(const struct ct_key *k, struct ct_config *c);
/* "integer from 1 to 64", "one of sgd, adamw" ... */
void ct__key_describe(const struct ct_key *k, struct ct_str *out);
void ct__key_add_range(const struct ct_key *k, struct ct_str *out); /* "above 0 to 1" */
void ct__str_list_release(struct ct_str_list *l);
void ct__add_number(struct ct_str *out, double v); /* the fewest digits that give the same number */

/* Rules over several keys, after all sources have been read. Also resolves names and directories that depend on other keys. */
enum ct_status ct__config_check(struct ct_config *c, const char *path, struct ct_problems *p) CT_MUST_CHECK;

/* For the fuzzer: one YAML file without `base:` and environment through schema, checks and dump. */
enum ct_status ct__config_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
