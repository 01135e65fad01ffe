/* Words of the command line that are no command: config files, and misspelled words. */
#ifndef CT_TRAINER_TOOLS_CLI_UNKNOWN_H
#define CT_TRAINER_TOOLS_CLI_UNKNOWN_H

#include "trainer/tools/cli/table.h"

bool ct_ends_in_yaml(const char *word);
/* Returns true if a word names a config file, or an example config. */
bool ct_is_config(const char *word);
/* Returns the first word of a command, or the second word of one whose first word is `parent`, that a misspelled word
 * resembles, or NULL. */
const char *ct_command_near(const struct ct_cli_table *t, const char *word, const char *parent);
/* Sets the error of a word that is no command, or no second word of the command `parent` (NULL: a first word). */
enum ct_status ct_unknown_command(const struct ct_cli_table *t, const char *word, const char *parent);

#endif
