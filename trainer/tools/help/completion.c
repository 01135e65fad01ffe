/* Completion scripts. They contain all names, so that completion does not start ctrain. */
#include <stdio.h>
#include <string.h>

#include "trainer/tools/cli/print.h"
#include "trainer/tools/help/help.h"

static const char *const shells[] = {"bash", "zsh", "fish"};

/* The first words of commands that need a second one, once each, and other first words. Calls with every command. */
static bool first_of_name(const struct ct_cli_table *t, size_t i)
{
	for (size_t k = 0; k < i; k++) {
		if (strcmp(ct_command_at(t, k)->name, ct_command_at(t, i)->name) == 0)
			return false;
	}
	return true;
}

/* Adds the first clause of a description, without characters that the shells treat specially. */
static void add_short(struct ct_str *out, const char *text)
{
	for (size_t i = 0; text[i] && strcspn(text, ";.(") > i && i < 70; i++) {
		const char c = text[i];

		ct_str_add_bytes(out, strchr("'\"`\\$[]:", c) ? " " : &c, 1);
	}
}

static void add_option_names(const struct ct_cli_table *t, struct ct_str *out, const struct ct_command *c)
{
	const struct ct_option *o;

	for (size_t i = 0; (o = ct_option_at(t, i)); i++) {
		if (ct_option_is_in(o, c->options | CT_OPT_ALL, c->own) && o->doc)
			ct_str_addf(out, "--%.*s ", (int)strcspn(o->names, " "), o->names);
	}
}

/* "plan) echo '--procs --nodes ...' ;;" for each command */
static void add_option_cases(const struct ct_cli_table *t, struct ct_str *out)
{
	const struct ct_command *c;
	char name[40];

	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		ct_str_addf(out, "\t\"%s\") echo '", ct_command_name(c, name));
		add_option_names(t, out, c);
		ct_str_add(out, "' ;;\n");
	}
}

static void add_values(struct ct_str *out, const struct ct_config_key *k)
{
	for (size_t i = 0; k->choices && k->choices[i]; i++)
		ct_str_addf(out, "%s ", k->choices[i]);
	if (k->boolean)
		ct_str_add(out, "true false ");
}

static void add_value_cases(struct ct_str *out)
{
	struct ct_config_key k;

	for (size_t i = 0; ct_config_key_at(i, &k); i++) {
		if (!k.choices && !k.boolean)
			continue;
		ct_str_addf(out, "\t%s) echo '", k.name);
		add_values(out, &k);
		ct_str_add(out, "' ;;\n");
	}
}

/* Shell functions for bash and zsh that print names. */
static void add_functions(const struct ct_cli_table *t, struct ct_str *out)
{
	const struct ct_command *c;
	struct ct_config_key k;

	ct_str_add(out, "_ctrain_commands() {\n\techo '");
	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		if (first_of_name(t, i))
			ct_str_addf(out, "%s ", c->name);
	}
	ct_str_add(out, "'\n}\n_ctrain_subcommands() {\n\tcase $1 in\n");
	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		if (!c->sub || !first_of_name(t, i))
			continue;
		ct_str_addf(out, "\t%s) echo '", c->name);
		for (size_t j = i; ct_command_at(t, j); j++) {
			if (ct_command_at(t, j)->sub && strcmp(ct_command_at(t, j)->name, c->name) == 0)
				ct_str_addf(out, "%s ", ct_command_at(t, j)->sub);
		}
		ct_str_add(out, "' ;;\n");
	}
	ct_str_add(out, "\tesac\n}\n_ctrain_options() {\n\tcase $1 in\n");
	add_option_cases(t, out);
	ct_str_add(out, "\tesac\n}\n_ctrain_keys() {\n\techo '");
	for (size_t i = 0; ct_config_key_at(i, &k); i++)
		ct_str_addf(out, "%s ", k.name);
	ct_str_add(out, "'\n}\n_ctrain_values() {\n\tcase $1 in\n");
	add_value_cases(out);
	ct_str_add(out,
		   "\tesac\n}\n"
		   "# Prints the command that the words after the program name start: one or two words, or train.\n"
		   "_ctrain_command() {\n"
		   "\tcase \" $(_ctrain_commands)\" in\n"
		   "\t*\" $1 \"*) ;;\n"
		   "\t*) echo train; return ;;\n"
		   "\tesac\n"
		   "\tcase \" $(_ctrain_subcommands \"$1\")\" in\n"
		   "\t*\" $2 \"*) [ -z \"$2\" ] && echo \"$1\" || echo \"$1 $2\" ;;\n"
		   "\t*) echo \"$1\" ;;\n"
		   "\tesac\n}\n");
}

