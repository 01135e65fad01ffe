/* The report after a failure: RUN/log/postmortem.json describes what each rank was doing when the run failed
 * (docs/FORMATS.md), and RUN/log/postmortem.txt is the same for people. In runs on several nodes, each launcher adds
 * its ranks, so the last one completes the report. Ranks that were not started by ctrain's launcher add themselves. */
#ifndef CT_TRAINER_JOB_POSTMORTEM_POSTMORTEM_H
#define CT_TRAINER_JOB_POSTMORTEM_POSTMORTEM_H

#include "base/json.h"
#include "dist/store/store.h"

struct ct_postmortem_job {
	int world;
	double started; /* when this attempt started here, as of ct_wall_seconds: an older report belongs to another one
			 */
	const struct ct_failure *failure; /* NULL: unknown. Its rank is -1 if it is not known who failed first */
};

/* Adds the entries (trainer/job/postmortem/entry.h), an array, to the report of this run, and writes both files. Takes
 * the array. */
enum ct_status ct_postmortem_add(const char *run_dir, const struct ct_postmortem_job *job,
				 ct_json *entries) CT_MUST_CHECK;
/* Reads the report of a run. Adds the backtraces that ranks have left without an entry. The caller owns *out. Fails
 * with CT_NOT_FOUND if there is neither. */
enum ct_status ct_postmortem_read(const char *run_dir, ct_json **out) CT_MUST_CHECK;
/* Appends the text of a report, without control characters. */
void ct_postmortem_text(const ct_json *report, struct ct_str *out);

#endif
