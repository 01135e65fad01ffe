/* Help pages, generated from the tables in cli_table.c. */
#include <stdio.h>
#include <string.h>

#include "trainer/commands/cli_impl.h"

#define WIDE 34 /* width of the left column */

static void add_left(struct ct_str *out, const char *left)
{
	size_t n = strlen(left);

	if (n < WIDE)
		ct_str_addf(out, "  %-*s", WIDE, left);
	else
		ct_str_addf(out, "  %s\n  %*s", left, WIDE, "");
}

/* "--procs N|auto|A,B,.. " */
static void add_option(struct ct_str *out, const struct ct_option *o)
{
	size_t first = strcspn(o->names, " ");
	const char *other = o->names + first;
	struct ct_str left = {0};

	ct_str_addf(&left, "--%.*s%s%s", (int)first, o->names, o->value ? " " : "", o->value ? o->value : "");
	add_left(out, ct_str_text(&left));
	ct_str_release(&left);
	ct_str_add(out, o->doc);
	while (*other == ' ') {
		size_t n = strcspn(++other, " ");

		ct_str_addf(out, "%s%s%.*s", other == o->names + first + 1 ? " [also " : ", ", n > 1 ? "--" : "-",
			    (int)n, other);
		other += n;
	}
	ct_str_add(out, strchr(o->names, ' ') ? "]\n" : "\n");
}

static void add_options(struct ct_str *out, unsigned groups)
{
	const struct ct_option *o;

	for (size_t i = 0; (o = ct__option_at(i)); i++) {
		if (o->group & groups && o->doc)
			add_option(out, o);
	}
}

static void add_overview(struct ct_str *out)
{
	const struct ct_command *c;

	ct_str_add(out, "ctrain " CTRAIN_VERSION ": distributed data-parallel training of image classifiers\n\n"
			"usage: ctrain CONFIG.yaml [KEY=VALUE ...] [options]    train\n"
			"       ctrain COMMAND ...\n\ncommands\n");
	for (size_t i = 0; (c = ct_command_at(i)); i++) {
		struct ct_str left = {0};

		ct_str_addf(&left, "%s%s%s%s%s", c->name, c->sub ? " " : "", c->sub ? c->sub : "",
			    c->args[0] ? " " : "", c->args);
		add_left(out, ct_str_text(&left));
		ct_str_addf(out, "%s\n", c->doc);
		ct_str_release(&left);
	}
	ct_str_add(out, "\nlaunch options (torchrun's names also work; '-' and '_' are equivalent)\n");
	add_options(out, CT_OPT_SETS);
	ct_str_add(
		out,
		"\nKEY=VALUE sets any key of the configuration: optim.lr=0.1, train.epochs=3, model.hidden=[256,128].\n"
		"`ctrain help COMMAND` shows a command's options, `ctrain help optim.lr` or `ctrain help optim` explains keys.\n"
		"Precedence: command line > environment (CTRAIN_LOG) > file > default ($CTRAIN_DATA moves that of data.dir).\n\n"
		"exit codes: 0 done, 2 usage or configuration, 3 data, 4 device, 5 communication or lost peer, 6 NaN or Inf,\n"
		"7 file system, 70 bug, 75 stopped by a signal after saving: run the same command again to continue\n");
}

void ct_cli_help(const struct ct_command *command, struct ct_str *out)
{
	if (!command) {
		add_overview(out);
		return;
	}
	ct_str_addf(out, "usage: ctrain %s%s%s%s%s%s\n\n  %s\n\noptions\n", command->name, command->sub ? " " : "",
		    command->sub ? command->sub : "", command->args[0] ? " " : "", command->args,
		    command->options ? " [options]" : "", command->doc);
	add_options(out, command->options | CT_OPT_ALL);
	if (command->options & CT_OPT_SETS)
		ct_str_add(
			out,
			"\nKEY=VALUE sets any key of the configuration, for example optim.lr=0.1. See docs/CONFIG.md or `ctrain help KEY`.\n");
	ct_str_add(out, "\n");
}
