#include "trainer/tools/cli/unknown.h"

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