static void add_bash(const struct ct_cli_table *t, struct ct_str *out)
{
	add_functions(t, out);
	ct_str_add(
		out,
		"_ctrain() {\n"
		"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} key=\n"
		"\tCOMPREPLY=()\n"
		"\t# bash splits KEY=VALUE at the equals sign.\n"
		"\tif [ \"$prev\" = = ]; then\n"
		"\t\tkey=${COMP_WORDS[COMP_CWORD - 2]}\n"
		"\telif [ \"$cur\" = = ]; then\n"
		"\t\tkey=$prev cur=\n"
		"\tfi\n"
		"\tif [ -n \"$key\" ]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_ctrain_values \"$key\")\" -- \"$cur\")\n"
		"\telif [[ $cur == -* ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_ctrain_options \"$(_ctrain_command \"${COMP_WORDS[@]:1:2}\")\")\" -- \"$cur\")\n"
		"\telif [ \"$COMP_CWORD\" = 1 ]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_ctrain_commands)\" -- \"$cur\"; compgen -f -X '!*.yaml' -- \"$cur\"; compgen -d -S / -- \"$cur\")\n"
		"\telif [ \"$COMP_CWORD\" = 2 ] && [ -n \"$(_ctrain_subcommands \"$prev\")\" ]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_ctrain_subcommands \"$prev\")\" -- \"$cur\")\n"
		"\telif [[ ${COMP_WORDS[1]} == help ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_ctrain_commands) $(_ctrain_keys)\" -- \"$cur\")\n"
		"\t\treturn\n"
		"\telse\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -S = -W \"$(_ctrain_keys)\" -- \"$cur\"; compgen -f -- \"$cur\")\n"
		"\tfi\n"
		"\tif [ \"${#COMPREPLY[@]}\" = 1 ] && [[ ${COMPREPLY[0]} == *[=/] ]]; then\n"
		"\t\tcompopt -o nospace 2>/dev/null\n"
		"\tfi\n"
		"\treturn 0\n"
		"}\n"
		"complete -o filenames -F _ctrain ctrain\n");
}

static void add_zsh(const struct ct_cli_table *t, struct ct_str *out)
{
	ct_str_add(out, "#compdef ctrain\n");
	add_functions(t, out);
	ct_str_add(out, "_ctrain() {\n"
			"\tlocal cur=${words[CURRENT]}\n"
			"\tif [[ $cur == *=* ]]; then\n"
			"\t\tcompset -P '*='\n"
			"\t\tcompadd -- ${=$(_ctrain_values \"${cur%%=*}\")}\n"
			"\telif [[ $cur == -* ]]; then\n"
			"\t\tcompadd -- ${=$(_ctrain_options \"$(_ctrain_command \"${words[2]}\" \"${words[3]}\")\")}\n"
			"\telif (( CURRENT == 2 )); then\n"
			"\t\tcompadd -- ${=$(_ctrain_commands)}\n"
			"\t\t_files -g '*.(yaml|yml)'\n"
			"\telif (( CURRENT == 3 )) && [[ -n $(_ctrain_subcommands \"${words[2]}\") ]]; then\n"
			"\t\tcompadd -- ${=$(_ctrain_subcommands \"${words[2]}\")}\n"
			"\telif [[ ${words[2]} == help ]]; then\n"
			"\t\tcompadd -- ${=$(_ctrain_commands)} ${=$(_ctrain_keys)}\n"
			"\telse\n"
			"\t\tcompadd -S = -- ${=$(_ctrain_keys)}\n"
			"\t\t_files\n"
			"\tfi\n"
			"}\n"
			"if [ \"$funcstack[1]\" = _ctrain ]; then\n"
			"\t_ctrain \"$@\"\n"
			"else\n"
			"\tcompdef _ctrain ctrain\n"
			"fi\n");
}

