/* The report of runs: what is read from the files of a run, and what is written. */
#include "tests/trainer/tmpdir.h"

#include <math.h>

#include "base/json.h"
#include "trainer/tools/report/report.h"
#include "trainer/tools/report/run_files.h"

static const char metrics[] =
	"{\"v\":1,\"kind\":\"run\",\"version\":\"0.1\",\"host\":\"<b>here</b>\",\"world_size\":2,\"model\":\"mlp\",\"data\":\"mnist\"}\n"
	"{\"v\":1,\"kind\":\"step\",\"step\":1,\"epoch\":0,\"loss\":2.302585092994046,\"lr\":0.1,\"images_per_sec\":1e6,"
	"\"data_ms\":1,\"forward_ms\":2,\"backward_ms\":3,\"exposed_comm_ms\":4,\"optim_ms\":5,\"other_ms\":6}\n"
	"{\"v\":1,\"kind\":\"step\",\"step\":2,\"epoch\":0,\"loss\":null,\"lr\":0.05,\"images_per_sec\":100,\"grad_norm\":3.5}\n"
	"{\"v\":1,\"kind\":\"epoch\",\"epoch\":0,\"step\":2,\"train_loss\":0.1,\"images\":60,\"timed_images\":30,\"seconds\":0.5,\"bad_samples\":3}\n"
	"{\"v\":1,\"kind\":\"eval\",\"epoch\":0,\"step\":2,\"loss\":0.25,\"top1\":0.875,\"top5\":1,\"count\":8}\n"
	"this is not JSON\n"
	"{\"v\":1,\"kind\":\"epoch\",\"epoch\":1,\"step\":4,\"train_loss\":0.30000000000000004,\"images\":60,\"timed_images\":60,\"seconds\":0.25}\n"
	"{\"v\":1,\"kind\":\"end\",\"status\":\"done</td><script>alert(1)</script>\",\"step\":4,\"epoch\":2,\"seconds\":1.5}\n"
	"{\"v\":1,\"kind\":\"step\",\"step\":5,\"lo";

static const char config[] = "# A resolved ctrain configuration\n"
			     "\n"
			     "run:\n"
			     "  name: \"<img src=x onerror=alert(2)>\"  # a.yaml:1:2\n"
			     "\n"
			     "data:\n"
			     "  name: mnist  # default\n"
			     "  augment:\n"
			     "    flip: true  # argument 3\n"
			     "optim:\n"
			     "  lr: 0.1  # --lr # 2\n";

static const struct ct_image_source no_data;

static char *new_run(const char *name, const char *lines, size_t n)
{
	char *run = ct_strdup(in_tmpdir(name)), *path = ct_path_join(run, "metrics.jsonl");

	assert_ok(ct_dir_make(run));
	assert_ok(ct_file_replace(path, lines, n));
	ct_free(path);
	return run;
}

static void add_file(const char *run, const char *name, const char *text)
{
	char *path = ct_path_join(run, name);

	assert_ok(ct_file_replace(path, text, strlen(text)));
	ct_free(path);
}

static char *read_file(const char *run, const char *name)
{
	char *path = ct_path_join(run, name), *text;
	size_t len;

	assert_ok(ct_file_read(path, 64 << 20, &text, &len));
	ct_free(path);
	return text;
}

/* Writes the report of a run, and returns its page. */
static char *page_of(const char *run)
{
	char *path;

	assert_ok(ct_report_write_run(run, &no_data, &path));
	ct_free(path);
	return read_file(run, "report.html");
}

struct phrase {
	const char *text;
	bool wanted; /* false: the page must not contain it */
};

static void assert_phrases(const char *page, const struct phrase *phrases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!strstr(page, phrases[i].text) == phrases[i].wanted)
			fail_msg("the page %s \"%s\"", phrases[i].wanted ? "does not contain" : "contains",
				 phrases[i].text);
	}
}

static void assert_setting(const struct ct_run_files *r, const char *key, const char *value, const char *origin)
{
	const struct ct_run_setting *s = ct_run_setting_find(r, key);

	assert_non_null(s);
	assert_string_equal(s->value, value);
	assert_string_equal(s->origin, origin);
	assert_int_equal(s->is_default, strcmp(origin, "default") == 0);
}

