/* Opens the training and evaluation data in a separate thread. Meanwhile, the main thread joins the world, and opens
 * the engine and the communicator. */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_DATA_H
#define CT_TRAINER_RUN_SESSION_SESSION_DATA_H

#include "base/thread.h"
#include "data/dataset.h"
#include "trainer/config/config.h"

struct ct_data_opening {
	const struct ct_config *cfg;
	bool val_only, quiet;
	struct ct_thread thread;
	ct_dataset *train, *val;
	struct ct_error error;
	double seconds;
};
/* If val_only is true, opens only the evaluation data. If quiet is true, warnings are written to the log file only,
 * because another rank on this host prints the same ones. */
enum ct_status ct_data_opening_start(struct ct_data_opening *o, const struct ct_config *cfg, bool val_only,
				     bool quiet) CT_MUST_CHECK;
/* Waits for the thread. On success, the caller owns the data sets; val is NULL if the config has no evaluation data.
 * On failure, no data set is returned. */
enum ct_status ct_data_opening_finish(struct ct_data_opening *o, ct_dataset **train, ct_dataset **val) CT_MUST_CHECK;

#endif
