/* The bottleneck report: from the times of ranks to one sentence with the setting that would help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "trainer/run/metrics/bottleneck.h"

static void expect(const struct ct_bottleneck_facts *f, enum ct_bottleneck want, const char *text)
{
	struct ct_str out = {0};
	enum ct_bottleneck got = ct_bottleneck_report(f, &out);

	if (got != want || !strstr(ct_str_text(&out), text))
		fail_msg("%s: \"%s\" without \"%s\"", ct_bottleneck_name(got), ct_str_text(&out), text);
	ct_str_release(&out);
}

/* 100 s, 1000 images each. */
static const struct ct_rank_times calm = {.step_s = 100,
					  .data_s = 1,
					  .compute_s = 95,
					  .exposed_s = 2,
					  .loader_s = 50,
					  .loader_images = 1000,
					  .images = 1000};

static void test_compute(void **state)
{
	struct ct_rank_times r[2] = {calm, calm};
	struct ct_bottleneck_facts f = {
		.ranks = r, .world = 1, .steps = 10, .per_rank = 100, .loader_threads = 1, .cpus = 2, .flops = 2e9};

	(void)state;
	expect(&f, CT_BOTTLENECK_COMPUTE,
	       "bound by compute: 95 % of the time, data 1.0 %; 60 GFLOP/s on each rank; loading is not a bottleneck (2.0 times as fast as training)");
	f.world = 2;
	expect(&f, CT_BOTTLENECK_COMPUTE, "communication 2.0 %");
	/* One that had to wait while the other saved says nothing about training. */
	r[1].step_s += 1000;
	r[1].exposed_s += 1000;
	expect(&f, CT_BOTTLENECK_COMPUTE, "bound by compute: 95 % of the time, data 1.0 %, communication 2.0 %");
	r[1].step_s -= 1000;
	r[0].step_s = 0;
	expect(&f, CT_BOTTLENECK_COMPUTE, "");
	r[0].step_s = 100;
	f.steps = 0;
	expect(&f, CT_BOTTLENECK_COMPUTE, "");
}

static void test_data(void **state)
{
	struct ct_rank_times r[2] = {calm, calm};
	struct ct_bottleneck_facts f = {
		.ranks = r, .world = 1, .steps = 10, .per_rank = 100, .loader_threads = 2, .cpus = 8};

	(void)state;
	/* 7 images a second and thread; without waiting training would take 1000 in 69 s. */
	r[0].data_s = 31;
	r[0].compute_s = 68;
	r[0].loader_s = 1000 / 7.0;
	expect(&f, CT_BOTTLENECK_DATA,
	       "31 % of the time was spent waiting for batches; a thread loads 7 images/s, there are 2 threads, "
	       "and training could use 14 images/s: data.workers=3 would be enough");
	/* An image takes 68 ms of each of 6 threads and 143 ms of a loader's: 8 CPUs do 14.5 of them in a second. */
	f.compute_threads = 6;
	expect(&f, CT_BOTTLENECK_DATA, "data.workers=3 would give up to 14 images/s, because 8 CPUs must do both");
	f.compute_threads = 8;
	r[0].compute_s = 90;
	expect(&f, CT_BOTTLENECK_DATA,
	       "the 8 CPUs are already saturated by loading and compute: try less augmentation");
	f.encoded = true;
	expect(&f, CT_BOTTLENECK_DATA, "data.decode=fast");
	f.compute_threads = 1;
	f.loader_threads = 0;
	expect(&f, CT_BOTTLENECK_DATA,
	       "loading batches between steps; a thread loads 7 images/s, there are 0 threads, and training could use 14 images/s: "
	       "data.workers=3 would be enough");
	/* The other rank waits for gradients as long as this one waits for data. */
	f.loader_threads = 2;
	f.world = 2;
	r[0].data_s = r[1].exposed_s = 90;
	r[1].compute_s = 9;
	r[0].compute_s = 9;
	expect(&f, CT_BOTTLENECK_DATA, "rank 0 spent 90 % of its time waiting for batches");
}

