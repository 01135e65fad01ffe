/* Writing configurations: dump, digest and the lines that ranks compare. Also checks the configurations that are part
 * of the project. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/config_fixture.h"
#include "trainer/config/config_impl.h"

static void expect_dumped(const char *file, const char *yes, const char *no)
{
	struct ct_config *c = load_text(file);
	struct ct_str text = {0};

	assert_ok(ct_config_dump(c, true, &text));
	if (!strstr(ct_str_text(&text), yes) || (no && strstr(ct_str_text(&text), no)))
		fail_msg("expected \"%s\" and not \"%s\" in:\n%s", yes, no ? no : "", ct_str_text(&text));
	ct_str_release(&text);
	ct_config_destroy(c);
}

/* The number of processes is shown even if it was not set, but not together with the key that replaces it. */
static void test_processes_in_the_dump(void **state)
{
	(void)state;
	expect_dumped(GOOD, "  procs: auto  # default\n", "procs_list");
	expect_dumped(GOOD "launch: {procs: auto}\n", "  procs: auto  # ", "procs_list");
	expect_dumped(GOOD "launch: {procs: 3}\n", "  procs: 3  # ", "procs_list");
	expect_dumped(GOOD "launch: {procs_list: \"3\"}\n", "  procs_list: \"3\"  # ", "procs: auto");
}

static void test_range_in_the_dump(void **state)
{
	(void)state;
	expect_dumped(GOOD "batch: {global: 48}\nlaunch: {nodes: 2..4, restarts: 1, master_addr: a}\n",
		      "  nodes: 2..4  # ", "nodes: 4 ");
	expect_dumped(GOOD "launch: {nodes: 3..3, master_addr: a}\n", "  nodes: 3  # ", "..");
}

static void expect_same(const struct ct_config *a, const struct ct_config *b)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		struct ct_str x = {0}, y = {0};

		ct__key_format(ct__key_at(i), a, true, &x);
		ct__key_format(ct__key_at(i), b, true, &y);
		if (strcmp(ct_str_text(&x), ct_str_text(&y)) != 0)
			fail_msg("%s: %s and %s", ct__key_at(i)->name, ct_str_text(&x), ct_str_text(&y));
		ct_str_release(&x);
		ct_str_release(&y);
	}
	assert_true(a->optim.lr == b->optim.lr && a->optim.eps == b->optim.eps); /* to the last bit */
}

static void expect_round_trip(struct ct_config *c)
{
	char digest[65], again[65];

	for (int origins = 0; origins < 2; origins++) {
		struct ct_str text = {0};
		struct ct_config *d;

		assert_ok(ct_config_dump(c, origins, &text));
		d = load(put("dumped.yaml", text.s), NULL, 0);
		expect_same(c, d);
		assert_ok(ct_config_digest(c, digest));
		assert_ok(ct_config_digest(d, again));
		assert_string_equal(digest, again);
		assert_int_equal(strlen(digest), 64);
		ct_config_destroy(d);
		ct_str_release(&text);
	}
	ct_config_destroy(c);
}

static void test_round_trip(void **state)
{
	(void)state;
	expect_round_trip(load_text(GOOD));
	expect_round_trip(load_text(
		GOOD
		"batch: {global: 300}\nlaunch: {procs_list: \"3\", init: \"file:///x y\"}\n"
		"run: {name: \"yes\", dir: \"a \\\"b\\\\ #: \\u00e9 \\uFEFF\\U0001F600\"}\n"
		"optim: {name: adamw, lr: 0.30000000000000004, beta2: 0.98}\nschedule: {name: one_cycle, warmup_steps: 1000000}\n"
		"dist: {timeout: 1.5h}\nlog: {level: \"info,data=trace\"}\n"));
}

