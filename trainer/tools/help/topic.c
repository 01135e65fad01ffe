/* `ctrain help [WORD [WORD]]`, `ctrain help --search WORD`, --help and --version. */
#include <string.h>

#include "trainer/job/version.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/cli/unknown.h"
#include "trainer/tools/help/help.h"

/* The error of `ctrain help WORD [WORD]` if there is no such command, key or section. */
static enum ct_status unknown_topic(const struct ct_cli_table *t, const char *first, const char *second)
{
	const char *command, *key = second ? NULL : ct_config_key_suggest(first);

	if (second && ct_command_has_subs(t, first))
		return ct_unknown_command(t, second, first);
	command = ct_command_near(t, first, NULL);
	CT_FAIL(CT_USAGE, "\"%.60s\" is not a command, a config key or a section of the config", first);
	/* A name with a dot can only be a key. */
	if (command && !(key && strchr(first, '.')))
		ct_error_hint("did you mean \"ctrain help %s\"?", command);
	else if (key)
		ct_error_hint("did you mean \"ctrain help %s\"?", key);
	else
		ct_error_hint("ctrain help --search %.40s searches commands, options and keys", first);
	return CT_USAGE;
}

/* The pages of all commands with this first word. */
static enum ct_status print_group(const struct ct_cli_table *t, const char *name)
{
	const struct ct_command *c;
	struct ct_str text = {0};

	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		if (strcmp(c->name, name) == 0)
			ct_help_page(t, c, &text);
	}
	return ct_print_text(&text);
}

/* A key or a section, or a name that can only mean one key: lr, wd. */
static enum ct_status print_key(const struct ct_cli_table *t, const char *name, const char *second)
{
	struct ct_key_hint hint = ct_config_key_meant(name, NULL);
	struct ct_str text = {0};

	if (!ct_config_help(name, &text) && (second || !hint.key || !ct_config_help(hint.key, &text))) {
		ct_str_release(&text);
		return unknown_topic(t, name, second);
	}
	return ct_print_text(&text);
}

/* Prints the help page that the words name. by_command: after `ctrain help`, where they can also be a key or section;
 * else they are those of a line with --help. */
static enum ct_status print(const struct ct_cli_table *t, const char *const *words, int n, bool by_command)
{
	const char *first = n > 0 ? words[0] : NULL, *second = n > 1 ? words[1] : NULL;
	const struct ct_command *c = first ? ct_command_find(t, first, second) : NULL;
	struct ct_str text = {0};

	if (first && !second && ct_command_has_subs(t, first))
		return print_group(t, first);
	if (first && !c && by_command)
		return print_key(t, first, second);
	if (first && !c && ct_is_config(first))
		c = ct_command_find(t, "train", NULL);
	ct_help_page(t, c, &text);
	return ct_print_text(&text);
}

static enum ct_status print_search(const struct ct_cli_table *t, const char *word)
{
	struct ct_str text = {0};

	if (ct_help_search(t, word, &text) > 0)
		return ct_print_text(&text);
	ct_str_release(&text);
	CT_FAIL(CT_USAGE, "no command, option or key contains \"%.60s\"", word);
	return ct_error_hint("try a part of the word");
}

enum ct_status ct_cmd_help(const struct ct_cli *cli)
{
	const bool by_command = cli->n_args > 0 && strcmp(cli->args[0], "help") == 0;
	const struct ct_help_options *o = cli->own;

	if (o->search)
		return print_search(cli->table, o->search);
	return print(cli->table, cli->args + by_command, cli->n_args - by_command, by_command);
}

enum ct_status ct_cmd_version(const struct ct_cli *cli)
{
	struct ct_str text = {0};

	(void)cli;
	ct_str_addf(&text, "ctrain %s\n", ct_version());
	return ct_print_text(&text);
}
