/* Settings of NCCL and gloo: the environment variables whose names begin with NCCL_ or GLOO_. NCCL ignores names that
 * it does not know, and many values that it does not understand, without a message. ctrain checks them before training.
 *
 * The names and values are those that NCCL 2.30 reads; its syntax is described in NVIDIA's "NCCL Environment
 * Variables". Files of settings (/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE) are left to NCCL. */
#ifndef CT_DIST_SETTINGS_SETTINGS_H
#define CT_DIST_SETTINGS_SETTINGS_H

#include "base/mem.h"
#include "base/status.h"

enum ct_setting_state {
	CT_SETTING_FINE,
	CT_SETTING_DOUBTFUL, /* training goes on, with a warning */
	CT_SETTING_WRONG
};

struct ct_setting {
	const char *name; /* owned by the list */
	const char *value;
	enum ct_setting_state state;
	char why[384], hint[192]; /* if it is not fine; hint may be "" */
};

/* The variables that are set, in alphabetical order. */
struct ct_settings {
	struct ct_setting *all; /* [n] */
	size_t n;
};

/* Reads those whose names begin with prefix ("NCCL_", "GLOO_"), and checks them on this host. */
enum ct_status ct_settings_read(const char *prefix, struct ct_settings *out) CT_MUST_CHECK;
void ct_settings_release(struct ct_settings *s);
/* Fails with CT_CONFIG if any of them is wrong. The message has all of them. */
enum ct_status ct_settings_check(const struct ct_settings *s) CT_MUST_CHECK;
/* Logs each of them as information, and a warning for each that is doubtful. */
void ct_settings_log(const struct ct_settings *s);

/* Adds a line NAME=VALUE for each of NCCL's settings that should be the same for all ranks. Others, such as
 * NCCL_SOCKET_IFNAME, depend on the host or on the rank. */
enum ct_status ct_settings_common(struct ct_str *lines) CT_MUST_CHECK;
/* Compares such lines of n ranks. For each setting that differs, adds a line such as
 * `NCCL_ALGO is "Ring" on rank 0, but "Tree" on rank 1; 2 other ranks also differ from rank 0`. */
void ct_settings_compare(const char *const *lines, int n, struct ct_str *out);

#endif
