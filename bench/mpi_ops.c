/* Measures operations of an MPI library alone, for comparison with ctrain's communicator mpi (bench/vs_library.py).
 *
 *     mpirun -n 2 mpi_ops_NAME single|serialized OPERATION BYTES...
 *
 * "single" initializes MPI for programs without threads, like the OSU micro-benchmarks. "serialized" permits calls of
 * different threads, one at a time, as ctrain needs; in Open MPI, all calls then take longer.
 * The operations and their vectors are those of `ctrain bench comm`: fp32, all-reduce and reduce in place. With "i" in
 * front of the name (iallreduce), the nonblocking operation of MPI is started and waited for at once, as by
 * osu_iallreduce of the OSU micro-benchmarks. Rank 0 prints lines "BYTES MICROSECONDS". BYTES is the size of the
 * complete vector. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/median_time.h"

struct vectors {
	int rank, size, n; /* n elements per rank */
	float *a, *b;
};

static void allreduce(void *user)
{
	const struct vectors *v = user;

	MPI_Allreduce(MPI_IN_PLACE, v->a, v->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(void *user)
{
	const struct vectors *v = user;

	if (v->rank == 0)
		MPI_Reduce(MPI_IN_PLACE, v->a, v->n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
	else
		MPI_Reduce(v->a, NULL, v->n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void broadcast(void *user)
{
	const struct vectors *v = user;

	MPI_Bcast(v->a, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void allgather(void *user)
{
	const struct vectors *v = user;

	MPI_Allgather(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void gather(void *user)
{
	const struct vectors *v = user;

	MPI_Gather(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(void *user)
{
	const struct vectors *v = user;

	MPI_Scatter(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void reduce_scatter(void *user)
{
	const struct vectors *v = user;

	MPI_Reduce_scatter_block(v->a, v->b, v->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void sendrecv(void *user)
{
	const struct vectors *v = user;

	MPI_Sendrecv(v->a, v->n, MPI_FLOAT, (v->rank + 1) % v->size, 0, v->b, v->n, MPI_FLOAT,
		     (v->rank + v->size - 1) % v->size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(void *user)
{
	(void)user;
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- nonblocking */

static void wait_for(MPI_Request *r)
{
	MPI_Wait(r, MPI_STATUS_IGNORE);
}

static void iallreduce(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Iallreduce(MPI_IN_PLACE, v->a, v->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void ireduce(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	if (v->rank == 0)
		MPI_Ireduce(MPI_IN_PLACE, v->a, v->n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD, &r);
	else
		MPI_Ireduce(v->a, NULL, v->n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void ibroadcast(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Ibcast(v->a, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void iallgather(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Iallgather(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void igather(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Igather(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void iscatter(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Iscatter(v->a, v->n, MPI_FLOAT, v->b, v->n, MPI_FLOAT, 0, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void ireduce_scatter(void *user)
{
	const struct vectors *v = user;
	MPI_Request r;

	MPI_Ireduce_scatter_block(v->a, v->b, v->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static void isendrecv(void *user)
{
	const struct vectors *v = user;
	MPI_Request receive, send;

	MPI_Irecv(v->b, v->n, MPI_FLOAT, (v->rank + v->size - 1) % v->size, 0, MPI_COMM_WORLD, &receive);
	MPI_Isend(v->a, v->n, MPI_FLOAT, (v->rank + 1) % v->size, 0, MPI_COMM_WORLD, &send);
	wait_for(&receive);
	wait_for(&send);
}

static void ibarrier(void *user)
{
	MPI_Request r;

	(void)user;
	MPI_Ibarrier(MPI_COMM_WORLD, &r);
	wait_for(&r);
}

static const struct operation {
	const char *name;
	void (*once)(void *user);
	int in_parts; /* the vector consists of one part per rank */
} operations[] = {
	{"allreduce", allreduce, 0},
	{"iallreduce", iallreduce, 0},
	{"reduce", reduce, 0},
	{"ireduce", ireduce, 0},
	{"broadcast", broadcast, 0},
	{"ibroadcast", ibroadcast, 0},
	{"allgather", allgather, 1},
	{"iallgather", iallgather, 1},
	{"gather", gather, 1},
	{"igather", igather, 1},
	{"scatter", scatter, 1},
	{"iscatter", iscatter, 1},
	{"sendrecv", sendrecv, 0},
	{"isendrecv", isendrecv, 0},
	{"barrier", barrier, 0},
	{"ibarrier", ibarrier, 0},
	{"reduce_scatter", reduce_scatter, 1},
	{"ireduce_scatter", ireduce_scatter, 1},
};

static double largest(void *user, double value)
{
	double all;

	(void)user;
	MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

static double measure(struct vectors *v, const struct operation *o, size_t bytes)
{
	const struct library l = {v, o->once, largest};

	v->n = (int)(bytes / sizeof(float) / (size_t)(o->in_parts ? v->size : 1));
	return median_time_us(&l);
}

/* The same kind of memory as that of `ctrain bench comm`: one allocation for all sizes, because large ones have huge
 * pages. */
static void *vector_of(size_t bytes)
{
	void *p = ct_calloc_aligned(4096, bytes + 1);

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(p, 0, bytes + 1); /* pages that were never written are all the same page */
	return p;
}

int main(int argc, char **argv)
{
	const struct operation *o = NULL;
	const int serialized = argc > 1 && strcmp(argv[1], "serialized") == 0;
	struct vectors v = {0};
	size_t most = 0;
	int provided;

	for (size_t i = 0; argc > 2 && i < sizeof(operations) / sizeof(*operations); i++)
		o = strcmp(operations[i].name, argv[2]) == 0 ? &operations[i] : o;
	if (!o || (!serialized && strcmp(argv[1], "single") != 0)) {
		fprintf(stderr, "usage: mpirun -n N mpi_ops_NAME single|serialized OPERATION BYTES...\n");
		return 2;
	}
	MPI_Init_thread(&argc, &argv, serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &v.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &v.size);
	for (int i = 3; i < argc; i++) {
		const size_t bytes = strtoul(argv[i], NULL, 10);

		most = bytes > most ? bytes : most;
	}
	v.a = vector_of(most);
	v.b = vector_of(most);
	for (int i = 3; i < argc; i++) {
		const size_t bytes = strtoul(argv[i], NULL, 10);
		const double us = measure(&v, o, bytes);

		if (v.rank == 0)
			printf("%zu %.3f\n", bytes, us);
	}
	ct_free_aligned(v.b);
	ct_free_aligned(v.a);
	MPI_Finalize();
	return 0;
}
