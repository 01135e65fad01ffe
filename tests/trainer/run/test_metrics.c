/* metrics.jsonl: its contents, what a resumed run removes, and a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/run/metrics/metrics.h"
#include "trainer/run/metrics/metrics_cut_impl.h"

static char *new_run(const char *name)
{
	char *run = ct_strdup(in_tmpdir(name));

	assert_ok(ct_dir_make(run));
	return run;
}

static char *read_metrics(const char *run)
{
	char *path = ct_path_join(run, "metrics.jsonl"), *text;
	size_t len;

	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	ct_free(path);
	return text;
}

/* Line i as JSON, owned. */
static ct_json *line_at(const char *text, int i)
{
	ct_json *j;

	while (i-- > 0)
		text = strchr(text, '\n') + 1;
	assert_ok(ct_json_parse(text, strcspn(text, "\n"), "line", &j));
	return j;
}

static int count_lines(const char *text)
{
	int n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

static void assert_str(const ct_json *j, const char *key, const char *value)
{
	const char *found;

	assert_ok(ct_json_get_str(j, key, &found));
	assert_string_equal(found, value);
}

static void assert_num(const ct_json *j, const char *key, double value)
{
	double found;

	assert_ok(ct_json_get_f64(j, key, &found));
	assert_true(found == value);
}

static ct_json *run_object(int64_t step)
{
	ct_json *j = ct_json_object();

	ct_json_set_str(j, "host", "here");
	ct_json_set_i64(j, "resumed_step", step);
	return j;
}

static void test_lines(void **state)
{
	const struct ct_epoch_metrics epoch = {.epoch = 1,
					       .step = 50,
					       .images = 60000,
					       .timed = 60000,
					       .train_loss = 0.5,
					       .seconds = 2.5,
					       .bound_by = "compute",
					       .verdict = "bound by compute"};
	struct ct_eval_metrics eval = {
		.epoch = 1, .step = 50, .count = 10000, .loss = 0.25, .top1 = 0.99, .top5 = 1, .seconds = 0.5};
	struct ct_step_metrics s = {.step = 50,
				    .epoch = 1,
				    .loss = 0.1 + 0.2,
				    .lr = 0.1,
				    .images_per_sec = 1e6,
				    .data_ms = 1,
				    .forward_ms = 2,
				    .backward_ms = 3,
				    .exposed_comm_ms = 4,
				    .optim_ms = 5,
				    .other_ms = 6,
				    .grad_norm = -1,
				    .weight_norm = -1};
	struct ct_run_summary end = {.status = "done",
				     .step = 50,
				     .epoch = 2,
				     .seconds = 1.5,
				     .best_top1 = -1,
				     .weights_digest = "00ff",
				     .startup_seconds = 0.1,
				     .checkpoint = ""};
	char *run = new_run("lines"), *text, *tb;
	ct_metrics_log *m;
	ct_json *j;

	(void)state;
	assert_ok(ct_metrics_open(run, 0, true, NULL, &m));
	assert_ok(ct_metrics_run(m, run_object(0)));
	assert_ok(ct_metrics_step(m, &s));
	s.loss = INFINITY;
	s.grad_norm = 2.5;
	s.weight_norm = 12.5;
	s.memory_bytes = 123456789012;
	s.loss_scale = 1024;
	s.skipped_updates = 3;
	assert_ok(ct_metrics_step(m, &s));
	assert_ok(ct_metrics_epoch(m, &epoch));
	assert_ok(ct_metrics_eval(m, &eval));
	eval.top1 = eval.top5 = -1;
	assert_ok(ct_metrics_eval(m, &eval));
	assert_ok(ct_metrics_checkpoint(m, 50, "a/\"b\"", 0.25, 0.125, 123456789012));
	assert_ok(ct_metrics_end(m, &end));
	ct_metrics_close(m);
	text = read_metrics(run);
	assert_int_equal(count_lines(text), 8);
	j = line_at(text, 0);
	assert_str(j, "kind", "run");
	assert_num(j, "v", 1);
	ct_json_destroy(j);
	j = line_at(text, 1);
	assert_str(j, "kind", "step");
	assert_num(j, "step", 50);
	assert_num(j, "loss", 0.1 + 0.2);
	assert_num(j, "exposed_comm_ms", 4);
	assert_null(ct_json_get(j, "grad_norm"));
	assert_null(ct_json_get(j, "weight_norm"));
	assert_null(ct_json_get(j, "memory_bytes"));
	assert_null(ct_json_get(j, "loss_scale"));
	assert_null(ct_json_get(j, "skipped_updates"));
	ct_json_destroy(j);
	j = line_at(text, 2);
	assert_num(j, "grad_norm", 2.5);
	assert_num(j, "weight_norm", 12.5);
	assert_num(j, "memory_bytes", 123456789012);
	assert_num(j, "loss_scale", 1024);
	assert_num(j, "skipped_updates", 3);
	assert_non_null(ct_json_get(j, "loss"));
	assert_null(ct_json_as_str(ct_json_get(j, "loss")));
	ct_json_destroy(j);
	j = line_at(text, 3);
	assert_str(j, "kind", "epoch");
	assert_num(j, "images", 60000);
	ct_json_destroy(j);
	j = line_at(text, 4);
	assert_num(j, "top1", 0.99);
	ct_json_destroy(j);
	j = line_at(text, 6);
	assert_str(j, "path", "a/\"b\"");
	assert_num(j, "seconds", 0.25);
	assert_num(j, "exposed_seconds", 0.125);
	assert_num(j, "bytes", 123456789012);
	ct_json_destroy(j);
	j = line_at(text, 7);
	assert_str(j, "kind", "end");
	assert_str(j, "weights_digest", "00ff");
	ct_json_destroy(j);
	tb = ct_path_join(run, "tb");
	assert_true(ct_file_exists(tb));
	ct_free(tb);
	ct_free(text);
	ct_free(run);
}

#define STEP_LINE(n) "{\"v\":1,\"kind\":\"step\",\"step\":" #n ",\"loss\":0.5}\n"
#define RUN_LINE(n) "{\"v\":1,\"kind\":\"run\",\"resumed_step\":" #n "}\n"

static void test_cut(void **state)
{
	static const struct {
		uint64_t step;
		const char *before, *after;
		unsigned dropped;
	} cases[] = {
		{5, "", "", 0},
		{5, RUN_LINE(0) STEP_LINE(5), RUN_LINE(0) STEP_LINE(5), 0},
		{5, RUN_LINE(0) STEP_LINE(5) STEP_LINE(6), RUN_LINE(0) STEP_LINE(5), 1},
		{0, RUN_LINE(0) STEP_LINE(5) STEP_LINE(6), RUN_LINE(0), 2},
		/* 9 and 10 are numbers, not strings. */
		{9, STEP_LINE(9) STEP_LINE(10) STEP_LINE(100), STEP_LINE(9), 2},
		/* Lines out of order, and a run that had resumed later than this one does. */
		{5, STEP_LINE(6) STEP_LINE(5) RUN_LINE(6) STEP_LINE(7), STEP_LINE(5), 3},
		/* Torn at the end, with or without a whole object; torn in the middle. */
		{5, STEP_LINE(5) "{\"v\":1,\"ki", STEP_LINE(5), 1},
		{5, STEP_LINE(5) "{\"v\":1}", STEP_LINE(5), 1},
		{5, STEP_LINE(4) "{\"v\":1,\"ki" STEP_LINE(5) STEP_LINE(3), STEP_LINE(4) STEP_LINE(3), 1},
		{5, "\n" STEP_LINE(5) "5\n[1]\n" STEP_LINE(4), STEP_LINE(5) STEP_LINE(4), 3},
		{5, "{\"step\":\"5\"}\n{\"step\":-1}\n{\"other\":1}\n", "{\"step\":-1}\n{\"other\":1}\n", 1},
	};
	char *path = ct_strdup(in_tmpdir("cut.jsonl")), *text;
	uint64_t dropped = 99;
	size_t len;

	(void)state;
	assert_ok(ct__metrics_cut(path, 5, &dropped));
	assert_int_equal(dropped, 0);
	assert_true(ct_file_exists(path));
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct stat before, after;

		assert_ok(ct_file_replace(path, cases[i].before, strlen(cases[i].before)));
		assert_int_equal(stat(path, &before), 0);
		assert_ok(ct__metrics_cut(path, cases[i].step, &dropped));
		assert_int_equal(dropped, cases[i].dropped);
		assert_ok(ct_file_read(path, 1 << 20, &text, &len));
		assert_string_equal(text, cases[i].after);
		ct_free(text);
		/* Untouched when nothing is dropped. */
		assert_int_equal(stat(path, &after), 0);
		assert_true(dropped > 0 || before.st_ino == after.st_ino);
	}
	ct_free(path);
}

