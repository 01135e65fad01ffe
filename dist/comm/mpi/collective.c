/* Both sides compute the messages of a phase from the same formulas: for each send of one rank there is a receive of
 * the same length on the other. Everything that decides about messages (length of pieces, bounds of slices, `small`)
 * depends only on the operation and the number of ranks, and is therefore equal on all ranks. Slices of a piece are
 * bounded by n q / size, so they cover it also if the number of elements is not a multiple. Empty messages are
 * exchanged as well.
 *
 * Inputs of a reduction are received into the scratch memory in rank order, except for the own one, which stays in the
 * vector. The reduction runs when all messages of its phase are done, and the second phase sends its result. */
#include "dist/comm/mpi/collective.h"

#include <string.h>

/* Bytes that a piece reduces at once, over all ranks. */
#define PIECE_BYTES ((size_t)4 << 20)
/* Up to this many bytes in all messages that a rank receives, one phase is faster than two. */
#define SMALL_BYTES ((size_t)8 << 10)

static char *at(const void *base, size_t elements, size_t elem)
{
	return (char *)(uintptr_t)base + elements * elem;
}

/* Elements in front of slice q. */
static size_t slice_start(const struct ct_mpi_piece *p, int q)
{
	return p->n * (size_t)q / (size_t)p->size;
}

static size_t slice_len(const struct ct_mpi_piece *p, int q)
{
	return slice_start(p, q + 1) - slice_start(p, q);
}

static char *slice_at(const struct ct_mpi_piece *p, int q)
{
	return at(p->work->dst, p->first + slice_start(p, q), p->elem);
}

/* The piece in the part of rank q of a vector [size,n]. */
static char *part_at(const struct ct_mpi_piece *p, const void *base, int q)
{
	return at(base, (size_t)q * p->work->n + p->first, p->elem);
}

/* Where the q-th input of a reduction of n elements is received. The own one is not received. */
static char *input_at(const struct ct_mpi_piece *p, int q, size_t n)
{
	return at(p->scratch, (size_t)(q - (q > p->rank)) * n, p->elem);
}

size_t ct__mpi_scratch_bytes(int size)
{
	/* Slices are rounded up to elements of at most 8 bytes. */
	return PIECE_BYTES + SMALL_BYTES + 8 * (size_t)size;
}

static size_t piece_len(const ct_work *w, int size)
{
	size_t len = PIECE_BYTES / ct_dtype_bytes(w->dtype);

	if (w->kind == CT_COMM_REDUCE_SCATTER)
		len /= (size_t)size;
	return len > 0 ? len : 1;
}

size_t ct__mpi_n_pieces(const ct_work *w, int size)
{
	size_t len = piece_len(w, size);

	return w->n <= len ? 1 : (w->n + len - 1) / len;
}

void ct__mpi_piece_init(struct ct_mpi_piece *p, size_t k)
{
	size_t len = piece_len(p->work, p->size);

	p->first = k * len;
	p->n = p->work->n - p->first < len ? p->work->n - p->first : len;
	p->phase = 0;
	p->elem = ct_dtype_bytes(p->work->dtype);
	p->small = p->n * p->elem * (size_t)(p->size - 1) <= SMALL_BYTES;
}

/* All-reduce, reduce and broadcast. Two ranks have no use for slices of a broadcast. */
static bool has_one_phase(const struct ct_mpi_piece *p)
{
	return p->small || (p->work->kind == CT_COMM_BROADCAST && p->size == 2);
}

int ct__mpi_n_phases(const struct ct_mpi_piece *p)
{
	switch (p->work->kind) {
	case CT_COMM_ALLREDUCE:
	case CT_COMM_REDUCE:
	case CT_COMM_BROADCAST:
		return has_one_phase(p) ? 1 : 2;
	default:
		return 1;
	}
}

/* ---- the messages of the first phase */

struct list {
	const struct ct_mpi_piece *p;
	struct ct_mpi_message *m;
	size_t n;
};

static void send_to(struct list *l, int peer, void *buf, size_t n)
{
	l->m[l->n++] = (struct ct_mpi_message){.buf = buf, .bytes = n * l->p->elem, .peer = peer, .sending = true};
}

static void receive_from(struct list *l, int peer, void *buf, size_t n)
{
	l->m[l->n++] = (struct ct_mpi_message){.buf = buf, .bytes = n * l->p->elem, .peer = peer};
}

/* Every rank reduces its slice. */
static void exchange_slices(struct list *l, int q)
{
	const struct ct_mpi_piece *p = l->p;
	size_t own = slice_len(p, p->rank);

	receive_from(l, q, input_at(p, q, own), own);
	send_to(l, q, slice_at(p, q), slice_len(p, q));
}

static void exchange_all(struct list *l, int q)
{
	const struct ct_mpi_piece *p = l->p;

	receive_from(l, q, input_at(p, q, p->n), p->n);
	send_to(l, q, at(p->work->dst, p->first, p->elem), p->n);
}

