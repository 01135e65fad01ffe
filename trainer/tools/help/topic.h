/* `ctrain help [WORD [WORD]]` and `ctrain help --search WORD`, for cli.c. */
#ifndef CT_TRAINER_TOOLS_HELP_TOPIC_H
#define CT_TRAINER_TOOLS_HELP_TOPIC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

bool ct_ends_in_yaml(const char *word);
/* Returns true if a word names a config file, or an example config. */
bool ct_is_config(const char *word);
/* Sets the error of a word that is no command, or no second word of the command `parent` (NULL: a first word). */
enum ct_status ct_unknown_command(const char *word, const char *parent);
/* Prints the help page that the words name. by_command: after `ctrain help`, where they can also be a key or section;
 * else they are those of a line with --help. */
enum ct_status ct_help_print(const char *const *words, size_t n, bool by_command) CT_MUST_CHECK;
enum ct_status ct_help_print_search(const char *word) CT_MUST_CHECK;

#endif
