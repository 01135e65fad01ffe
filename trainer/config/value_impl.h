/* Conversion of one value of a config to its type: what the files value*.c share. The functions expect a scalar. If it
 * is not valid, they add a problem and set t->failed; the result is then undefined. */
#ifndef CT_TRAINER_CONFIG_VALUE_IMPL_H
#define CT_TRAINER_CONFIG_VALUE_IMPL_H

#include "trainer/config/config_impl.h"

/* The state of one conversion. */
struct ct_setter {
	const struct ct_key *k;
	const struct ct_source *s;
	struct ct_problems *p;
	bool failed;
};

/* Adds the problem `optim.lr: "abc" <text>`. The value is shown only if it is a scalar. */
void ct__value_complain(struct ct_setter *t, const struct ct_yaml_node *v, const char *fmt, ...) CT_PRINTF(3, 4);

int64_t ct__value_int(struct ct_setter *t, const struct ct_yaml_node *v);
/* "N", "MIN..MAX" or torchrun's "MIN:MAX"; for CT_KEY_RANGE. Sets slot to {MAX, MIN}, or {N, 0}. */
void ct__value_range(struct ct_setter *t, const struct ct_yaml_node *v, int64_t slot[2]);
/* A number, which may be followed by a unit if the key is a size or a time. */
double ct__value_float(struct ct_setter *t, const struct ct_yaml_node *v);
/* Returns true if text [n] is valid UTF-8 without control characters and line breaks. */
bool ct__text_is_plain(const char *text, size_t n);
bool ct__value_bool(struct ct_setter *t, const struct ct_yaml_node *v);
/* Returns the index of the choice. */
int ct__value_choice(struct ct_setter *t, const struct ct_yaml_node *v);
/* Fails only with CT_NOMEM. *out is owned by the caller; NULL if the value is not valid. */
enum ct_status ct__value_text(struct ct_setter *t, const struct ct_yaml_node *v, char **out) CT_MUST_CHECK;

#endif
