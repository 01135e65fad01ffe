/* Reads what a run has written to its directory: metrics.jsonl as tables, config.yaml and classes.txt. The report and
 * results.csv are made from this. Files are not trusted: another program may have changed them, and a run may still
 * be writing them. A line of metrics.jsonl that is incomplete or not valid is skipped. */
#ifndef CT_TRAINER_TOOLS_REPORT_RUN_FILES_H
#define CT_TRAINER_TOOLS_REPORT_RUN_FILES_H

#include "base/json.h"
#include "data/files/class_list.h"

/* One row for each line of a kind in metrics.jsonl, and one column for each field. */
struct ct_table {
	const char *const *names; /* [n_columns] names of the fields */
	int n_columns;
	size_t n, cap;  /* rows; values for which there is room */
	double *values; /* [n, n_columns]; NaN: the field is null or absent */
};

/* Columns of the tables. */
enum {
	CT_STEP_STEP,
	CT_STEP_LOSS,
	CT_STEP_LR,
	CT_STEP_RATE,
	CT_STEP_GRAD_NORM,
	CT_STEP_DATA, /* the following six are the parts of the time of a step, in milliseconds */
	CT_STEP_FORWARD,
	CT_STEP_BACKWARD,
	CT_STEP_COMM,
	CT_STEP_OPTIM,
	CT_STEP_OTHER,
	CT_STEP_COLUMNS
};
enum {
	CT_EPOCH_EPOCH,
	CT_EPOCH_STEP,
	CT_EPOCH_LOSS,
	CT_EPOCH_IMAGES,
	CT_EPOCH_TIMED,
	CT_EPOCH_SECONDS,
	CT_EPOCH_COLUMNS
};
enum { CT_EVAL_EPOCH, CT_EVAL_STEP, CT_EVAL_LOSS, CT_EVAL_TOP1, CT_EVAL_TOP5, CT_EVAL_COLUMNS };

struct ct_run_setting {
	char *key, *value;
	char *origin; /* where the value comes from, for messages; "" if it is unknown */
	bool is_default;
};

struct ct_run_files {
	char *dir;
	struct ct_table steps, epochs, evals;
	ct_json **lines; /* [n_lines] all lines except `step` and `eval`, in the order of the file */
	size_t n_lines, cap_lines;
	const ct_json *run, *epoch, *end; /* the last lines of these kinds, borrowed; NULL: there is none */
	struct ct_run_setting *settings;  /* [n_settings] in the order of config.yaml */
	size_t n_settings, cap_settings;
	struct ct_class_list classes; /* n is 0 if the classes have no names */
};

/* Fails with CT_NOT_FOUND if there is no RUN/metrics.jsonl. The other files may be missing. Release *out even if this
 * function fails. */
enum ct_status ct_run_files_load(const char *dir, struct ct_run_files *out) CT_MUST_CHECK;
void ct_run_files_release(struct ct_run_files *r);

double ct_table_at(const struct ct_table *t, size_t row, int column);
/* Returns the setting with this key, or NULL. */
const struct ct_run_setting *ct_run_setting_find(const struct ct_run_files *r, const char *key);
/* Return a member of a line, or the fallback if the line is NULL or has no such member. */
const char *ct_line_str(const ct_json *line, const char *key, const char *fallback);
double ct_line_f64(const ct_json *line, const char *key); /* the fallback is NaN */

#endif
