/* The table of settings, and the checks of values. */
#ifndef CT_DIST_SETTINGS_SETTINGS_IMPL_H
#define CT_DIST_SETTINGS_SETTINGS_IMPL_H

#include "dist/settings/settings.h"

enum setting_kind {
	SETTING_TEXT,
	SETTING_NUMBER,
	SETTING_CHOICE,
	SETTING_LIST,       /* "a,b", "^a,b", and "name:a,b;name:^c" */
	SETTING_LEVEL,      /* one of choices, or a number */
	SETTING_INTERFACES, /* prefixes of network interfaces */
	SETTING_INTERFACE,  /* names of network interfaces */
	SETTING_ADAPTERS,   /* prefixes of InfiniBand devices */
	SETTING_FILE,       /* an existing file */
	SETTING_LOG,        /* a file that NCCL writes */
	SETTING_PYTORCH     /* PyTorch reads it */
};

struct setting_rule {
	const char *name;
	enum setting_kind kind;
	const char *const *choices; /* ends with NULL */
	bool exact;                 /* upper and lower case matter in choices */
	bool local;                 /* may be different on each host or rank */
};

/* Returns the rule of a variable, or NULL. */
const struct setting_rule *ct__setting_rule(const char *name);
/* Returns the name that was probably meant, or NULL. */
const char *ct__setting_near(const char *name);

/* Sets state, why and hint. */
void ct__setting_check(const struct setting_rule *rule, struct ct_setting *s);
void ct__setting_check_interfaces(struct ct_setting *s);
void ct__setting_check_adapters(struct ct_setting *s);
void ct__setting_judge(struct ct_setting *s, enum ct_setting_state state, const char *why, ...) CT_PRINTF(3, 4);

/* Returns true if `name` begins with a word of the list "a,b:1" of len bytes, or with exact: if it is equal to one. The
 * port after a colon is ignored. */
bool ct__setting_matches(const char *name, const char *list, size_t len, bool exact);

#endif
