/* The simulation of steps on a cluster: times that are computed by hand, relations between times, and the parsers. */
#include "tests/base/check.h"
#include "trainer/tools/estimate/simulate.h"

#define US 1e-6
#define MS 1e-3
#define GB 1e9
#define PER_MB (1000 * 1000 / 4) /* fp32 elements */

#define NEAR(a, b) assert_true((a) > (b) - 1e-9 && (a) < (b) + 1e-9)

static const struct ct_sim_link fast = {"fast", 0, 1 * US, 2 * US, 10 * GB};
static const struct ct_sim_link slow = {"slow", 0, 10 * US, 20 * US, 1 * GB};

static struct ct_sim_cluster cluster(int nodes, int devices, enum ct_sim_algorithm a)
{
	return (struct ct_sim_cluster){nodes, devices, fast, slow, a};
}

static double allreduce(int nodes, int devices, enum ct_sim_algorithm a, double bytes)
{
	const struct ct_sim_cluster c = cluster(nodes, devices, a);

	return ct_sim_allreduce(&c, bytes);
}

static void test_ring(void **state)
{
	(void)state;
	NEAR(allreduce(1, 1, CT_SIM_RING, 4e6), 0);
	NEAR(allreduce(4, 1, CT_SIM_RING, 4e6), 2 * 3 * 10 * US + 2 * 0.75 * 4 * MS);
	NEAR(allreduce(1, 4, CT_SIM_RING, 4e6), 2 * 3 * 1 * US + 2 * 0.75 * 0.4 * MS);
	/* Of the 14 hops of 8 ranks, 2 are between the nodes. */
	NEAR(allreduce(2, 4, CT_SIM_RING, 8e6), 12 * 1 * US + 2 * 10 * US + 2 * 0.875 * 8 * MS);
}

static void test_tree(void **state)
{
	(void)state;
	NEAR(allreduce(1, 1, CT_SIM_TREE, 4e6), 0);
	NEAR(allreduce(1, 4, CT_SIM_TREE, 4e6), 2 * 3 * 2 * US + 2 * 4e6 / (0.92 * 10 * GB));
	NEAR(allreduce(5, 2, CT_SIM_TREE, 4e6), 2 * (1 * 2 * US + 3 * 20 * US) + 2 * 4e6 / (0.92 * GB));
}

static void test_hier(void **state)
{
	(void)state;
	NEAR(allreduce(1, 4, CT_SIM_HIER, 4e6), allreduce(1, 4, CT_SIM_RING, 4e6));
	NEAR(allreduce(3, 1, CT_SIM_HIER, 4e6), allreduce(3, 1, CT_SIM_RING, 4e6));
	NEAR(allreduce(3, 2, CT_SIM_HIER, 4e6), 2 * (1 * US + 0.4 * MS) + allreduce(3, 1, CT_SIM_RING, 4e6));
}

static void test_fastest(void **state)
{
	(void)state;
	/* The tree has fewer hops, and the ring uses the complete bandwidth. */
	NEAR(allreduce(64, 8, CT_SIM_FASTEST, 4e3), allreduce(64, 8, CT_SIM_TREE, 4e3));
	NEAR(allreduce(2, 8, CT_SIM_FASTEST, 4e8), allreduce(2, 8, CT_SIM_RING, 4e8));
}

static void test_fixed_part(void **state)
{
	struct ct_sim_cluster c = cluster(2, 2, CT_SIM_RING);

	(void)state;
	const double before = ct_sim_allreduce(&c, 4e6);
	c.intra.base_s = 5 * US;
	c.inter.base_s = 14 * US;
	NEAR(ct_sim_allreduce(&c, 4e6), before + 14 * US);
}

/* Gradients of 4 MB, 2 MB and 4 MB, final after 50 %, 60 % and 100 % of the backward pass. */
static const struct ct_bucket_slice slices[] = {
	{0, 4 * PER_MB, CT_F32}, {4 * PER_MB, 2 * PER_MB, CT_F32}, {6 * PER_MB, 4 * PER_MB, CT_F32}};
static const double ready[] = {0.5, 0.6, 1};

static struct ct_sim_work work(void)
{
	return (struct ct_sim_work){.forward_s = 10 * MS,
				    .backward_s = 20 * MS,
				    .optim_s = 3 * MS,
				    .accumulate = 1,
				    .images = 64,
				    .slices = slices,
				    .ready = ready,
				    .n_slices = 3,
				    .first_cap_bytes = 1,
				    .cap_bytes = 1};
}

static struct ct_sim_result step(const struct ct_sim_work *w, int nodes)
{
	struct ct_sim_cluster c = cluster(nodes, 1, CT_SIM_RING);
	struct ct_sim_result r;

	c.inter.ring_s = 0;
	assert_ok(ct_sim_step(w, &c, &r));
	return r;
}

static void test_one_rank(void **state)
{
	const struct ct_sim_work w = work();
	const struct ct_sim_result r = step(&w, 1);

	(void)state;
	NEAR(r.step_s, 33 * MS);
	NEAR(r.exposed_s, 0);
	NEAR(r.comm_s, 0);
	NEAR(r.efficiency, 1);
	NEAR(r.images_per_s * 33 * MS, 64);
}