/* Lines across the bounds of the read buffer. */
static void test_cut_large(void **state)
{
	char *path = ct_strdup(in_tmpdir("large.jsonl")), *text;
	struct ct_str in = {0};
	uint64_t dropped;
	size_t len, kept = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		ct_str_addf(&in, "{\"v\":1,\"step\":%d,\"pad\":\"%.*s\"}\n", i, i % 37,
			    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
		if (i == 15000)
			kept = in.len;
	}
	assert_ok(ct_file_replace(path, in.s, in.len));
	assert_ok(ct__metrics_cut(path, 15000, &dropped));
	assert_int_equal(dropped, 4999);
	assert_ok(ct_file_read(path, 1 << 24, &text, &len));
	assert_int_equal(len, kept);
	assert_memory_equal(text, in.s, kept);
	ct_free(text);
	ct_str_release(&in);
	ct_free(path);
}

static void test_resume(void **state)
{
	struct ct_step_metrics s = {.grad_norm = -1, .weight_norm = -1};
	char *run = new_run("resume"), *text;
	ct_metrics_log *m;

	(void)state;
	assert_ok(ct_metrics_open(run, 0, false, NULL, &m));
	assert_ok(ct_metrics_run(m, run_object(0)));
	for (s.step = 1; s.step <= 20; s.step++)
		assert_ok(ct_metrics_step(m, &s));
	ct_metrics_close(m);
	assert_ok(ct_metrics_open(run, 12, false, NULL, &m));
	assert_ok(ct_metrics_run(m, run_object(12)));
	for (s.step = 13; s.step <= 15; s.step++)
		assert_ok(ct_metrics_step(m, &s));
	ct_metrics_close(m);
	text = read_metrics(run);
	assert_int_equal(count_lines(text), 1 + 12 + 1 + 3);
	ct_free(text);
	ct_free(run);
}

