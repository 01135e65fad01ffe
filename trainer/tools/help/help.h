/* Help pages, the man page and completion scripts, all generated from the tables of commands, options (cli_table.c) and
 * examples (examples.c), and from the schema of the config. */
#ifndef CT_TRAINER_TOOLS_HELP_HELP_H
#define CT_TRAINER_TOOLS_HELP_HELP_H

#include "trainer/tools/cli/cli.h"

/* A command's examples and what help says about it besides its first sentence. */
struct ct_command_text {
	const char *name;     /* "data pack" */
	const char *about;    /* full sentences, or NULL */
	const char *examples; /* one command a line, with a comment after "  # " */
};

/* Returns the text of a command, or NULL if there is none. */
const struct ct_command_text *ct_command_text(const struct ct_command *c);
/* Writes "data pack" for the command. */
const char *ct_command_name(const struct ct_command *c, char name[40]);

/* Appends the commands, options and keys whose name, description or names in other tools contain the word. Returns
 * their number. */
size_t ct_help_search(const char *word, struct ct_str *out);
/* Appends the man page ctrain(1), in roff. */
void ct_help_man(struct ct_str *out);
/* Appends a completion script. Returns false if the shell is not bash, zsh or fish. */
bool ct_help_completion(const char *shell, struct ct_str *out);

/* The commands `ctrain man` and `ctrain completion SHELL`. */
enum ct_status ct_cmd_man(const struct ct_cli *cli);
enum ct_status ct_cmd_completion(const struct ct_cli *cli);

#endif
