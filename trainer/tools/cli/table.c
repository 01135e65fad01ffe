#include "trainer/tools/cli/table.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const struct ct_command *ct_command_at(const struct ct_cli_table *t, size_t i)
{
	return i < t->n_commands ? &t->commands[i] : NULL;
}

const struct ct_option *ct_option_at(const struct ct_cli_table *t, size_t i)
{
	return i < t->n_options ? &t->options[i] : NULL;
}

bool ct_option_is_in(const struct ct_option *o, unsigned groups, const struct ct_own_options *own)
{
	return o->own ? o->own == own : o->group & groups;
}

const struct ct_option *ct_option_find(const struct ct_cli_table *t, const char *name, size_t len)
{
	for (size_t i = 0; i < t->n_options; i++) {
		if (ct_word_in(t->options[i].names, name, len))
			return &t->options[i];
	}
	return NULL;
}

const struct ct_option *ct_option_of(const struct ct_cli_table *t, const struct ct_command *c,
				     const struct ct_option *o)
{
	for (size_t i = 0; i < t->n_options; i++) {
		if (strcmp(t->options[i].names, o->names) == 0 &&
		    ct_option_is_in(&t->options[i], c->options | CT_OPT_ALL, c->own))
			return &t->options[i];
	}
	return NULL;
}

const struct ct_command *ct_command_find(const struct ct_cli_table *t, const char *name, const char *sub)
{
	for (size_t i = 0; i < t->n_commands; i++) {
		const struct ct_command *c = &t->commands[i];

		if (strcmp(c->name, name) == 0 && (c->sub ? sub && strcmp(c->sub, sub) == 0 : true))
			return c;
	}
	return NULL;
}

bool ct_command_has_subs(const struct ct_cli_table *t, const char *name)
{
	bool has = false;

	for (size_t i = 0; i < t->n_commands; i++) {
		if (strcmp(t->commands[i].name, name) != 0)
			continue;
		if (!t->commands[i].sub)
			return false;
		has = true;
	}
	return has;
}

const char *ct_command_name(const struct ct_command *c, char name[40])
{
	snprintf(name, 40, "%s%s%s", c->name, c->sub ? " " : "", c->sub ? c->sub : "");
	return name;
}