/* All files that we ship. */
static void test_shipped(void **state)
{
	char **names;
	size_t n, n_yaml = 0;

	(void)state;
	assert_ok(ct_dir_list(CT_SOURCE_DIR "/configs", &names, &n));
	for (size_t i = 0; i < n; i++) {
		char *path = ct_path_join(CT_SOURCE_DIR "/configs", names[i]);

		assert_non_null(strstr(names[i], ".yaml"));
		n_yaml++;
		expect_round_trip(load(path, NULL, 0));
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	assert_true(n_yaml >= 5);
}

static bool has_line(const struct ct_config *c, const char *line)
{
	struct ct_str lines = {0};
	bool found;

	assert_ok(ct_config_lines(c, &lines));
	found = strstr(ct_str_text(&lines), line) != NULL;
	ct_str_release(&lines);
	return found;
}

/* Ranks must agree on what is learned and on when they meet, not on where they write and how they load. */
static void test_run_lines(void **state)
{
	static const char *const shared[] = {"optim.lr=",
					     "train.epochs=",
					     "train.eval_every=",
					     "train.target_top1=",
					     "batch.eval=",
					     "data.val=",
					     "dist.backend=",
					     "dist.bucket_mib=",
					     "dist.first_bucket_mib=",
					     "dist.check_weights=",
					     "dist.straggler_factor=",
					     "train.cuda_graph=",
					     "train.graph_steps=",
					     "train.isa=",
					     "launch.pipeline=",
					     "log.report="},
				 *const own[] = {"run.dir=",     "data.dir=",    "data.workers=",   "launch.procs=",
						 "launch.node",  "launch.init=", "launch.devices=", "launch.threads=",
						 "launch.bind=", "log.every=",   "log.console=",    "checkpoint.",
						 "train.resume="};
	struct ct_config *c = load_text(GOOD);
	struct ct_str lines = {0};

	(void)state;
	assert_ok(ct_config_run_lines(c, &lines));
	for (size_t i = 0; i < CT_ARRAY_LEN(shared); i++) {
		if (!strstr(lines.s, shared[i]))
			fail_msg("%s is not compared", shared[i]);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(own); i++) {
		if (strstr(lines.s, own[i]))
			fail_msg("%s is compared", own[i]);
	}
	ct_str_release(&lines);
	ct_config_destroy(c);
}

/* What is learned is in the digest, where and how fast is not. */
static void test_lines(void **state)
{
	static const char *const learned[] = {"run.seed=2", "optim.lr=0.2", "model.hidden=[3]",
					      "data.augment.flip=true", "train.ema=0.9"},
				 *const others[] = {"run.dir=elsewhere",      "log.every=3",       "launch.procs=2",
						    "launch.pipeline=2",      "data.workers=3",    "dist.timeout=3",
						    "checkpoint.keep_last=5", "train.engine=ref",  "train.epochs=9",
						    "train.target_top1=0.5",  "train.isa=avx2",    "batch.per_rank=5",
						    "batch.global=8",         "train.accumulate=2"};
	struct ct_config *c = load_text(GOOD), *d;
	char digest[65], other[65];

	(void)state;
	assert_ok(ct_config_digest(c, digest));
	assert_true(has_line(c, "optim.lr=0.05\n") && has_line(c, "model.hidden=[512, 256]\n") &&
		    has_line(c, "optim.momentum=0.9\n"));
	assert_false(has_line(c, "run.dir") || has_line(c, "optim.beta1") || has_line(c, "train.epochs"));
	for (size_t i = 0; i < CT_ARRAY_LEN(learned) + CT_ARRAY_LEN(others); i++) {
		bool is_learned = i < CT_ARRAY_LEN(learned);
		const char *text = is_learned ? learned[i] : others[i - CT_ARRAY_LEN(learned)];
		char *key = ct_strndup(text, strcspn(text, "="));
		const struct ct_config_set set = {key, strchr(text, '=') + 1, "argument 2"};

		d = load(in_tmpdir("run one.yaml"), &set, 1);
		assert_ok(ct_config_digest(d, other));
		if ((strcmp(digest, other) != 0) != is_learned)
			fail_msg("%s: the digest %s", text, is_learned ? "does not notice" : "should not care");
		ct_config_destroy(d);
		ct_free(key);
	}
	ct_config_destroy(c);
	/* Where the rate depends on the length, the length counts. */
	c = load_text(GOOD "schedule: {name: cosine}\n");
	assert_true(has_line(c, "train.epochs=1\n"));
	ct_config_destroy(c);
}

/* A key that was added later changes the digest only of configs that use it. */
static void test_added_keys(void **state)
{
	const struct ct_config_set fraction = {"data.val_fraction", "0.25", "argument 2"};
	struct ct_config *c =
		load_text("model: {name: resnet18}\ndata: {name: imagefolder, val_fraction: 0}\ntrain: {epochs: 1}\n");
	char digest[65], other[65];

	(void)state;
	assert_false(has_line(c, "data.val_fraction"));
	assert_ok(ct_config_digest(c, digest));
	ct_config_destroy(c);
	c = load(in_tmpdir("run one.yaml"), &fraction, 1);
	assert_true(has_line(c, "data.val_fraction=0.25\n"));
	assert_ok(ct_config_digest(c, other));
	assert_string_not_equal(digest, other);
	ct_config_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_in_the_dump),
		cmocka_unit_test(test_range_in_the_dump),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_shipped),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_added_keys),
		cmocka_unit_test(test_run_lines),
	};

	unsetenv("CTRAIN_LOG");
	unsetenv("CTRAIN_DATA");
	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
