/* A worker is the process of one rank. Its launcher (ctrain, torchrun, srun or mpirun) has assigned its identity. */
#ifndef CT_TRAINER_LOOP_WORKER_H
#define CT_TRAINER_LOOP_WORKER_H

#include "dist/rendezvous/rendezvous.h"
#include "trainer/config/config.h"

/* Trains. A failure is also written to the log file of the rank. It is returned with its error chain, which main passes
 * to the launcher or, if there is no launcher, prints. */
enum ct_status ct_worker_run(const struct ct_config *cfg, const struct ct_identity *id) CT_MUST_CHECK;
/* Makes this process use the clock of the ctrain launcher that started it. The launcher halts this clock while the job
 * is suspended (base/clock.h). Call this before any thread is started. Does nothing if another launcher started this
 * process. */
enum ct_status ct_worker_join_clock(void) CT_MUST_CHECK;
/* Writes the current error chain, which belongs to the failure st, to the launcher's pipe. Returns false if there is no
 * pipe. */
bool ct_worker_deliver_error(enum ct_status st);

#endif
