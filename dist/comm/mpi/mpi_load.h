/* The choice of the module with MPI. */
#ifndef CT_DIST_COMM_MPI_MPI_LOAD_H
#define CT_DIST_COMM_MPI_MPI_LOAD_H

#include "dist/comm/comm.h"
#include "dist/comm/mpi/mpi_engine.h"

/* Loads the module for the implementation of MPI whose launcher has started this process: Open MPI for
 * OMPI_COMM_WORLD_SIZE or PMIX_RANK (mpirun of Open MPI, srun --mpi=pmix), MPICH for PMI_RANK (mpirun of MPICH, srun
 * --mpi=pmi2). CTRAIN_MPI=openmpi or mpich overrides this. Fails with CT_UNSUPPORTED if none of these launchers has
 * started this process, or if the module is missing. */
enum ct_status ct__mpi_load(const struct ct_mpi_module **out) CT_MUST_CHECK;

/* Returns CT_UNSUPPORTED, with the reason, if the communicator cannot be used in this world. */
enum ct_status ct__mpi_supports(const struct ct_world *w) CT_MUST_CHECK;

#endif
