/* A fault played by ranks on a communicator: what one rank does and what the others get to see. */
#ifndef CT_TESTS_DIST_SCENE_H
#define CT_TESTS_DIST_SCENE_H

#include "dist/comm/comm.h"
#include "tests/dist/ranks.h"

#define LONG (60 * CT_SEC)

/* The argument of the ranks' functions. */
struct scene {
	const char *backend;
	int64_t timeout_ns;
	int variant;
	int *outcome; /* [MAX_RANKS] statuses the ranks ended with */
};

/* Host indexes of three ranks on two hosts. */
extern const int two_hosts[3];

/* Runs fn by `size` ranks; `bad` of them must not end with 0. outcome (optional): [MAX_RANKS]. */
void play(const char *backend, int size, const int *nodes, int64_t timeout_ns, rank_fn fn, int variant, int bad,
	  int *outcome);
ct_comm *open_comm(struct ct_world *w, const struct scene *s);
/* Waits for what was posted with status `posted`. */
enum ct_status run(enum ct_status posted, ct_work **w);
enum ct_status barrier(ct_comm *c);
/* Is that in the last error's message? */
bool says(const char *text);
/* After the first error everything else ends with the same one. */
void is_dead(ct_comm *c, enum ct_status st);

#endif
