/* A word that means nothing usually has a meaning in another program, so the hints are looked for in this order:
 * commands of other programs, scripts and launchers (ctrain import), example configs, and then the edit distance. An
 * option may be a config key that was written as in a training script (--lr 0.1). Then all unknown options of the line
 * are translated, so that the user can correct them at once. ct_is_set decides what KEY=VALUE is: a path may contain
 * '=' as well. */
#include "trainer/tools/cli/unknown.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "trainer/config/config.h"

bool ct_ends_in_yaml(const char *word)
{
	size_t n = strlen(word);

	return (n > 5 && strcmp(word + n - 5, ".yaml") == 0) || (n > 4 && strcmp(word + n - 4, ".yml") == 0);
}

static bool is_script(const char *word)
{
	const size_t len = strlen(word);

	return len > 3 && (strcmp(word + len - 3, ".py") == 0 || strcmp(word + len - 3, ".sh") == 0);
}

bool ct_is_set(const char *word)
{
	size_t len = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

	return len > 0 && word[len] == '=' && word[0] != '.';
}

bool ct_is_config(const char *word)
{
	char *example = ct_config_example(word);
	bool is = example || ct_ends_in_yaml(word) || (ct_file_exists(word) && !is_script(word));

	ct_free(example);
	return is;
}

const char *ct_command_near(const struct ct_cli_table *t, const char *word, const char *parent)
{
	const char *words[64];
	size_t n = 0;
	const struct ct_command *c;

	for (size_t i = 0; (c = ct_command_at(t, i)) && n < CT_ARRAY_LEN(words); i++) {
		if (!parent)
			words[n++] = c->name;
		else if (c->sub && strcmp(c->name, parent) == 0)
			words[n++] = c->sub;
	}
	return ct_suggest(word, words, n);
}

/* Returns the command that has this name in other programs, or NULL. */
static const char *other_name(const char *word)
{
	static const char *const names[][2] = {{"fit", "train"},     {"run", "train"},     {"test", "eval"},
					       {"validate", "eval"}, {"val", "eval"},      {"new", "init"},
					       {"create", "init"},   {"infer", "predict"}, {"list", "runs"},
					       {"ls", "runs"},       {"diff", "compare"},  {"summary", "plan"}};

	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++) {
		if (strcmp(word, names[i][0]) == 0)
			return names[i][1];
	}
	return NULL;
}

/* Adds the hint for a word that has a meaning in other programs: a script, a launcher, or a model. Returns false if
 * there is none. */
static bool hint_at_other(const char *word)
{
	static const char *const launchers[] = {"python", "python3", "torchrun", "accelerate",
						"srun",   "mpirun",  "mpiexec"};
	struct ct_str examples = {0};
	bool found;

	if (is_script(word)) {
		ct_error_hint("ctrain runs no scripts: a YAML file describes model, data and training. "
			      "ctrain import \"python %.60s ...\" translates the options of a script",
			      word);
		return true;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(launchers); i++) {
		if (strcmp(word, launchers[i]) == 0) {
			ct_error_hint("ctrain import \"%s ...\" translates a launch line; write it between quotes",
				      word);
			return true;
		}
	}
	const char *name = strrchr(word, '/') ? strrchr(word, '/') + 1 : word; /* configs/mnist */
	if (strlen(name) >= 3)
		ct_config_examples_like(name, &examples);
	found = examples.len > 0;
	if (found)
		ct_error_hint("example configs with this name: %s (ctrain NAME trains with one of them)",
			      ct_str_text(&examples));
	ct_str_release(&examples);
	return found;
}

enum ct_status ct_unknown_command(const struct ct_cli_table *t, const char *word, const char *parent)
{
	const char *other = parent ? NULL : other_name(word), *near = other ? other : ct_command_near(t, word, parent);

	CT_FAIL(CT_USAGE,
		parent ? "unknown command \"%s %.60s\""
		       : "\"%s%.60s\" is neither a command nor a configuration file (.yaml)",
		parent ? parent : "", word);
	if (!parent && !other && hint_at_other(word))
		return CT_USAGE;
	if (near)
		ct_error_hint("did you mean \"%s%s%s\"?", parent ? parent : "", parent ? " " : "", near);
	else
		ct_error_hint("ctrain --help lists the commands");
	return CT_USAGE;
}

