/* Tests of faults in a communicator: one rank causes the fault, and the others check what they observe. */
#ifndef CT_TESTS_DIST_SCENE_H
#define CT_TESTS_DIST_SCENE_H

#include "dist/comm/comm.h"
#include "tests/dist/ranks.h"

#define LONG (60 * CT_SEC)

/* The argument of the functions that ranks run. */
struct scene {
	const char *backend;
	int64_t timeout_ns;
	int variant;
	bool gpu, posted; /* struct subject (cases.h) */
	int *outcome;     /* [MAX_RANKS] the statuses with which the ranks ended */
};

/* The host indexes of three ranks on two hosts. */
extern const int two_hosts[3];

/* Runs fn in `size` ranks and checks that exactly `bad` of them do not exit with 0. outcome [MAX_RANKS] may be NULL. */
void play(const char *backend, int size, const int *nodes, int64_t timeout_ns, rank_fn fn, int variant, int bad,
	  int *outcome);
ct_comm *open_comm(struct ct_world *w, const struct scene *s);
/* Waits for an operation; `posted` is the status of posting it. */
enum ct_status run(enum ct_status posted, ct_work **w);
enum ct_status barrier(ct_comm *c);
/* Returns whether the last error message contains the text. */
bool says(const char *text);
/* Checks that all calls return the error with which the communicator has ended, whose status is `st`. */
void is_dead(ct_comm *c, enum ct_status st);

#endif
