/* A command's result as JSON on standard output. */
#ifndef CT_TRAINER_COMMANDS_PRINT_JSON_IMPL_H
#define CT_TRAINER_COMMANDS_PRINT_JSON_IMPL_H

#include "base/json.h"

/* Takes j. One line, or indented. */
enum ct_status ct__print_json(ct_json *j, bool pretty) CT_MUST_CHECK;

#endif
