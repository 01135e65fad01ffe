/* `ctrain import LINE|FILE` */
#include <string.h>

#include "base/file.h"
#include "trainer/config/import/import.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"

/* A launch line has several words, so one word is the name of a file. */
static enum ct_status import_one(const char *arg, struct ct_str *out)
{
	const bool yaml = ct_ends_with(arg, ".yaml") || ct_ends_with(arg, ".yml") || ct_ends_with(arg, ".json");

	return yaml && !strchr(arg, ' ') ? ct_import_accelerate(arg, out) : ct_import_line(arg, out);
}

enum ct_status ct_cmd_import(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	const enum ct_status st = import_one(cli->args[0], &text);

	if (st == CT_OK)
		return ct_print_text(&text);
	ct_str_release(&text);
	return st;
}
