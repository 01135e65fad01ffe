/* Words of the command line that are neither commands nor options: config files, config keys, and misspelled words. */
#ifndef CT_TRAINER_TOOLS_CLI_UNKNOWN_H
#define CT_TRAINER_TOOLS_CLI_UNKNOWN_H

#include "trainer/tools/cli/table.h"

/* Returns true if a word has the form optim.lr=0.1, and is not a path that contains '='. */
bool ct_is_set(const char *word);
bool ct_ends_in_yaml(const char *word);
/* Returns true if a word names a config file, or an example config. */
bool ct_is_config(const char *word);
/* Returns the first word of a command, or the second word of one whose first word is `parent`, that a misspelled word
 * resembles, or NULL. */
const char *ct_command_near(const struct ct_cli_table *t, const char *word, const char *parent);
/* Sets the error of a word that is no command, or no second word of the command `parent` (NULL: a first word). */
enum ct_status ct_unknown_command(const struct ct_cli_table *t, const char *word, const char *parent);
/* Adds a hint to the error of an option that means a config key, for example optim.lr=0.1 for "--lr 0.1". Returns false
 * if there is none. value is the string after '=' or the next word, or NULL. */
bool ct_hint_at_key(const char *option, const char *value);
/* Sets the error of argument `at`, an option with an unknown name. */
enum ct_status ct_unknown_option(const struct ct_cli_table *t, int argc, char **argv, int at);

#endif
