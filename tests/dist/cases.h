/* What every communicator must do when ranks disagree, are late, end or abort: one list of cases for all of them. A
 * communicator that lacks a case states why in cases.c. conform.h tests the results. */
#ifndef CT_TESTS_DIST_CASES_H
#define CT_TESTS_DIST_CASES_H

#include "tests/dist/scene.h"

#define N_CASE_RANKS 3

struct comm_case {
	const char *name;
	rank_fn fn; /* its argument is a struct scene */
	int variant;
	int64_t timeout_ns;
	int n_lost; /* ranks that do not exit with 0 */
};

/* A communicator, and how the cases use it. */
struct subject {
	const char *name;
	const char *backend;
	const int *nodes; /* the host of each rank; NULL: one host */
	bool gpu;         /* buffers are memory of a GPU */
	bool posted;      /* all-reduces and broadcasts are posted to a stream of that GPU */
};

/* Runs all cases with N_CASE_RANKS ranks, which run_case starts, and prints why the others are absent. */
void run_cases(const struct subject *s, void (*run_case)(const struct subject *s, const struct comm_case *k));
/* Forks the ranks. */
void fork_case(const struct subject *s, const struct comm_case *k);
/* Returns NULL if there is no such case. */
const struct comm_case *find_case(const char *name);

#endif
