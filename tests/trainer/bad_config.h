/* Loads malformed configurations and checks the place and the words of the error. */
#ifndef CT_TESTS_TRAINER_BAD_CONFIG_H
#define CT_TESTS_TRAINER_BAD_CONFIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/config/config.h"

#define GOOD "model: {name: mlp}\ndata: {name: synthetic}\ntrain: {epochs: 1}\n"

/* What the last call of load has loaded. */
static struct ct_config *loaded;

static inline enum ct_status load(const char *path)
{
	enum ct_status st;

	ct_config_destroy(loaded);
	loaded = NULL;
	st = ct_config_load(path, NULL, 0, &loaded);
	return st;
}

static inline const char *put(const char *name, const char *text, size_t len)
{
	const char *path = in_tmpdir(name);

	assert_ok(ct_file_replace(path, text, len));
	return path;
}

static inline bool matches(const char *what, const char *path, const char *place, const char *words)
{
	enum ct_status st = load(path);
	const char *message = ct_error_message(), *at = strstr(message, place);

	if (st != CT_CONFIG) {
		print_error("%s: status %s, message \"%s\"\n", what, ct_status_name(st), message);
		return false;
	}
	assert_int_equal(ct_status_exit_code(st), 2);
	assert_null(loaded);
	while (at && strncmp(message, tmpdir, strlen(tmpdir)) == 0) {
		/* The words stand in the line of that place. */
		const char *end = strchr(at, '\n'), *found = strstr(at, words);

		if (found && (!end || found < end))
			return true;
		at = strstr(at + 1, place);
	}
	print_error("%s: no \"%s\" with \"%s\" in:\n%s\n", what, place, words, message);
	return false;
}

static inline void expect(const char *what, const char *path, const char *place, const char *words)
{
	assert_true(matches(what, path, place, words));
}

#endif
