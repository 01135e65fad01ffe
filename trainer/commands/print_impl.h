/* A command's result on standard output. Both functions take what they print and release it, whatever happens. */
#ifndef CT_TRAINER_COMMANDS_PRINT_IMPL_H
#define CT_TRAINER_COMMANDS_PRINT_IMPL_H

#include "base/json.h"

/* CT_IO if standard output cannot be written, CT_NOMEM if text ran out of memory while it was made. */
enum ct_status ct__print_text(struct ct_str *text) CT_MUST_CHECK;
/* On one line, or indented. */
enum ct_status ct__print_json(ct_json *j, bool pretty) CT_MUST_CHECK;

#endif