bool ct_hint_at_key(const char *option, const char *value)
{
	char name[64];
	struct ct_key_hint hint;

	snprintf(name, sizeof(name), "%s", option);
	for (char *s = name; *s; s++)
		*s = *s == '-' ? '_' : *s;
	hint = ct_config_key_meant(name, value && *value ? value : NULL);
	if (hint.key)
		ct_error_hint("config keys are written as KEY=VALUE, without dashes: %s=%.40s%s%s%s", hint.key,
			      hint.value ? hint.value : "VALUE", hint.note ? " (" : "", hint.note ? hint.note : "",
			      hint.note ? ")" : "");
	else if (hint.note)
		ct_error_hint("%s", hint.note);
	return hint.key || hint.note;
}

/* Returns the word after an unknown option if it can be the value of the option, else NULL. */
static const char *value_after(int argc, char **argv, int i)
{
	const char *next = i + 1 < argc ? argv[i + 1] : NULL;

	return next && next[0] != '-' && !ct_is_set(next) && !ct_ends_in_yaml(next) ? next : NULL;
}

/* Adds further unknown options that mean config keys to the hint, so that the user can correct all of them at once. */
static void hint_at_more_keys(const struct ct_cli_table *t, int argc, char **argv, int i)
{
	for (int k = i; k < argc; k++) {
		const char *name = argv[k] + strspn(argv[k], "-"), *value = strchr(name, '=');
		char plain[64];
		struct ct_key_hint hint;

		if (name == argv[k] || ct_option_find(t, name, strcspn(name, "=")))
			continue;
		snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "="), name);
		for (char *s = plain; *s; s++)
			*s = *s == '-' ? '_' : *s;
		value = value ? value + 1 : value_after(argc, argv, k);
		hint = ct_config_key_meant(plain, value && *value ? value : NULL);
		if (hint.key)
			ct_error_hint("instead of %.40s: %s=%.40s", argv[k], hint.key,
				      hint.value ? hint.value : "VALUE");
	}
}

enum ct_status ct_unknown_option(const struct ct_cli_table *t, int argc, char **argv, int at)
{
	const char *arg = argv[at], *value = value_after(argc, argv, at);
	const char *name = arg + strspn(arg, "-");
	size_t len = strcspn(name, "=");
	const char *words[96], *near;
	char plain[64], all[96][24];
	size_t n = 0;

	snprintf(plain, sizeof(plain), "%.*s", (int)(len < sizeof(plain) ? len : sizeof(plain) - 1), name);
	for (char *s = plain; *s; s++)
		*s = *s == '_' ? '-' : *s;
	for (size_t i = 0; ct_option_at(t, i); i++) {
		for (const char *s = ct_option_at(t, i)->names; *s && n < CT_ARRAY_LEN(all); s += strspn(s, " ")) {
			size_t word = strcspn(s, " ");

			snprintf(all[n], sizeof(all[n]), "%.*s", (int)word, s);
			if (word > 1) {
				words[n] = all[n];
				n++;
			}
			s += word;
		}
	}
	near = ct_suggest(plain, words, n);
	CT_FAIL(CT_USAGE, "unknown option \"%.*s\"", (int)(name - arg + (ptrdiff_t)(len < 60 ? len : 60)), arg);
	if (len > 1 && ct_option_find(t, name, len)) /* -procs, ---procs */
		near = plain;
	else if (ct_hint_at_key(plain, name[len] == '=' ? name + len + 1 : value)) {
		hint_at_more_keys(t, argc, argv, at + 1);
		return CT_USAGE;
	}
	if (at + 1 < argc && ct_ends_in_yaml(argv[at + 1]) && (strcmp(plain, "c") == 0 || strcmp(plain, "cfg") == 0)) {
		ct_error_hint("write the configuration file without an option: ctrain %s", argv[at + 1]);
		return CT_USAGE;
	}
	if (near)
		ct_error_hint("did you mean --%s?", near);
	else
		ct_error_hint("config keys are written as KEY=VALUE, without dashes; ctrain --help lists the options");
	return CT_USAGE;
}
