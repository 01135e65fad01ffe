/* The conformance suite of communicators. It compares all collectives, types, reductions and odd sizes with simple
 * loops, exactly, because the data are integers. It also tests order, overlap and bitwise equality. */
#ifndef CT_TESTS_DIST_CONFORM_H
#define CT_TESTS_DIST_CONFORM_H

#include "tests/dist/ranks.h"

struct suite {
	const char *backend;
	uint64_t *digests; /* [2][MAX_RANKS] of the random sums of two runs */
	bool *unsupported; /* [MAX_RANKS]: the communicator is not for this world */
	int run;
};

/* Runs the suite in one rank; arg is a struct suite. Run 1 only computes the digests again. */
void conform(struct ct_world *world, void *arg);
/* Forks `size` ranks that run the suite twice, with equal digests; nodes is as for run_ranks. Returns false if the
 * communicator is not for such a world, on which all ranks must agree. */
bool run_suite(const char *backend, int size, const int *nodes);

#endif
