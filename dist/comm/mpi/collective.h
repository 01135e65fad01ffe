/* How collectives are made of messages. A collective is cut into pieces, which bounds the memory that reductions need.
 * A piece has one or two phases. In a phase, every rank exchanges at most one message per direction with every other
 * rank.
 *
 * operation       phase 1                                   phase 2
 *   allreduce     slice q of my vector to rank q; reduce    my slice of the result to all
 *     small       my vector to all; reduce
 *   reduce        as for allreduce                          my slice of the result to the root
 *     small       my vector to the root, which reduces
 *   reduce_scatter  part q to rank q; reduce
 *   broadcast     from the root: slice q to rank q          my slice to all
 *     small       from the root: all to all
 *   allgather     my vector to all
 *   gather, scatter  to the root, from the root
 *   barrier       an empty message to all
 *
 * Reductions are computed here and not by MPI: elementwise in the order of ranks, like those of shm. So the results are
 * bitwise identical on all ranks, in every run, with every implementation of MPI, and on shm. The functions have no
 * side effects except on the buffers. */
#ifndef CT_DIST_COMM_MPI_COLLECTIVE_H
#define CT_DIST_COMM_MPI_COLLECTIVE_H

#include "dist/comm/comm_impl.h"
#include "dist/comm/mpi/mpi_engine.h"

struct ct_mpi_piece {
	const ct_work *work;
	int rank, size;
	size_t first, n; /* elements of the vector, or of each part of it */
	size_t elem;     /* bytes of an element */
	bool small;      /* the messages are short, and one phase is faster than two */
	int phase;       /* 0 or 1 */
	char *scratch;   /* [ct__mpi_scratch_bytes] */
	void **inputs;   /* [size] */
};

size_t ct__mpi_scratch_bytes(int size);
/* The number of pieces of an operation, at least 1. */
size_t ct__mpi_n_pieces(const ct_work *w, int size);
/* Sets first, n and phase for piece k of p->work. */
void ct__mpi_piece_init(struct ct_mpi_piece *p, size_t k);
int ct__mpi_n_phases(const struct ct_mpi_piece *p);
/* Writes the messages of the phase to m [2 * (size - 1)], except same_host, and returns their number. */
size_t ct__mpi_phase_messages(const struct ct_mpi_piece *p, struct ct_mpi_message *m);
/* Does the local part of a phase whose messages are done. */
void ct__mpi_phase_finish(const struct ct_mpi_piece *p);

#endif
