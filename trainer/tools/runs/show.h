/* The output of `ctrain runs` and `ctrain compare`. */
#ifndef CT_TRAINER_TOOLS_RUNS_SHOW_H
#define CT_TRAINER_TOOLS_RUNS_SHOW_H

#include "base/json.h"
#include "trainer/tools/runs/run_info.h"

/* Appends a table with a row for each run. width: see ct_text_table_format. */
enum ct_status ct_runs_table(const struct ct_run_list *l, int width, bool colors, struct ct_str *out) CT_MUST_CHECK;
/* An array with an object for each run; owned by the caller. */
enum ct_status ct_runs_json(const struct ct_run_list *l, ct_json **out) CT_MUST_CHECK;

/* Appends the results of two runs side by side, how their plans differ, and the config keys that differ. *same: neither
 * their configs nor their weights differ. Fails with CT_CONFIG if a plan is not valid. */
enum ct_status ct_runs_compare(const struct ct_run_info *a, const struct ct_run_info *b, int width, bool colors,
			       bool *same, struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_runs_compare_json(const struct ct_run_info *a, const struct ct_run_info *b, bool *same,
				    ct_json **out) CT_MUST_CHECK;

#endif
