/* How the programs that measure a library alone take the time of an operation: in the same way as `ctrain bench comm`
 * (dist/bench_comm.c), so that the results can be compared. */
#ifndef CT_BENCH_MEDIAN_TIME_H
#define CT_BENCH_MEDIAN_TIME_H

#ifdef __cplusplus
extern "C" {
#endif

struct library {
	void *user;
	/* Runs an operation once. */
	void (*once)(void *user);
	/* Returns the largest of the values of all ranks. Collective. */
	double (*largest)(void *user, double value);
};

/* Returns the largest of the ranks' median times in microseconds, over as many iterations as 200 ms allow, but at least
 * 5 and at most 2000. Collective. */
double median_time_us(const struct library *l);

#ifdef __cplusplus
}
#endif
#endif
