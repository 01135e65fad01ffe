/* Tests whose ranks are started by the mpirun of a real MPI. mpirun executes the test program again for each rank, with
 * arguments that select a function of a table. */
#ifndef CT_TESTS_DIST_MPIRUN_H
#define CT_TESTS_DIST_MPIRUN_H

#include "tests/dist/ranks.h"

/* The implementations of MPI, by index. */
#define N_MPIS 2

struct mpi_scene {
	const char *name;
	rank_fn fn; /* its argument is a struct scene */
};

/* Returns whether ctrain's module and the mpirun of this MPI are here; otherwise prints the reason. */
bool mpi_installed(int mpi);
/* Runs the scene `name` in `size` ranks, and checks that it succeeds in all of them. Returns the exit code of mpirun,
 * which is not 0 if ranks have not finalized MPI because their communicator failed. */
int mpi_play(int mpi, int size, const char *name, int64_t timeout_ns, int variant);

/* For main: whether mpirun has started this process, and what it does then. Returns the exit code. */
bool mpi_is_rank(int argc, char **argv);
int mpi_rank_main(char **argv, const struct mpi_scene *scenes, size_t n);

#endif
