/* Measures the round trip of a cache line between CPUs 0 and 1, to which mpirun binds the first two ranks, in
 * nanoseconds. The time of a small message on one host depends on it. In a virtual machine it may change by a factor of
 * five whenever the host moves the virtual CPUs. Therefore bench/vs_library.py repeats comparisons during which it has
 * changed. */
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"

#define TRIPS 1000
#define ROUNDS 200

static alignas(128) _Atomic int turn;

static void bind_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* Without the permission, the scheduler selects the CPU. */
	(void)sched_setaffinity(0, sizeof(set), &set);
}

static void take_turn(int number)
{
	while (atomic_load_explicit(&turn, memory_order_acquire) != number)
		;
	atomic_store_explicit(&turn, number + 1, memory_order_release);
}

static void *answer(void *unused)
{
	(void)unused;
	bind_to(1);
	for (int i = 0; i < ROUNDS * TRIPS; i++)
		take_turn(2 * i + 1);
	return NULL;
}

int main(void)
{
	int64_t least = INT64_MAX;
	pthread_t thread;

	bind_to(0);
	if (pthread_create(&thread, NULL, answer, NULL) != 0)
		return 1;
	/* Other processes only make rounds longer, so the least time is the right one. */
	for (int round = 0; round < ROUNDS; round++) {
		const int64_t start = ct_now_ns();
		int64_t ns;

		for (int i = 0; i < TRIPS; i++)
			take_turn(2 * (round * TRIPS + i));
		ns = ct_now_ns() - start;
		least = ns < least ? ns : least;
	}
	pthread_join(thread, NULL);
	printf("%.0f\n", (double)least / TRIPS);
	return 0;
}
