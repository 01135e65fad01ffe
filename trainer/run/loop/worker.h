/* A worker is the process of one rank. Its launcher (ctrain, torchrun, srun or mpirun) has assigned its identity. */
#ifndef CT_TRAINER_RUN_LOOP_WORKER_H
#define CT_TRAINER_RUN_LOOP_WORKER_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/config/config.h"
#include "trainer/run/evaluation/run_images.h"

/* Writes the report of a run, and stores the path of its first file, which the caller owns, in *path. */
typedef enum ct_status ct_report_writer(const char *run_dir, const struct ct_image_source *images, char **path);

/* Runs the training of one rank. At the end, rank 0 calls `report`, which may be NULL, unless log.report is false. A
 * failure is written to the rank's log file and returned with its error chain. main passes this chain to the launcher,
 * or prints it if there is no launcher. */
enum ct_status ct_worker_run(const struct ct_config *cfg, const struct ct_identity *id,
			     ct_report_writer *report) CT_MUST_CHECK;

#endif
