/* Writes a trained model to a file for other programs (docs/EXPORT.md). */
#ifndef CT_TRAINER_TOOLS_EXPORT_EXPORT_H
#define CT_TRAINER_TOOLS_EXPORT_EXPORT_H

#include "trainer/tools/export/source.h"

/* Fails with CT_USAGE if the suffix of `path` is not one of a format; the hint lists the formats. */
enum ct_status ct_export_check_path(const char *path) CT_MUST_CHECK;
/* Writes the model that the request names to `path`, whose suffix selects the format. Appends a description of what was
 * written to *report, one line per file. */
enum ct_status ct_export(const struct ct_model_request *q, const char *path, struct ct_str *report) CT_MUST_CHECK;

#endif
