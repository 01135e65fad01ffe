/* MPI in this process: initialized once by its own thread, which also finalizes it at the end. */
#ifndef CT_DIST_COMM_MPI_MPI_PROCESS_H
#define CT_DIST_COMM_MPI_MPI_PROCESS_H

#include <stdint.h>

#include "base/status.h"

/* Initializes MPI when it is called for the first time. Fails with CT_TIMEOUT if that takes too long. */
enum ct_status ct__mpi_process_init(int64_t deadline_ns) CT_MUST_CHECK;
/* Counts open engines. While the second one is counted, no thread may be between lock and unlock. */
void ct__mpi_process_retain(void);
void ct__mpi_process_release(bool failed);
/* MPI is initialized with MPI_THREAD_SERIALIZED: every call is made between lock and unlock. They have no effect until
 * a second engine is counted. */
void ct__mpi_lock(void);
void ct__mpi_unlock(void);

#endif
