/* The state of the mpi communicator, which mpi.c and messages.c share. */
#ifndef CT_DIST_COMM_MPI_MPI_IMPL_H
#define CT_DIST_COMM_MPI_MPI_IMPL_H

#include "dist/comm/comm_impl.h"
#include "dist/comm/mpi/collective.h"
#include "dist/comm/mpi/exchange.h"

/* Pieces of collectives that are under way at the same time. */
#define WINDOW 2
/* Indexes of ct_work.scratch. */
enum { TAG, N_PIECES, STARTED, FINISHED, EXCHANGE };

struct slot {
	struct ct_mpi_piece piece;
	struct ct_mpi_exchange *exchange;
	ct_work *work; /* NULL: idle */
	int tag;
};

struct comm_mpi {
	struct ct_comm base;
	const struct ct_mpi_module *module;
	struct ct_mpi_engine *engine;
	struct ct_rings *rings; /* NULL: not available */
	struct ct_mpi_exchanges *exchanges;
	uint64_t n_tags;
	unsigned n_calls;
	int eager_polls, calls_at_start;
	struct ct_mpi_message *messages; /* [2 * (size - 1)] */
	uint8_t *n_sent;                 /* [size] messages to each rank since the last one that waited */
	struct slot slots[WINDOW];
	uint64_t n_pieces;      /* pieces started so far; piece k uses slots[k % WINDOW] */
	ct_work *head, *tail;   /* collectives that are not done */
	ct_work *starting;      /* the first of them with pieces that have not started */
	ct_work *first_message; /* list of messages that are not done, in any order */
};

/* Marks an operation as done. now_ns: the time, or 0 if the caller has not read the clock. */
void ct__mpi_set_done(ct_work *w, int64_t now_ns);

/* messages.c: starts a message, and continues those that are not done. *moved is set if one of them has ended. */
enum ct_status ct__mpi_post_message(struct comm_mpi *m, ct_work *w) CT_MUST_CHECK;
enum ct_status ct__mpi_advance_messages(struct comm_mpi *m, int calls, bool *moved) CT_MUST_CHECK;

#endif
