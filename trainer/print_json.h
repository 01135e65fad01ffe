/* A command's result as JSON on standard output. */
#ifndef CT_TRAINER_PRINT_JSON_H
#define CT_TRAINER_PRINT_JSON_H

#include "base/json.h"

/* Takes j. One line, or indented. */
enum ct_status ct_print_json(ct_json *j, bool pretty) CT_MUST_CHECK;

#endif
