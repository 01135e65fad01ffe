/* Help pages, the man page and completion scripts, all generated from the tables of commands, options
 * (trainer/tools/commands/table.c) and examples (examples.c), and from the schema of the config. */
#ifndef CT_TRAINER_TOOLS_HELP_HELP_H
#define CT_TRAINER_TOOLS_HELP_HELP_H

#include "trainer/tools/cli/cli.h"

struct ct_help_options {
	const char *search;
};

/* A command's examples and what help says about it besides its first sentence. */
struct ct_command_text {
	const char *name;     /* "data pack" */
	const char *about;    /* full sentences, or NULL */
	const char *examples; /* one command a line, with a comment after "  # " */
};

/* Returns the text of a command, or NULL if there is none. */
const struct ct_command_text *ct_command_text(const struct ct_command *c);
/* Appends the help page of a command, or the overview if command is NULL. */
void ct_help_page(const struct ct_cli_table *t, const struct ct_command *command, struct ct_str *out);

/* Appends the commands, options and keys whose name, description or names in other tools contain the word. Returns
 * their number. */
size_t ct_help_search(const struct ct_cli_table *t, const char *word, struct ct_str *out);
/* Appends the man page ctrain(1), in roff. */
void ct_help_man(const struct ct_cli_table *t, struct ct_str *out);
/* Appends a completion script. Returns false if the shell is not bash, zsh or fish. */
bool ct_help_completion(const struct ct_cli_table *t, const char *shell, struct ct_str *out);

/* The commands `ctrain help`, `ctrain man`, `ctrain completion SHELL` and `ctrain version`. help also runs for --help
 * on any line, and version for --version; the arguments of help are all words of the line. */
enum ct_status ct_cmd_help(const struct ct_cli *cli);
enum ct_status ct_cmd_version(const struct ct_cli *cli);
enum ct_status ct_cmd_man(const struct ct_cli *cli);
enum ct_status ct_cmd_completion(const struct ct_cli *cli);

#endif
