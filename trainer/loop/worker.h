/* A worker: one rank, one process. Whoever started it (our launcher, torchrun, srun, mpirun) gave it its identity. */
#ifndef CT_TRAINER_LOOP_WORKER_H
#define CT_TRAINER_LOOP_WORKER_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/config/config.h"

/* Trains. On failure the error is delivered to our launcher when it is there, so that main prints it only otherwise. */
enum ct_status ct_worker_run(const struct ct_config *cfg, const struct ct_identity *id) CT_MUST_CHECK;
/* Makes this process use the clock of the launcher that started it, which halts it while all are suspended (base/clock.h).
 * Call before any thread is started. CT_OK in a process that no launcher of ours started. */
enum ct_status ct_worker_join_clock(void) CT_MUST_CHECK;
/* Writes the current chain, as that of the failure st, to the launcher's pipe; false when there is none. */
bool ct_worker_deliver_error(enum ct_status st);

#endif
