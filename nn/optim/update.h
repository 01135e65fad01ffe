/* What an engine needs to run an optimizer's update: fixed when the optimizer is created, but for the learning rate and the number of
 * the update. Formulas: nn/optim/optim.h. */
#ifndef CT_NN_OPTIM_UPDATE_H
#define CT_NN_OPTIM_UPDATE_H

#include "nn/optim/optim.h"

enum { CT_OPTIM_MAX_STATES = 2 };

/* A range of the arenas that is treated alike: neighboring slices, or one slice with a trust ratio of its own. Segments cover the
 * padding between slices as well: it is zero and stays zero. */
struct ct_segment {
	size_t offset, n;
	bool decay, adapt;
	int64_t first_chunk, n_chunks;
};

/* At most CT_CHUNK_ELEMS elements of a segment: the unit of work of a thread. Sums over a segment are sums of chunks in order, so
 * that they do not depend on the number of threads. */
struct ct_chunk {
	size_t offset, n;
	int segment;
};
enum { CT_CHUNK_ELEMS = 1 << 16 };

struct ct_update {
	struct ct_optim_opts opts;
	int n_states, n_segments;
	int64_t n_chunks;
	const struct ct_segment *segments;
	const struct ct_chunk *chunks;
	ct_arena *state[CT_OPTIM_MAX_STATES];
	const ct_arena *loss; /* NULL: not watched */
	size_t loss_at;
	ct_arena *result; /* CT_F32 [CT_UPDATE_RESULTS] */
	/* Scratch of the host's pass. */
	double *sums;          /* [2 * n_chunks] */
	struct ct_factors *of; /* [n_segments] */
};

/* What differs between the segments of one update. */
struct ct_factors {
	float clip, weight_decay, shrink, step;
};

#endif