static void test_one_bucket_has_no_overlap(void **state)
{
	struct ct_sim_work w = work();

	(void)state;
	w.first_cap_bytes = 1 << 30;
	const struct ct_sim_result r = step(&w, 2);
	assert_int_equal(r.n_buckets, 1);
	NEAR(r.comm_s, 10 * MS);
	NEAR(r.exposed_s, 10 * MS);
	NEAR(r.step_s, 43 * MS);
	NEAR(r.efficiency, 33.0 / 43);
	NEAR(r.images_per_s * 43 * MS, 2 * 64);
}

static void test_overlap(void **state)
{
	struct ct_sim_work w = work();

	(void)state;
	/* Posted at 20, 22 and 30 ms; on the link from 20 to 24, from 24 to 26, and from 30 to 34 ms. */
	NEAR(step(&w, 2).exposed_s, 4 * MS);
	/* Of 4 ranks, each bucket takes 1.5 times as long: from 20 to 26, to 29, and from 30 to 36 ms. */
	NEAR(step(&w, 4).exposed_s, 6 * MS);
	/* With a backward pass of 5 ms, the buckets wait for each other: from 12.5 to 16.5, 18.5 and 22.5 ms. */
	w.backward_s = 5 * MS;
	NEAR(step(&w, 2).exposed_s, 7.5 * MS);
	NEAR(step(&w, 2).step_s, 25.5 * MS);
}

static void test_accumulate(void **state)
{
	struct ct_sim_work w = work();

	(void)state;
	w.accumulate = 3;
	w.images *= 3;
	NEAR(step(&w, 2).exposed_s, 4 * MS);
	NEAR(step(&w, 2).step_s, (3 * 30 + 4 + 3) * MS);
	NEAR(step(&w, 1).efficiency, 1);
	assert_true(step(&w, 1).images_per_s > 64 / (33 * MS)); /* fewer updates */
}

/* The first two gradients are reduced in 16 bits. */
static const struct ct_bucket_slice half_slices[] = {
	{0, 4 * PER_MB, CT_BF16}, {4 * PER_MB, 2 * PER_MB, CT_BF16}, {6 * PER_MB, 4 * PER_MB, CT_F32}};

static void test_16_bits(void **state)
{
	struct ct_sim_work w = work();

	(void)state;
	w.slices = half_slices;
	NEAR(step(&w, 2).comm_s, 7 * MS);
}

static void test_monotonic(void **state)
{
	const struct ct_sim_work w = work();
	double last = 0;

	(void)state;
	for (int nodes = 1; nodes <= 1024; nodes *= 2) {
		const struct ct_sim_result r = step(&w, nodes);

		assert_true(r.step_s >= last);
		assert_true(r.exposed_s <= r.comm_s + 1e-12);
		last = r.step_s;
	}
}

static double gain_of(const struct ct_sim_change *changes, int n, const char *setting)
{
	for (int i = 0; i < n; i++) {
		assert_true(i == 0 || changes[i].gain <= changes[i - 1].gain);
		if (strcmp(changes[i].setting, setting) == 0)
			return changes[i].gain;
	}
	fail_msg("no change %s", setting);
	return 0;
}

static void test_changes(void **state)
{
	struct ct_sim_work w = work(), half = work();
	struct ct_sim_cluster c = cluster(2, 1, CT_SIM_RING);
	struct ct_sim_change changes[CT_SIM_CHANGES];
	int n;

	(void)state;
	c.inter.ring_s = 0;
	/* With a backward pass of 5 ms, the last bucket ends 7.5 ms after it, and the step takes 25.5 ms. */
	w.backward_s = half.backward_s = 5 * MS;
	half.slices = half_slices;
	assert_ok(ct_sim_changes(&w, &half, &c, changes, &n));
	assert_int_equal(n, CT_SIM_CHANGES);
	/* The buckets are on the link from 12.5 to 14.5, to 15.5, and to 19.5 ms. */
	NEAR(gain_of(changes, n, "dist.reduce_dtype=bf16"), 25.5 / 22.5 - 1);
	/* From 25 to 29, to 31, to 35 ms. */
	NEAR(gain_of(changes, n, "batch.per_rank=128"), 2 * 25.5 / 38 - 1);
	/* From 27.5 to 31.5, to 33.5, to 37.5 ms. */
	NEAR(gain_of(changes, n, "train.accumulate=2"), 2 * 25.5 / 40.5 - 1);
	/* From 12.5 to 14.5, to 15.5, to 17.5 ms. */
	NEAR(gain_of(changes, n, "slow of twice the bandwidth"), 25.5 / 20.5 - 1);
	assert_ok(ct_sim_changes(&w, NULL, &c, changes, &n));
	assert_int_equal(n, CT_SIM_CHANGES - 1);
}

