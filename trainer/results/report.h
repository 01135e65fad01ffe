/* The report of runs: one HTML file that needs nothing else, and results.csv and results.png for a single run (docs/REPORT.md). */
#ifndef CT_TRAINER_RESULTS_REPORT_H
#define CT_TRAINER_RESULTS_REPORT_H

#include "trainer/plan/run_plan.h"

/* The data of a run, from which the report shows images. Everything is borrowed. */
struct ct_report_data {
	const ct_dataset *train, *val; /* NULL: none, or not images */
	struct ct_transform transform, val_transform;
	struct ct_sampler sampler;
	int h, w, val_h, val_w; /* size of the images that the model gets in epoch 0, and in evaluations */
	int64_t seed;
	bool mixed; /* mixup or CutMix is on */
};
void ct_report_data_set(struct ct_report_data *d, const struct ct_config *c, const struct ct_run_plan *p,
			const ct_dataset *train, const ct_dataset *val);

/* Writes the report of n runs to the file `out`. All runs must have a metrics.jsonl. */
enum ct_status ct_report_write(const char *const *run_dirs, int n, const char *out) CT_MUST_CHECK;
/* Writes RUN/report.html, RUN/results.csv and RUN/results.png. If data is NULL, opens the data that the config of the run names. *path is the
 * path of the first file, owned by the caller. */
enum ct_status ct_report_write_run(const char *run_dir, const struct ct_report_data *data, char **path) CT_MUST_CHECK;

#endif
