/* Help pages of commands, in at most 80 columns, and the search. */
#include <stdio.h>
#include <string.h>

#include "trainer/job/version.h"
#include "trainer/tools/help/help.h"

#define LEFT 24 /* width of the left column */

/* A name in the left column and its description. */
static void add_entry(struct ct_str *out, const char *name, const char *text)
{
	size_t n = strlen(name) + 2;

	ct_str_addf(out, "  %s", name);
	if (n + 2 > LEFT)
		ct_str_addf(out, "\n%*s", LEFT, "");
	else
		ct_str_addf(out, "%*s", (int)(LEFT - n), "");
	ct_str_add_wrapped(out, text, LEFT, LEFT);
}

/* "--procs N|auto|A,B,..", and the description with the other names. */
static void add_option(struct ct_str *out, const struct ct_option *o)
{
	size_t first = strcspn(o->names, " ");
	const char *other = o->names + first;
	struct ct_str left = {0}, text = {0};

	ct_str_addf(&left, "--%.*s%s%s", (int)first, o->names, o->value ? " " : "", o->value ? o->value : "");
	ct_str_add(&text, o->doc);
	while (*other == ' ') {
		size_t n = strcspn(++other, " ");

		ct_str_addf(&text, "%s%s%.*s", other == o->names + first + 1 ? " [also " : ", ", n > 1 ? "--" : "-",
			    (int)n, other);
		other += n;
	}
	ct_str_add(&text, strchr(o->names, ' ') ? "]" : "");
	add_entry(out, ct_str_text(&left), ct_str_text(&text));
	ct_str_release(&text);
	ct_str_release(&left);
}

static void add_options(const struct ct_cli_table *t, struct ct_str *out, unsigned groups,
			const struct ct_own_options *own)
{
	const struct ct_option *o;

	for (size_t i = 0; (o = ct_option_at(t, i)); i++) {
		if (ct_option_is_in(o, groups, own) && o->doc)
			add_option(out, o);
	}
}

static void add_overview(const struct ct_cli_table *t, struct ct_str *out)
{
	const struct ct_command *c;
	char name[40];

	ct_str_addf(out, "ctrain %s: distributed data-parallel training of image classifiers\n\n", ct_version());
	ct_str_add(out, "usage: ctrain CONFIG.yaml [KEY=VALUE ...] [options]    train\n"
			"       ctrain COMMAND ...\n\n"
			"first steps\n"
			"  ctrain smoke                        test the installation, without data\n"
			"  ctrain init images/                 write images.yaml for your own images\n"
			"  ctrain images.yaml                  train\n"
			"  ctrain predict runs/images x.jpg    classify an image with the result\n"
			"\ncommands\n");
	for (size_t i = 0; (c = ct_command_at(t, i)); i++)
		add_entry(out, ct_command_name(c, name), c->doc);
	ct_str_add(out, "\nlaunch options (torchrun's names also work; '-' and '_' are equivalent)\n");
	add_options(t, out, CT_OPT_SETS, NULL);
	ct_str_add(out, "\nKEY=VALUE sets any key of the configuration: optim.lr=0.1, train.epochs=3,\n"
			"model.hidden=[256,128]. `ctrain help COMMAND` shows a command's options and\n"
			"examples, `ctrain help optim.lr` or `ctrain help optim` explains keys, and\n"
			"`ctrain help --search WORD` searches commands, options and keys.\n"
			"Precedence: command line > environment (CTRAIN_LOG) > file > default\n"
			"($CTRAIN_DATA changes the default of data.dir).\n\n"
			"exit codes: 0 done, 1 compared runs differ, 2 usage or configuration, 3 data,\n"
			"4 device, 5 communication or lost rank, 6 NaN or Inf, 7 file system, 70 bug,\n"
			"75 stopped by a signal after saving: run the same command again to continue\n");
}

static void add_examples(struct ct_str *out, const char *examples)
{
	ct_str_add(out, "\nexamples\n");
	for (const char *s = examples; *s; s += strcspn(s, "\n"), s += *s == '\n')
		ct_str_addf(out, "  %.*s\n", (int)strcspn(s, "\n"), s);
}