static void test_disk_full(void **state)
{
	struct ct_step_metrics s = {.step = 1, .grad_norm = -1, .weight_norm = -1};
	char *run = new_run("full");
	enum ct_status st = CT_OK;
	struct rlimit was, small;
	ct_metrics_log *m;

	(void)state;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = (struct rlimit){4096, was.rlim_max};
	assert_ok(ct_metrics_open(run, 0, true, NULL, &m));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 100 && st == CT_OK; i++)
		st = ct_metrics_step(m, &s);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_fails(st, CT_IO, run);
	ct_metrics_close(m);
	ct_free(run);
}

/* Links in a run directory are not followed: their targets do not change. */
static void test_links_are_not_followed(void **state)
{
	static const char old[] = "{\"v\":1,\"step\":1}\n{\"v\":1,\"step\":9}\n";
	char *run = new_run("links"), *path = ct_path_join(run, "metrics.jsonl"),
	     *temp = ct_path_join(run, "metrics.jsonl.tmp"), *victim = ct_path_join(run, "victim"), *text;
	ct_metrics_log *m;
	struct stat sb;

	(void)state;
	assert_ok(ct_file_replace(victim, "precious", 8));
	assert_ok(ct_file_replace(path, old, strlen(old)));
	assert_int_equal(symlink("victim", temp), 0);
	assert_ok(ct_metrics_open(run, 5, false, NULL, &m));
	ct_metrics_close(m);
	assert_int_equal(lstat(path, &sb), 0);
	assert_true(S_ISREG(sb.st_mode));
	text = read_metrics(run);
	assert_int_equal(count_lines(text), 1);
	ct_free(text);

	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("victim", path), 0);
	assert_fails(ct_metrics_open(run, 0, false, NULL, &m), CT_IO, "not a regular file but a symbolic link");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_fails(ct_metrics_open(run, 0, false, NULL, &m), CT_IO, "not a regular file but a FIFO");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rename(victim, path), 0);
	text = read_metrics(run);
	assert_string_equal(text, "precious");
	ct_free(text);
	ct_free(victim);
	ct_free(temp);
	ct_free(path);
	ct_free(run);
}

static void test_unwritable(void **state)
{
	ct_metrics_log *m;

	(void)state;
	assert_fails(ct_metrics_open(in_tmpdir("nowhere"), 0, false, NULL, &m), CT_IO, "nowhere/metrics.jsonl");
	assert_ok(ct_dir_make(in_tmpdir("bad/metrics.jsonl")));
	assert_fails(ct_metrics_open(in_tmpdir("bad"), 0, false, NULL, &m), CT_IO, "bad/metrics.jsonl");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cut_large),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_disk_full),
		cmocka_unit_test(test_unwritable),
		cmocka_unit_test(test_links_are_not_followed),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