static void test_best_bucket(void **state)
{
	struct ct_sim_work w = work();
	struct ct_sim_cluster c = cluster(2, 1, CT_SIM_RING);
	struct ct_sim_change changes[CT_SIM_CHANGES];
	int n;

	(void)state;
	/* The first gradient is one bucket, and the other two are another one, of 6 MB. */
	w.first_cap_bytes = 1 << 20;
	w.cap_bytes = (size_t)100 << 20;
	c.inter.ring_s = 0;
	/* If all gradients are final at the end, the size does not matter. */
	w.ready = (const double[]){1, 1, 1};
	assert_ok(ct_sim_changes(&w, NULL, &c, changes, &n));
	NEAR(gain_of(changes, n, "dist.bucket_mib=100"), 0);
	/* Only the last gradient of 4 MB is exposed if it has a bucket of its own. */
	w.ready = (const double[]){0.1, 0.1, 1};
	assert_ok(ct_sim_changes(&w, NULL, &c, changes, &n));
	NEAR(gain_of(changes, n, "dist.bucket_mib=1"), 39.0 / 37 - 1);
}

static void test_links(void **state)
{
	static const char *const bad[] = {"",   "ib",  "ib400:", "ib400:0", "ib400:1.5", "ib400:8:8", "ib400:65",
					  "30", "30,", "30,0",   "-1,1",    "30,1,1",    "nan,1"};
	struct ct_sim_link l;

	(void)state;
	assert_ok(ct_sim_link_parse("--link-inter", "30,1.17", &l));
	NEAR(l.ring_s, 30 * US);
	NEAR(l.tree_s, 30 * US);
	NEAR(l.bytes_per_s / GB, 1.17);
	assert_ok(ct_sim_link_parse("--link-inter", "ib400:8", &l));
	assert_string_equal(l.name, "ib400:8");
	NEAR(l.bytes_per_s / GB, 8 * 47);
	assert_ok(ct_sim_link_parse("--link-inter", "ib400:64", &l));
	for (size_t i = 0; ct_sim_link_at(i); i++) {
		assert_ok(ct_sim_link_parse("--link-intra", ct_sim_link_at(i)->name, &l));
		assert_true(l.bytes_per_s > 0 && l.ring_s > 0 && l.tree_s > 0);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		assert_fails(ct_sim_link_parse("--link-inter", bad[i], &l), CT_USAGE, "--link-inter");
		assert_non_null(strstr(ct_error_message(), "nvlink4"));
	}
}

static void expect_shapes(const char *text, const char *want)
{
	struct ct_sim_shape s[CT_SIM_MAX_SHAPES];
	struct ct_str b = {0};
	int n;

	assert_ok(ct_sim_shapes_parse("--simulate", text, s, &n));
	for (int i = 0; i < n; i++)
		ct_str_addf(&b, "%s%dx%d", i > 0 ? " " : "", s[i].nodes, s[i].devices);
	assert_string_equal(ct_str_text(&b), want);
	ct_str_release(&b);
}

static void test_shapes(void **state)
{
	static const char *const bad[] = {"", "2", "2x", "x2", "0x1", "1x-1", "1x1,", "1x1 ", "1x1.."};
	struct ct_sim_shape s[CT_SIM_MAX_SHAPES];
	struct ct_str many = {0};
	int n;

	(void)state;
	expect_shapes("8x16", "8x16");
	expect_shapes("1x1,1x2,2x2", "1x1 1x2 2x2");
	expect_shapes("1x8..8x8", "1x8 2x8 4x8 8x8");
	expect_shapes("1x1..1x6,2x6..3x6", "1x1 1x2 1x4 1x6 2x6 3x6");
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_fails(ct_sim_shapes_parse("--simulate", bad[i], s, &n), CT_USAGE, "expected shapes");
	assert_fails(ct_sim_shapes_parse("--simulate", "1x1,1x1..2x2", s, &n), CT_USAGE,
		     "1x1,1x1..2x2: in the range 1x1..2x2, only one of the two numbers may change");
	assert_fails(ct_sim_shapes_parse("--simulate", "2x1..1x1", s, &n), CT_USAGE, "begin with the smaller");
	assert_fails(ct_sim_shapes_parse("--simulate", "99999x99999", s, &n), CT_USAGE, "more than 1048576 devices");
	for (int i = 0; i < CT_SIM_MAX_SHAPES; i++)
		ct_str_add(&many, i > 0 ? ",1x1" : "1x1");
	assert_ok(ct_sim_shapes_parse("--simulate", ct_str_text(&many), s, &n));
	assert_int_equal(n, CT_SIM_MAX_SHAPES);
	ct_str_add(&many, ",1x1");
	assert_fails(ct_sim_shapes_parse("--simulate", ct_str_text(&many), s, &n), CT_USAGE, "more than 64 shapes");
	ct_str_release(&many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_hier),
		cmocka_unit_test(test_fastest),
		cmocka_unit_test(test_fixed_part),
		cmocka_unit_test(test_one_rank),
		cmocka_unit_test(test_one_bucket_has_no_overlap),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_accumulate),
		cmocka_unit_test(test_16_bits),
		cmocka_unit_test(test_monotonic),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_best_bucket),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
