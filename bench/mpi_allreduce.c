/* Measures MPI_Allreduce (fp32, sum, in place) of an MPI library, for comparison with ctrain's communicator mpi. Usage, for each library:
 * mpirun -n 2 mpi_allreduce_NAME BYTES... Prints lines "BYTES MICROSECONDS", the mean of as many iterations as 200 ms allow. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WARMUP 5
#define MAX_ITERATIONS 2000
#define SECONDS 0.2

static double time_of(float *x, int n, int iterations)
{
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < iterations; i++)
		MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	return (MPI_Wtime() - start) / iterations;
}

static double measure(size_t bytes)
{
	int n = (int)(bytes / sizeof(float)), iterations = MAX_ITERATIONS;
	float *x = calloc((size_t)n, sizeof(*x));
	double seconds;

	if (!x)
		MPI_Abort(MPI_COMM_WORLD, 1);
	seconds = time_of(x, n, WARMUP);
	if (seconds * MAX_ITERATIONS > SECONDS)
		iterations = (int)(SECONDS / seconds) + 1;
	if (iterations < WARMUP)
		iterations = WARMUP;
	MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
	seconds = time_of(x, n, iterations);
	free(x);
	return seconds;
}

int main(int argc, char **argv)
{
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i < argc; i++) {
		size_t bytes = strtoul(argv[i], NULL, 10);
		double seconds = measure(bytes);

		if (rank == 0)
			printf("%zu %.3f\n", bytes, seconds * 1e6);
	}
	MPI_Finalize();
	return 0;
}
