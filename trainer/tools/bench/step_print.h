/* Print the result of `ctrain bench step`. */
#ifndef CT_TRAINER_TOOLS_BENCH_STEP_PRINT_H
#define CT_TRAINER_TOOLS_BENCH_STEP_PRINT_H

#include "trainer/tools/bench/step_bench.h"

enum ct_status ct_step_print_json(struct ct_session *s, const struct ct_step_bench *b) CT_MUST_CHECK;
/* Prints a table of the layers that take the most time, and one of the kinds of layers. trace: path of the trace, or
 * NULL. */
enum ct_status ct_step_print_table(struct ct_session *s, const struct ct_step_bench *b,
				   const char *trace) CT_MUST_CHECK;

#endif