/* Commands that start no ranks accept the launch options, because they are config keys, but do not list them. */
static unsigned groups_of(const struct ct_command *c)
{
	const unsigned all = c->options | CT_OPT_ALL;

	return c->options & CT_OPT_LAUNCH ? all : all & ~(unsigned)CT_OPT_SETS;
}

void ct_help_page(const struct ct_cli_table *t, const struct ct_command *command, struct ct_str *out)
{
	const struct ct_command_text *text = command ? ct_command_text(command) : NULL;
	char name[40], usage[160];

	if (!command) {
		add_overview(t, out);
		return;
	}
	snprintf(usage, sizeof(usage), "usage: ctrain %s%s%s%s", ct_command_name(command, name),
		 command->args[0] ? " " : "", command->args, command->options || command->own ? " [options]" : "");
	ct_str_add_wrapped(out, usage, 0, strlen("usage: ctrain "));
	ct_str_add(out, "\n  ");
	ct_str_add_wrapped(out, command->doc, 2, 2);
	if (text && text->about) {
		ct_str_add(out, "\n  ");
		ct_str_add_wrapped(out, text->about, 2, 2);
	}
	ct_str_add(out, "\noptions\n");
	add_options(t, out, groups_of(command), command->own);
	if (command->options & CT_OPT_SETS)
		ct_str_add(out, "\nKEY=VALUE sets any key of the configuration, for example optim.lr=0.1.\n"
				"`ctrain help KEY` explains a key, and docs/CONFIG.md describes all of them.\n");
	if (text)
		add_examples(out, text->examples);
	ct_str_add(out, "\n");
}

/* Compares without regard to case, and treats '-', '_' and ' ' as the same. */
static bool contains(const char *text, const char *word)
{
	for (; text && *text; text++) {
		size_t i = 0;

		for (; word[i] && text[i]; i++) {
			char a = text[i], b = word[i];

			a = (char)(a >= 'A' && a <= 'Z' ? a + 32 : a == '-' || a == ' ' ? '_' : a);
			b = (char)(b >= 'A' && b <= 'Z' ? b + 32 : b == '-' || b == ' ' ? '_' : b);
			if (a != b)
				break;
		}
		if (!word[i])
			return true;
	}
	return false;
}

static size_t search_commands(const struct ct_cli_table *t, const char *word, struct ct_str *out)
{
	const struct ct_command *c;
	char name[40];
	size_t n = 0;

	for (size_t i = 0; (c = ct_command_at(t, i)); i++) {
		const struct ct_command_text *about = ct_command_text(c);

		ct_command_name(c, name);
		if (!contains(name, word) && !contains(c->doc, word) && !(about && contains(about->about, word)))
			continue;
		ct_str_add(out, n++ == 0 ? "commands\n" : "");
		add_entry(out, name, c->doc);
	}
	return n;
}

static size_t search_options(const struct ct_cli_table *t, const char *word, struct ct_str *out)
{
	const struct ct_option *o;
	size_t n = 0;

	for (size_t i = 0; (o = ct_option_at(t, i)); i++) {
		if (!o->doc || (!contains(o->names, word) && !contains(o->doc, word)))
			continue;
		ct_str_add(out, n++ == 0 ? "options\n" : "");
		add_option(out, o);
	}
	return n;
}

static size_t search_keys(const char *word, struct ct_str *out)
{
	struct ct_config_key k;
	size_t n = 0;

	for (size_t i = 0; ct_config_key_at(i, &k); i++) {
		if (!contains(k.name, word) && !contains(k.doc, word) && !contains(k.other_names, word))
			continue;
		ct_str_add(out, n++ == 0 ? "keys of the configuration\n" : "");
		add_entry(out, k.name, k.doc);
	}
	return n;
}

size_t ct_help_search(const struct ct_cli_table *t, const char *word, struct ct_str *out)
{
	return search_commands(t, word, out) + search_options(t, word, out) + search_keys(word, out);
}