static void test_load(void **state)
{
	(void)state;
	char *run = new_run("load", metrics, sizeof(metrics) - 1);
	struct ct_run_files r;
	add_file(run, "config.yaml", config);
	add_file(run, "classes.txt", "0 cat\n1 dog\n");
	assert_ok(ct_run_files_load(run, &r));
	assert_int_equal(r.steps.n, 2);
	assert_true(ct_table_at(&r.steps, 0, CT_STEP_LOSS) == 2.302585092994046);
	assert_true(ct_table_at(&r.steps, 0, CT_STEP_OTHER) == 6);
	assert_true(isnan(ct_table_at(&r.steps, 0, CT_STEP_GRAD_NORM)));
	assert_true(isnan(ct_table_at(&r.steps, 1, CT_STEP_LOSS)));
	assert_true(ct_table_at(&r.steps, 1, CT_STEP_GRAD_NORM) == 3.5);
	assert_int_equal(r.epochs.n, 2);
	assert_int_equal(r.evals.n, 1);
	assert_true(ct_table_at(&r.evals, 0, CT_EVAL_TOP1) == 0.875);
	assert_int_equal(r.n_lines, 4);
	assert_string_equal(ct_line_str(r.run, "model", ""), "mlp");
	assert_true(ct_line_f64(r.epoch, "epoch") == 1);
	assert_true(ct_line_f64(r.end, "seconds") == 1.5);
	assert_int_equal(r.classes.n, 2);
	assert_setting(&r, "data.name", "mnist", "default");
	assert_setting(&r, "data.augment.flip", "true", "argument 3");
	assert_setting(&r, "optim.lr", "0.1", "--lr # 2");
	assert_null(ct_run_setting_find(&r, "data"));
	ct_run_files_release(&r);
	ct_free(run);
}

static void test_csv(void **state)
{
	(void)state;
	char *run = new_run("csv", metrics, sizeof(metrics) - 1), *path, *text;
	assert_ok(ct_report_write_run(run, &no_data, &path));
	text = read_file(run, "results.csv");
	assert_string_equal(
		text,
		"epoch,time,train/loss,metrics/accuracy_top1,metrics/accuracy_top5,val/loss,lr/pg0,step,images,images_per_sec\n"
		"1,0.5,0.1,0.875,1,0.25,0.05,2,60,60\n"
		"2,0.75,0.30000000000000004,,,,0.05,4,60,240\n");
	ct_free(text);
	ct_free(path);
	ct_free(run);
}

/* Everything in the files of a run is shown as text, wherever it is written. */
static void test_hostile(void **state)
{
	static const struct phrase phrases[] = {
		{"<b>here", false},
		{"<script>alert", false},
		{"<img src=x", false},
		{"&lt;b&gt;here&lt;/b&gt;", true},
		{"done&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;", true},
		{"&lt;img src=x onerror=alert(2)&gt;", true},
	};

	(void)state;
	char *run = new_run("hostile", metrics, sizeof(metrics) - 1);
	add_file(run, "config.yaml", config);
	char *page = page_of(run);
	assert_phrases(page, phrases, CT_ARRAY_LEN(phrases));
	ct_free(page);
	const char *const two[] = {run, "absent"};
	assert_fails(ct_report_write(two, 2, in_tmpdir("two.html")), CT_NOT_FOUND, "absent/metrics.jsonl");
	ct_free(run);
}

/* Returns the values of the chart as JSON, from the element that the script reads. */
static ct_json *charts_of(const char *page)
{
	ct_json *charts;
	const char *begin = strstr(page, "id=\"charts\">") + strlen("id=\"charts\">"),
		   *end = strstr(begin, "</script>");

	assert_ok(ct_json_parse(begin, (size_t)(end - begin), "charts", &charts));
	return charts;
}

static void assert_in(const ct_json *list, double wanted)
{
	for (size_t i = 0; i < ct_json_len(list); i++) {
		double v;

		if (ct_json_as_f64(ct_json_at(list, i), &v) && v == wanted)
			return;
	}
	fail_msg("%g is not among the %zu points", wanted, ct_json_len(list));
}

