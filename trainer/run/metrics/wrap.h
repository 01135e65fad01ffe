/* Breaks text between words, so that the terminal does not break it anywhere. */
#ifndef CT_TRAINER_RUN_METRICS_WRAP_H
#define CT_TRAINER_RUN_METRICS_WRAP_H

#include "base/mem.h"

/* Appends the lines of `text`, each with at most `width` columns unless a single word is longer. The continuation of a
 * line is indented to its second column, such as the values of a table, or by two spaces. If width is 0, appends the
 * text as it is. */
void ct_wrap(const char *text, int width, struct ct_str *out);

#endif
