/* Real processes as ranks of a world, for tests of dist: a process that serves the store, and N forked ranks. The test
 * chooses which ranks are on the same host. */
#ifndef CT_TESTS_DIST_RANKS_H
#define CT_TESTS_DIST_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "dist/rendezvous/rendezvous.h"

#define MAX_RANKS 8

/* A function that runs in the process of a rank. The rank succeeds if the function returns; a failed CHECK ends the
 * process with exit code 1. */
typedef void (*rank_fn)(struct ct_world *w, void *arg);

/* Runs fn in `size` ranks. nodes [size] contains the host index of each rank; if it is NULL, all ranks are on one host.
 * status [size], if not NULL, receives the wait status of each rank. Returns the number of ranks that did not exit with
 * 0. Ranks that are still stopped when all others have ended are killed. */
int run_ranks(int size, const int *nodes, rank_fn fn, void *arg, int *status);
/* The process that serves the store. */
struct test_store {
	pid_t server;
	int port, life_fd; /* it ends when life_fd is closed */
};
void test_store_start(struct test_store *s);
void test_store_stop(struct test_store *s);
/* What a rank does: makes its world, calls fn, and exits. */
void be_rank(int rank, int size, int port, const int *nodes, rank_fn fn, void *arg);
/* Returns true if this build has this communicator back end; otherwise prints the reason. */
bool comm_built(const char *backend);
/* Allocates zeroed memory that is shared with ranks forked later. It is never freed. */
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