static void spread(struct list *l, int q)
{
	const struct ct_mpi_piece *p = l->p;
	char *all = at(p->work->dst, p->first, p->elem);
	bool small = has_one_phase(p);

	if (p->work->root == p->rank)
		send_to(l, q, small ? all : slice_at(p, q), small ? p->n : slice_len(p, q));
	else if (p->work->root == q)
		receive_from(l, q, small ? all : slice_at(p, p->rank), small ? p->n : slice_len(p, p->rank));
}

static void first_phase(struct list *l, int q)
{
	const struct ct_mpi_piece *p = l->p;
	const ct_work *w = p->work;
	size_t elem = p->elem;

	switch (w->kind) {
	case CT_COMM_ALLREDUCE:
		if (p->small)
			exchange_all(l, q);
		else
			exchange_slices(l, q);
		return;
	case CT_COMM_REDUCE:
		if (!p->small)
			exchange_slices(l, q);
		else if (w->root == p->rank)
			receive_from(l, q, input_at(p, q, p->n), p->n);
		else if (w->root == q)
			send_to(l, q, at(w->dst, p->first, elem), p->n);
		return;
	case CT_COMM_REDUCE_SCATTER:
		receive_from(l, q, input_at(p, q, p->n), p->n);
		send_to(l, q, part_at(p, w->src, q), p->n);
		return;
	case CT_COMM_BROADCAST:
		spread(l, q);
		return;
	case CT_COMM_ALLGATHER:
		receive_from(l, q, part_at(p, w->dst, q), p->n);
		send_to(l, q, at(w->src, p->first, elem), p->n);
		return;
	case CT_COMM_GATHER:
		if (w->root == p->rank)
			receive_from(l, q, part_at(p, w->dst, q), p->n);
		else if (w->root == q)
			send_to(l, q, at(w->src, p->first, elem), p->n);
		return;
	case CT_COMM_SCATTER:
		if (w->root == p->rank)
			send_to(l, q, part_at(p, w->src, q), p->n);
		else if (w->root == q)
			receive_from(l, q, at(w->dst, p->first, elem), p->n);
		return;
	case CT_COMM_BARRIER:
		receive_from(l, q, p->scratch, 0);
		send_to(l, q, p->scratch, 0);
		return;
	case CT_COMM_SEND:
	case CT_COMM_RECV:
		break;
	}
	CT_ASSERT(!"a collective");
}

/* ---- the messages of the second phase: results of slices */

static void second_phase(struct list *l, int q)
{
	const struct ct_mpi_piece *p = l->p;
	const ct_work *w = p->work;
	/* The root of a broadcast has everything, and the root of a reduction needs everything. */
	bool receives = w->kind == CT_COMM_BROADCAST ? w->root != p->rank
			: w->kind == CT_COMM_REDUCE  ? w->root == p->rank
						     : true;
	bool sends = w->kind == CT_COMM_BROADCAST ? w->root != q : w->kind == CT_COMM_REDUCE ? w->root == q : true;

	if (receives)
		receive_from(l, q, slice_at(p, q), slice_len(p, q));
	if (sends)
		send_to(l, q, slice_at(p, p->rank), slice_len(p, p->rank));
}

size_t ct__mpi_phase_messages(const struct ct_mpi_piece *p, struct ct_mpi_message *m)
{
	struct list l = {p, m, 0};

	/* Every rank begins with another peer, so that no rank gets the messages of all others at once. */
	for (int i = 1; i < p->size; i++) {
		int q = (p->rank + i) % p->size;

		if (p->phase == 0)
			first_phase(&l, q);
		else
			second_phase(&l, q);
	}
	return l.n;
}

/* ---- the local part */

static void reduce_inputs(const struct ct_mpi_piece *p, void *own, void *out, size_t n)
{
	for (int q = 0; q < p->size; q++)
		p->inputs[q] = q == p->rank ? own : input_at(p, q, n);
	ct__reduce_ranks(p->inputs, p->size, &out, 1, n, p->work->dtype, p->work->op);
}

void ct__mpi_phase_finish(const struct ct_mpi_piece *p)
{
	const ct_work *w = p->work;
	size_t elem = p->elem;
	char *own;

	if (p->phase == 1)
		return;
	switch (w->kind) {
	case CT_COMM_ALLREDUCE:
	case CT_COMM_REDUCE:
		if (w->kind == CT_COMM_REDUCE && p->small && w->root != p->rank)
			return;
		if (p->small) {
			own = at(w->dst, p->first, elem);
			reduce_inputs(p, own, own, p->n);
		} else {
			own = slice_at(p, p->rank);
			reduce_inputs(p, own, own, slice_len(p, p->rank));
		}
		return;
	case CT_COMM_REDUCE_SCATTER:
		reduce_inputs(p, part_at(p, w->src, p->rank), at(w->dst, p->first, elem), p->n);
		return;
	case CT_COMM_ALLGATHER:
	case CT_COMM_GATHER:
		if ((w->kind == CT_COMM_ALLGATHER || w->root == p->rank) && p->n > 0)
			memcpy(part_at(p, w->dst, p->rank), at(w->src, p->first, elem), p->n * elem);
		return;
	case CT_COMM_SCATTER:
		if (w->root == p->rank && p->n > 0)
			memcpy(at(w->dst, p->first, elem), part_at(p, w->src, p->rank), p->n * elem);
		return;
	default:
		return;
	}
}
