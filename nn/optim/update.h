/* The data that an engine needs to run an update of an optimizer. It is fixed when the optimizer is created; only the
 * learning rate and the number of the update change. The formulas are in nn/optim/optim.h. */
#ifndef CT_NN_OPTIM_UPDATE_H
#define CT_NN_OPTIM_UPDATE_H

#include "nn/optim/optim.h"

enum { CT_OPTIM_MAX_STATES = 2 };

/* A range of the arenas that is updated with the same settings: consecutive slices, or one slice with its own trust
 * ratio. Segments also cover the padding between slices, which is zero and stays zero. Frozen parameters are in no
 * segment. */
struct ct_segment {
	size_t offset, n;
	bool decay, adapt;
	double lr_factor;
	int64_t first_chunk, n_chunks;
};

/* A part of a segment, of at most CT_CHUNK_ELEMS elements. A chunk is the unit of work of a thread. To compute the sum
 * over a segment, the sums of its chunks are added in order, so that the result does not depend on the number of
 * threads. */
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
	const ct_arena *loss; /* NULL: not checked */
	size_t loss_at;
	enum ct_status (*sum_stages)(void *user, double *s); /* NULL: the net is the complete model */
	void *sum_stages_user;
	ct_arena *result; /* CT_F32 [CT_UPDATE_RESULTS] */
	void *impl;       /* data of the engine (update_open in nn/engine_impl.h) */
	/* Scratch memory of nn/optim/arena_ops.c. */
	double *sums;          /* [2 * n_chunks] */
	struct ct_factors *of; /* [n_segments] */
};

/* Coefficients that differ between the segments of one update. */
struct ct_factors {
	float clip, weight_decay, shrink;
	float step; /* the factor of the update: the learning rate, divided by Adam's bias correction or times a trust
		       ratio */
};

#endif
