/* Tests whose ranks are started by the mpirun of a real MPI. mpirun executes the test program again for each rank, with
 * arguments that select a function of a table. */
#ifndef CT_TESTS_DIST_MPIRUN_H
#define CT_TESTS_DIST_MPIRUN_H

#include "tests/dist/ranks.h"

/* The implementations of MPI, by index. */
#define N_MPIS 2

/* Returns whether ctrain's module and the mpirun of this MPI are here; otherwise prints the reason. */
bool mpi_installed(int mpi);
/* Runs the scene `name` in `size` ranks, and checks that it succeeds in all of them. Returns the exit code of mpirun,
 * which is not 0 if ranks have not finalized MPI because their communicator failed. */
int mpi_play(int mpi, int size, const char *name, int64_t timeout_ns, int variant);

/* For main: whether mpirun has started this process, for the scene argv[2], and what it does then. fn has a struct
 * scene as argument. Returns the exit code. */
bool mpi_is_rank(int argc, char **argv);
int mpi_rank_main(char **argv, rank_fn fn);

#endif
