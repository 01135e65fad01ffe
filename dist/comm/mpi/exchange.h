/* Messages that are started together. The short ones between ranks of a host go through rings, the others through MPI.
 */
#ifndef CT_DIST_COMM_MPI_EXCHANGE_H
#define CT_DIST_COMM_MPI_EXCHANGE_H

#include "dist/comm/mpi/mpi_engine.h"
#include "dist/comm/mpi/rings.h"

struct ct_mpi_exchange;
struct ct_mpi_exchanges;

/* Borrows the module, the engine and the rings; rings may be NULL. */
enum ct_status ct__mpi_exchanges_open(const struct ct_mpi_module *module, struct ct_mpi_engine *engine,
				      struct ct_rings *rings, struct ct_mpi_exchanges **out) CT_MUST_CHECK;
/* Frees the exchanges that have been put back. NULL is allowed. */
void ct__mpi_exchanges_close(struct ct_mpi_exchanges *all);
/* Gets an exchange for up to `max` messages. */
enum ct_status ct__mpi_exchange_take(struct ct_mpi_exchanges *all, size_t max,
				     struct ct_mpi_exchange **out) CT_MUST_CHECK;
/* Puts back an exchange that is empty or done. NULL is allowed. */
void ct__mpi_exchange_put(struct ct_mpi_exchange *x);
/* Returns whether a message goes through a ring. */
bool ct__mpi_exchange_in_ring(const struct ct_mpi_exchanges *all, int peer, size_t bytes);
/* Starts n messages, and then does the same as ct__mpi_exchange_test. Changes the order of m. The exchange must be
 * empty or done. Parameters and errors are as in ct_mpi_module.start. */
enum ct_status ct__mpi_exchange_start(struct ct_mpi_exchange *x, enum ct_mpi_channel channel, int tag,
				      struct ct_mpi_message *m, size_t n, int polls) CT_MUST_CHECK;
/* Returns CT_OK if all messages are done, else CT_INPROGRESS after `polls` attempts. */
enum ct_status ct__mpi_exchange_test(struct ct_mpi_exchange *x, int polls) CT_MUST_CHECK;

#endif
