/* Creates configurations from strings and from files in the temporary directory. */
#ifndef CT_TESTS_TRAINER_CONFIG_FIXTURE_H
#define CT_TESTS_TRAINER_CONFIG_FIXTURE_H

#include "tests/trainer/tmpdir.h"
#include "trainer/config/config.h"

/* A minimal configuration. */
#define GOOD "model: {name: mlp}\ndata: {name: synthetic}\ntrain: {epochs: 1}\n"

/* Creates a file in the temporary directory and returns its path. */
static inline const char *put(const char *name, const char *text)
{
	const char *path = in_tmpdir(name);

	assert_ok(ct_file_replace(path, text, strlen(text)));
	return path;
}

/* Loads a configuration, which must be valid. The caller owns the result. */
static inline struct ct_config *load(const char *path, const struct ct_config_set *sets, size_t n)
{
	struct ct_config *c = NULL;

	assert_ok(ct_config_load(path, sets, n, &c));
	return c;
}

static inline struct ct_config *load_text(const char *text)
{
	return load(put("run one.yaml", text), NULL, 0);
}

#endif