/* "complete -c ctrain -n CONDITION -a NAME -d DESCRIPTION" */
static void add_fish_name(struct ct_str *out, const char *condition, const char *name, const char *doc)
{
	ct_str_addf(out, "complete -c ctrain -n '%s' -a '%s' -d '", condition, name);
	add_short(out, doc);
	ct_str_add(out, "'\n");
}

static void add_fish_options(const struct ct_cli_table *t, struct ct_str *out, const struct ct_command *c)
{
	const struct ct_option *o;
	char name[40];

	for (size_t i = 0; (o = ct_option_at(t, i)); i++) {
		if (!ct_option_is_in(o, c->options | CT_OPT_ALL, c->own) || !o->doc)
			continue;
		ct_str_addf(out, "complete -c ctrain -n '_ctrain_is \"%s\"' -l '%.*s'%s -d '", ct_command_name(c, name),
			    (int)strcspn(o->names, " "), o->names, o->value ? " -r" : "");
		add_short(out, o->doc);
		ct_str_add(out, "'\n");
	}
}

static void add_fish(const struct ct_cli_table *t, struct ct_str *out)
{
	const struct ct_command *c;
	struct ct_config_key k;
	char condition[64];

	ct_str_add(
		out,
		"# Whether the words so far are this command, which is train if they are none.\n"
		"function _ctrain_is\n"
		"\tset -l words (commandline -opc)[2..-1]\n"
		"\tset -l parts (string split ' ' -- $argv[1])\n"
		"\tif test \"$argv[1]\" = train; and test (count $words) -gt 0; and string match -q '*.y*ml' -- $words[1]\n"
		"\t\treturn 0\n"
		"\tend\n"
		"\ttest \"$words[1..\"(count $parts)\"]\" = \"$argv[1]\"\n"
		"end\n");
	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		if (first_of_name(t, i))
			add_fish_name(out, "test (count (commandline -opc)) = 1", c->name,
				      ct_command_has_subs(t, c->name) ? "needs a second word" : c->doc);
		if (c->sub) {
			snprintf(condition, sizeof(condition), "test \"$(commandline -opc)\" = \"ctrain %s\"", c->name);
			add_fish_name(out, condition, c->sub, c->doc);
		}
		add_fish_options(t, out, c);
	}
	for (size_t i = 0; ct_config_key_at(i, &k); i++) {
		struct ct_str name = {0};

		ct_str_addf(&name, "%s=", k.name);
		add_fish_name(out, "test (count (commandline -opc)) -gt 1; and not _ctrain_is help", ct_str_text(&name),
			      k.doc);
		add_fish_name(out, "_ctrain_is help", k.name, k.doc);
		for (size_t j = 0; k.choices && k.choices[j]; j++)
			ct_str_addf(
				out,
				"complete -c ctrain -n 'string match -q \"%s=*\" -- (commandline -ct)' -a '%s=%s'\n",
				k.name, k.name, k.choices[j]);
		ct_str_release(&name);
	}
}

bool ct_help_completion(const struct ct_cli_table *t, const char *shell, struct ct_str *out)
{
	static void (*const add[])(const struct ct_cli_table *t, struct ct_str *out) = {add_bash, add_zsh, add_fish};

	for (size_t i = 0; i < CT_ARRAY_LEN(shells); i++) {
		if (strcmp(shells[i], shell) != 0)
			continue;
		if (i != 1) /* zsh wants #compdef in the first line */
			ct_str_addf(out, "# Generated by `ctrain completion %s`.\n", shell);
		add[i](t, out);
		return true;
	}
	return false;
}

enum ct_status ct_cmd_completion(const struct ct_cli *cli)
{
	struct ct_str text = {0};

	if (!ct_help_completion(cli->table, cli->args[0], &text)) {
		CT_FAIL(CT_USAGE, "there is no completion for the shell \"%.40s\"", cli->args[0]);
		return ct_error_hint("choose bash, zsh or fish");
	}
	return ct_print_to(cli->out, &text);
}
