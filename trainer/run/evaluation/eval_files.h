/* The files of an evaluation: predictions.csv, evaluation.json, classes.csv and confusion.csv (docs/REPORT.md). */
#ifndef CT_TRAINER_RUN_EVALUATION_EVAL_FILES_H
#define CT_TRAINER_RUN_EVALUATION_EVAL_FILES_H

#include "data/dataset.h"
#include "trainer/run/evaluation/predictions.h"

/* Writes the files to the directory, which is created if necessary. data is the evaluated set, for the names of classes
 * and samples. checkpoint is the path of the weights, or NULL. */
enum ct_status ct_eval_files_write(const char *dir, const struct ct_predictions *p, const ct_dataset *data,
				   const char *checkpoint) CT_MUST_CHECK;
/* Reads predictions.csv and the step in evaluation.json. Fails with CT_NOT_FOUND if there are no such files, and with
 * CT_DATA if they are not valid. Release *out even if this function fails. */
enum ct_status ct_eval_files_load(const char *dir, struct ct_predictions *out) CT_MUST_CHECK;

#endif
