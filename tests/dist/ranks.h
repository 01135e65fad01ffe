/* Real processes as ranks of a world, for tests of dist: a store server process, N forked ranks, each with a ct_world
 * of its own making (hosts are whatever the test says). */
#ifndef CT_TESTS_DIST_RANKS_H
#define CT_TESTS_DIST_RANKS_H

#include <stdio.h>
#include <stdlib.h>

#include "dist/rendezvous/rendezvous.h"

#define MAX_RANKS 8

/* Runs in a rank's process. Returning is success; a failed CHECK ends the process with 1. */
typedef void (*rank_fn)(struct ct_world *w, void *arg);

/* nodes: [size] host index per rank, NULL: one host. status (optional): [size] wait statuses. Returns how many ranks
 * did not exit with 0. Ranks that are stopped when all others have ended are killed. */
int run_ranks(int size, const int *nodes, rank_fn fn, void *arg, int *status);
/* Is that communicator in this build? Prints why not. */
bool comm_built(const char *backend);
/* Zeroed memory shared with the ranks forked later; never freed. */
void *shared_zeroed(size_t bytes);

#define CHECK(cond)                                                                                            \
	do {                                                                                                   \
		if (!(cond)) {                                                                                 \
			fprintf(stderr, "%s:%d: pid %d: %s: [%s]\n", __FILE__, __LINE__, (int)getpid(), #cond, \
				ct_error_message());                                                           \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

#endif
