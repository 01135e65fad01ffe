/* What Slurm, the log and the run directory say about a job that was submitted with a script of `ctrain slurm`. */
#ifndef CT_TRAINER_LAUNCH_SLURM_JOB_STATUS_H
#define CT_TRAINER_LAUNCH_SLURM_JOB_STATUS_H

#include "base/json.h"

/* Returns a JSON object with the members job, name, state, reason, run_time, time_limit, restarts, nodes, run_dir, log,
 * log_tail (an array of the last n_lines lines) and last (the last object of RUN/metrics.jsonl that has a step).
 * Members that are not known are missing. `line` is a line of ct_slurm_show_job. The result is owned by the caller. */
ct_json *ct_slurm_status(const char *line, int n_lines);
/* Appends a text of a few lines for people. */
void ct_slurm_status_text(const ct_json *status, struct ct_str *out);
/* Appends the ids of the user's jobs that were submitted with a script of `ctrain slurm`, one per line. */
enum ct_status ct_slurm_own_jobs(struct ct_str *out) CT_MUST_CHECK;

#endif
