/* Print the result of a command. The functions take ownership of their argument and release it,
 * even if they fail. */
#ifndef CT_TRAINER_TOOLS_CLI_PRINT_H
#define CT_TRAINER_TOOLS_CLI_PRINT_H

#include "base/json.h"

/* Fails with CT_IO if standard output cannot be written, and with CT_NOMEM if an allocation failed while the text was
 * built. */
enum ct_status ct_print_text(struct ct_str *text) CT_MUST_CHECK;
/* Writes the text to the file `path`, durably, or to standard output if path is NULL. */
enum ct_status ct_print_to(const char *path, struct ct_str *text) CT_MUST_CHECK;
/* Prints the lines that are not empty, indented by two spaces. */
enum ct_status ct_print_indented(struct ct_str *text) CT_MUST_CHECK;
/* If pretty is true, the output is indented; otherwise it is a single line. */
enum ct_status ct_print_json(ct_json *j, bool pretty) CT_MUST_CHECK;

#endif
