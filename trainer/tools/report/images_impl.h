/* Images in a report: samples, mistakes and filters. */
#ifndef CT_TRAINER_TOOLS_REPORT_IMAGES_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_IMAGES_IMPL_H

#include "trainer/run/evaluation/predictions.h"
#include "trainer/tools/report/page_impl.h"
#include "trainer/tools/report/report.h"

/* The data that the config of a run names. If it cannot be opened, warns, and there are no images. */
struct ct__opened_data {
	struct ct_image_source data;
	struct ct_config *cfg;
	ct_dataset *train, *val;
};
void ct__report_data_open(const char *run_dir, struct ct__opened_data *o);
void ct__report_data_close(struct ct__opened_data *o);

/* Add up to 24 samples that were predicted wrongly with the highest probabilities, and the first training samples of
 * epoch 0. Samples that cannot be read are skipped. */
enum ct_status ct__page_mistakes(struct ct__page *p, const struct ct_image_source *data,
				 const struct ct_predictions *e) CT_MUST_CHECK;
enum ct_status ct__page_samples(struct ct__page *p, const struct ct_image_source *data) CT_MUST_CHECK;
/* Adds the weights of the first layer as images, if a checkpoint exists and the layer reads the images. */
enum ct_status ct__page_filters(struct ct__page *p, const struct ct_image_source *data) CT_MUST_CHECK;

#endif