static void test_communication(void **state)
{
	struct ct_rank_times r[2] = {calm, calm};
	struct ct_bottleneck_facts f = {
		.ranks = r, .world = 2, .steps = 1000, .per_rank = 10, .loader_threads = 2, .cpus = 8};

	(void)state;
	for (int i = 0; i < 2; i++) {
		r[i].compute_s = 75;
		r[i].exposed_s = 20 + 2 * i;
	}
	/* 20 ms of waiting are 5 % of a step whose rest takes 380 ms: 4.75 times as long as now. */
	expect(&f, CT_BOTTLENECK_COMM,
	       "spent 20 % of the time (20.0 ms per step) waiting for gradients; to get below 5 %: batch.per_rank=48 instead of 10, or train.accumulate=5");
}

/* The gradients are small, so they cannot be what the ranks wait for. */
static void test_waiting(void **state)
{
	struct ct_rank_times r[2] = {calm, calm};
	struct ct_bottleneck_facts f = {.ranks = r,
					.world = 2,
					.steps = 1000,
					.per_rank = 10,
					.cpus = 8,
					.reduced_bytes = 115343, /* 0.11 MiB */
					.n_buckets = 1,
					.one_host = true};

	(void)state;
	for (int i = 0; i < 2; i++) {
		r[i].compute_s = 75;
		r[i].exposed_s = 20 + 2 * i;
	}
	expect(&f, CT_BOTTLENECK_WAITING,
	       "bound by waiting: all ranks spent 20 % of the time (20.0 ms per step) waiting for each other, but to sum their "
	       "gradients (113 KiB) takes less than 0.7 ms");
	/* 200 MiB take this long, and so does a small sum over a slow network. */
	f.reduced_bytes = 200 << 20;
	expect(&f, CT_BOTTLENECK_COMM, "bound by communication");
	f.reduced_bytes = 1 << 20;
	f.one_host = false;
	expect(&f, CT_BOTTLENECK_COMM, "bound by communication");
	f.reduced_bytes = 1000;
	expect(&f, CT_BOTTLENECK_WAITING, "takes less than 5.0 ms");
}

static void test_slow_rank(void **state)
{
	struct ct_rank_times r[3] = {calm, calm, calm};
	struct ct_bottleneck_facts f = {
		.ranks = r, .world = 3, .steps = 1000, .per_rank = 10, .loader_threads = 2, .cpus = 8};

	(void)state;
	r[0].compute_s = r[2].compute_s = 57;
	r[0].exposed_s = r[2].exposed_s = 42;
	r[1].compute_s = 97;
	expect(&f, CT_BOTTLENECK_RANK,
	       "bound by rank 1: it computes for 97.0 ms per step, but the others only for 57.0 ms, and they wait 40 % of the time; "
	       "if it were as fast as the others, training would process 50 images/s instead of 30");
}

/* Two ranks on two CPUs that two busy loops of another program share: what looks like communication is not. */
static void test_other_programs(void **state)
{
	struct ct_rank_times r[2] = {calm, calm};
	struct ct_bottleneck_facts f = {
		.ranks = r, .world = 2, .steps = 1000, .per_rank = 64, .cpus = 1, .local_world = 2, .host_cpus = 2};

	(void)state;
	for (int i = 0; i < 2; i++)
		r[i] = (struct ct_rank_times){.step_s = 100,
					      .compute_s = 70,
					      .exposed_s = 29,
					      .images = 1000,
					      .wall_s = 100,
					      .queued_s = 45 + i,
					      .own_s = 52,
					      .host_s = 200};
	expect(&f, CT_BOTTLENECK_OTHERS,
	       "bound by other programs: they used 48 % of the 2 CPUs; rank 1 was ready to run, but had no CPU, for 46 %");
	/* Ranks that wait for each other's CPUs do not wait for other programs, */
	r[0].own_s = r[1].own_s = 98;
	expect(&f, CT_BOTTLENECK_COMM, "bound by communication");
	/* and neither are programs that use CPUs which no rank waits for. */
	r[0].own_s = r[1].own_s = 52;
	r[0].queued_s = r[1].queued_s = 5;
	expect(&f, CT_BOTTLENECK_COMM, "bound by communication");
	/* Several hosts: the share is of the rank's own. */
	f.local_world = 1;
	f.host_cpus = 4;
	r[1].queued_s = 40;
	expect(&f, CT_BOTTLENECK_OTHERS, "they used 37 % of the 4 CPUs of its host; rank 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compute),   cmocka_unit_test(test_data),    cmocka_unit_test(test_communication),
		cmocka_unit_test(test_slow_rank), cmocka_unit_test(test_waiting), cmocka_unit_test(test_other_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