/* A long run: each curve has at most 1000 points, among which the extreme values and the first one are. */
static void test_long(void **state)
{
	(void)state;
	enum { N = 30000, SPIKE = 17777, DIP = 23456 };
	struct ct_str lines = {0};
	for (int i = 1; i <= N; i++)
		ct_str_addf(&lines, "{\"v\":1,\"kind\":\"step\",\"step\":%d,\"loss\":%s,\"lr\":0.1}\n", i,
			    i == SPIKE ? "9"
			    : i == DIP ? "0.5"
				       : "1.25");
	char *run = new_run("long", lines.s, lines.len);
	char *text = page_of(run);
	assert_true(strlen(text) < 400000);
	ct_json *charts = charts_of(text);
	const ct_json *loss = ct_json_at(ct_json_get(ct_json_at(charts, 0), "series"), 0);
	const ct_json *x = ct_json_get(loss, "x"), *y = ct_json_get(loss, "y");
	assert_in_range(ct_json_len(x), 500, 1000);
	assert_int_equal(ct_json_len(x), ct_json_len(y));
	assert_in(x, 1);
	assert_in(x, SPIKE);
	assert_in(x, DIP);
	assert_in(y, 9);
	assert_in(y, 0.5);
	ct_json_destroy(charts);
	ct_str_release(&lines);
	ct_free(text);
	ct_free(run);
}

/* A run that has just begun, and one whose file is empty. */
static void test_little(void **state)
{
	(void)state;
	static const char one[] = "{\"v\":1,\"kind\":\"step\",\"step\":1,\"loss\":0,\"lr\":0}\n";
	char *runs[] = {new_run("empty", "", 0), new_run("one", one, sizeof(one) - 1)}, *path;
	for (int i = 0; i < 2; i++) {
		assert_ok(ct_report_write_run(runs[i], &no_data, &path));
		ct_free(path);
	}
	assert_ok(ct_report_write((const char *const *)runs, 2, in_tmpdir("little.html")));
	ct_free(runs[0]);
	ct_free(runs[1]);
}

/* Checkpoints that follow each other share a row, and starts of the finished run do not change its result. */
static void test_events(void **state)
{
	(void)state;
	static const char lines[] =
		"{\"v\":1,\"kind\":\"run\",\"host\":\"a\",\"world_size\":1,\"resumed_step\":0}\n"
		"{\"v\":1,\"kind\":\"checkpoint\",\"step\":2,\"bytes\":1e6,\"seconds\":0.25,\"exposed_seconds\":0.5}\n"
		"{\"v\":1,\"kind\":\"straggler\",\"step\":3,\"rank\":1,\"host\":\"a\",\"late_ms\":7,\"phase\":\"data\"}\n"
		"{\"v\":1,\"kind\":\"checkpoint\",\"step\":4,\"bytes\":1e6,\"seconds\":0.1,\"exposed_seconds\":0.001}\n"
		"{\"v\":1,\"kind\":\"epoch\",\"epoch\":0,\"step\":5,\"seconds\":1}\n"
		"{\"v\":1,\"kind\":\"checkpoint\",\"step\":6,\"bytes\":3e6,\"seconds\":0.1,\"exposed_seconds\":0.002}\n"
		"{\"v\":1,\"kind\":\"end\",\"status\":\"done\",\"step\":6,\"seconds\":9,\"images_per_sec\":77}\n"
		"{\"v\":1,\"kind\":\"run\",\"host\":\"b\",\"world_size\":1,\"resumed_step\":6}\n"
		"{\"v\":1,\"kind\":\"end\",\"status\":\"already finished\",\"step\":6,\"seconds\":0.5,\"images_per_sec\":0}\n";
	static const struct phrase phrases[] = {
		{"Checkpoint of 1 MB in 250 ms; training waited for 500 ms", true},
		{"2 checkpoints since step 4, the last of 3 MB; training waited for 3 ms in all", true},
		{"Checkpoint of 3 MB", false},
		{"<b>77</b><span>images per second", true},
		{"<b>9.0 s</b><span>duration", true},
		{"already finished", false},
		{"Resumed", false},
	};
	char *run = new_run("events", lines, sizeof(lines) - 1), *page = page_of(run);
	assert_phrases(page, phrases, CT_ARRAY_LEN(phrases));
	ct_free(page);
	ct_free(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load), cmocka_unit_test(test_csv),    cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_long), cmocka_unit_test(test_little), cmocka_unit_test(test_events),
	};

	return cmocka_run_group_tests_name("results", tests, tmpdir_setup, tmpdir_teardown);
}
