/* The list of runs: their states, conditions, order, differences, and what may be removed. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/tools/cli/text_table.h"
#include "trainer/tools/runs/clean.h"
#include "trainer/tools/runs/follow.h"
#include "trainer/tools/runs/select.h"
#include "trainer/tools/runs/show.h"

#define RUN \
	"{\"v\":1,\"kind\":\"run\",\"host\":\"far\",\"world_size\":2,\"total_steps\":40,\"resumed_step\":0,\"time\":1000}\n"
#define STEP(n) "{\"kind\":\"step\",\"step\":" #n ",\"loss\":1.5,\"images_per_sec\":2500}\n"
#define EPOCH(n, s) "{\"kind\":\"epoch\",\"epoch\":" #n ",\"step\":" #s "}\n"
#define EVAL(s, a) "{\"kind\":\"eval\",\"step\":" #s ",\"top1\":" #a ",\"loss\":0.5}\n"
#define END(status, s)                                                                           \
	"{\"kind\":\"end\",\"status\":\"" status "\",\"step\":" #s                               \
	",\"epoch\":2,\"seconds\":12.5,\"images_per_sec\":3000,\"weights_digest\":\"aabb" status \
	"\",\"message\":\"too hot\"}\n"

/* Files that tests create are new, so a run of another host would be taken to be running. */
static void write_old(const char *path, const char *text)
{
	const struct timespec old[2] = {{.tv_sec = 5000}, {.tv_sec = 5000}};
	char *dir = ct_path_dir(path);

	assert_ok(ct_dir_make(dir));
	assert_ok(ct_file_replace(path, text, strlen(text)));
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, dir, old, 0), 0);
	ct_free(dir);
}

static void add_run(const char *name, const char *config, const char *metrics)
{
	char *dir = ct_strfmt("%s/runs/%s", tmpdir, name), *path;

	path = ct_path_join(dir, "config.yaml");
	if (config)
		write_old(path, config);
	ct_free(path);
	path = ct_path_join(dir, "checkpoints/x");
	write_old(path, "");
	assert_int_equal(unlink(path), 0);
	ct_free(path);
	path = ct_path_join(dir, "log/rank-00000.log");
	write_old(path, "");
	ct_free(path);
	path = ct_path_join(dir, "metrics.jsonl");
	if (metrics)
		write_old(path, metrics);
	else
		write_old(in_tmpdir("runs/failed/log/launcher.log"), "");
	ct_free(path);
	ct_free(dir);
}

static void add_checkpoint(const char *run, const char *name)
{
	char *path = ct_strfmt("%s/runs/%s/checkpoints/%s/state.json", tmpdir, run, name);

	write_old(path, "{}");
	ct_free(path);
}

#define CONFIG(lr, extra) \
	"run:\n  dir: x" lr "  # default\noptim:\n  lr: " lr "  # c.yaml:1:2\ntrain:\n  epochs: 4  # default\n" extra

static int setup(void **state)
{
	if (tmpdir_setup(state) != 0)
		return -1;
	add_run("done", CONFIG("0.1", ""),
		RUN STEP(10) EPOCH(0, 20) EVAL(20, 0.5) EPOCH(1, 40) EVAL(40, 0.75) END("done", 40));
	add_run("deep/er/stopped", CONFIG("0.2", "model:\n  name: mlp\n"), RUN STEP(10) END("stopped by a signal", 11));
	add_run("lost", CONFIG("0.1", ""), RUN STEP(10) EPOCH(0, 20) EVAL(20, 0.875));
	/* It was continued after it had ended. */
	add_run("relost", CONFIG("0.1", ""), RUN STEP(10) END("done", 40) RUN STEP(50));
	add_run("broken", CONFIG("0.1", ""), RUN STEP(10) END("failed", 11));
	add_run("failed", NULL, NULL);
	write_old(in_tmpdir("runs/notes/metrics.txt"), "not a run");
	return 0;
}

static void find(struct ct_run_list *l, const char *filter, const char *sort, const char *names)
{
	struct ct_str text = {0};

	assert_ok(ct_run_list_find(in_tmpdir("runs"), l));
	assert_ok(ct_run_list_filter(l, filter));
	assert_ok(ct_run_list_sort(l, sort));
	for (size_t i = 0; i < l->n; i++)
		ct_str_addf(&text, "%s%s", i ? " " : "", l->runs[i].name);
	assert_string_equal(ct_str_text(&text), names);
	ct_str_release(&text);
}

static void test_states(void **state)
{
	static const char *const want[] = {"failed", "stopped", "done", "failed", "lost", "lost"};
	struct ct_run_list l;

	(void)state;
	find(&l, "", "name", "broken deep/er/stopped done failed lost relost");
	for (size_t i = 0; i < l.n; i++)
		assert_string_equal(ct_run_state_name(l.runs[i].state), want[i]);
	assert_string_equal(l.runs[0].message, "too hot");
	const struct ct_run_info *done = &l.runs[2], *lost = &l.runs[4], *relost = &l.runs[5];
	assert_true(done->best_top1 == 0.75 && done->epochs == 2 && done->epochs_total == 4 && done->step == 40);
	assert_true(done->seconds == 12.5 && done->images_per_sec == 3000 && done->started == 1000);
	assert_true(lost->images_per_sec == 2500 && lost->seconds == 4000);
	assert_true(relost->seconds == 4012.5);
	assert_true(isnan(l.runs[3].best_top1) && isnan(l.runs[3].step));
	ct_run_list_release(&l);
	assert_fails(ct_run_list_find(in_tmpdir("nowhere"), &l), CT_NOT_FOUND, "nowhere");
	ct_run_list_release(&l);
	/* The directory of a run is a list of one. */
	assert_ok(ct_run_list_find(in_tmpdir("runs/done"), &l));
	assert_int_equal(l.n, 1);
	assert_string_equal(l.runs[0].name, "done");
	ct_run_list_release(&l);
}

static void test_running(void **state)
{
	struct ct_run_list l;
	const char *lock = in_tmpdir("runs/done/lock");

	(void)state;
	write_old(lock, "1\n");
	find(&l, "state=running", "name", "");
	ct_run_list_release(&l);
	int fd = open(lock, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	find(&l, "state=running", "name", "done");
	ct_run_list_release(&l);
	close(fd);
	/* The lock of another host may not be visible, but it has just written. */
	assert_int_equal(utimensat(AT_FDCWD, in_tmpdir("runs/lost/metrics.jsonl"), NULL, 0), 0);
	find(&l, "state=running", "name", "lost");
	ct_run_list_release(&l);
	write_old(in_tmpdir("runs/lost/metrics.jsonl"), RUN STEP(10) EPOCH(0, 20) EVAL(20, 0.875));
}

static void test_filter_and_sort(void **state)
{
	static const struct {
		const char *filter, *sort, *names;
	} cases[] = {
		{"top1>0.5", "top1", "lost done"},
		{"top1>=0.5", "-top1", "done lost"},
		{"top1<0.8", "name", "done"},
		{"name=*ost", "-name", "relost lost"},
		{"name!=*ost,state!=failed", "name", "deep/er/stopped done"},
		{"optim.lr=0.10", "name", "broken done lost relost"},
		{"lr>0.1", "name", "deep/er/stopped"},
		{"model.name=m*", "name", "deep/er/stopped"},
		{"model.name!=mlp", "state", "done broken failed lost relost"},
		{"step<40", "step", "broken deep/er/stopped lost"},
		{"", "time", "failed broken deep/er/stopped done lost relost"},
	};
	struct ct_run_list l;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		find(&l, cases[i].filter, cases[i].sort, cases[i].names);
		ct_run_list_release(&l);
	}
	assert_ok(ct_run_list_find(in_tmpdir("runs"), &l));
	assert_fails(ct_run_list_filter(&l, "top1"), CT_USAGE, "\"top1\" is not a condition");
	assert_fails(ct_run_list_filter(&l, "=3"), CT_USAGE, "not a condition");
	assert_fails(ct_run_list_filter(&l, "top1=<3"), CT_USAGE, "not a condition");
	assert_fails(ct_run_list_filter(&l, "nonsense=3"), CT_USAGE,
		     "\"nonsense\" is neither a field nor a config key");
	assert_fails(ct_run_list_sort(&l, "shade"), CT_USAGE, "unknown field \"shade\"");
	ct_run_list_release(&l);
}

static void test_table(void **state)
{
	struct ct_run_list l;
	struct ct_str out = {0};

	(void)state;
	find(&l, "name!=relost,state!=failed", "name", "deep/er/stopped done lost");
	assert_ok(ct_runs_table(&l, 0, false, &out));
	assert_string_equal(
		out.s, "name             state    best top1  epochs   time  images/s  differs in\n"
		       "deep/er/stopped  stopped          -     0/4    13s     3.00k  optim.lr=0.2 model.name=mlp\n"
		       "done             done        0.7500     2/4    13s     3.00k  optim.lr=0.1\n"
		       "lost             lost        0.8750     1/4  1h06m     2.50k  optim.lr=0.1\n");
	ct_str_clear(&out);
	assert_ok(ct_runs_table(&l, 60, false, &out));
	for (char *save = NULL, *line = strtok_r(out.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		assert_true(strlen(line) <= 60);
	ct_str_release(&out);
	ct_json *j;
	const char *lr;
	assert_ok(ct_runs_json(&l, &j));
	assert_int_equal(ct_json_len(j), 3);
	assert_ok(ct_json_get_str(ct_json_get(ct_json_at(j, 0), "differs"), "optim.lr", &lr));
	assert_string_equal(lr, "0.2");
	ct_json_destroy(j);
	ct_run_list_release(&l);
}

static void test_compare(void **state)
{
	struct ct_run_list l;
	struct ct_str out = {0};
	bool same;

	(void)state;
	find(&l, "name=d*", "name", "deep/er/stopped done");
	assert_ok(ct_runs_compare(&l.runs[0], &l.runs[1], 0, false, &same, &out));
	assert_false(same);
	assert_non_null(strstr(out.s, "steps                 11               40        +29\n"));
	assert_non_null(strstr(out.s, "\noptim.lr    0.2              0.1\nmodel.name  mlp              -\n"));
	ct_str_clear(&out);
	assert_ok(ct_runs_compare(&l.runs[1], &l.runs[1], 0, false, &same, &out));
	assert_true(same);
	assert_non_null(strstr(out.s, "The configs are the same."));
	ct_str_release(&out);
	ct_run_list_release(&l);
}

static void expect_plan(const struct ct_run_list *l, struct ct_clean_plan *p, const char *names)
{
	struct ct_str text = {0};

	assert_ok(ct_clean_find(l, p));
	for (size_t i = 0; i < p->n; i++)
		ct_str_addf(&text, "%s%s", i ? " " : "", ct_path_name(p->items[i].path));
	assert_string_equal(ct_str_text(&text), names);
	ct_str_release(&text);
}

/* A run that may be starting on another host has no `run` line yet. */
static void test_clean_unknown_host(void **state)
{
	const struct timespec before = {.tv_sec = time(NULL) - 3600};
	char *dir = ct_strdup(in_tmpdir("hosts/starting")),
	     *log = ct_strdup(in_tmpdir("hosts/starting/log/rank-00000.log")),
	     *launcher = ct_strdup(in_tmpdir("hosts/starting/log/launcher.log"));
	struct ct_run_list l;
	struct ct_clean_plan p;

	(void)state;
	assert_ok(ct_dir_make(in_tmpdir("hosts/starting/checkpoints")));
	for (int i = 0; i < 3; i++) {
		if (i == 0) /* an hour of silence */
			write_old(log, "");
		else if (i == 1) /* an earlier attempt has failed */
			write_old(launcher, "");
		assert_int_equal(utimensat(AT_FDCWD, i < 2 ? log : launcher, (struct timespec[]){before, before}, 0),
				 0);
		assert_int_equal(utimensat(AT_FDCWD, dir, (struct timespec[]){before, before}, 0), 0);
		assert_ok(ct_run_list_find(in_tmpdir("hosts"), &l));
		assert_int_equal(l.n, 1);
		expect_plan(&l, &p, i < 2 ? "" : "starting");
		ct_clean_release(&p);
		ct_run_list_release(&l);
	}
	ct_free(launcher);
	ct_free(log);
	ct_free(dir);
}

static int unlink_err; /* the error of the program's calls of unlink, which the linker sends here; 0: none */
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

int __wrap_unlink(const char *path)
{
	errno = unlink_err;
	return unlink_err ? -1 : __real_unlink(path);
}

/* Temporary files that killed processes have left in runs that have ended. */
static void test_clean_leftovers(void **state)
{
	static const struct {
		const char *name;
		int age_s;
	} files[] = {
		{"done/eval/classes.csv.tmp-22-5e", CT_FILE_LEFTOVER_S + 60},
		{"done/report.html.tmp-17-1a", CT_FILE_LEFTOVER_S + 60},
		{"done/config.yaml.tmp-18-2b", CT_FILE_LEFTOVER_S - 60},
		{"done/notes.txt.tmp-19-3c", CT_FILE_LEFTOVER_S + 60},
		{"done/log/postmortem.txt.tmp-20-4d", CT_FILE_LEFTOVER_S + 60},
		{"done/log/flight-00000.json.tmp-21", CT_FILE_LEFTOVER_S + 60},
		{"failed/token.tmp-23-6f", CT_FILE_LEFTOVER_S + 60}, /* goes with its run */
	};
	const char *kept[] = {files[2].name, files[3].name, files[5].name, files[6].name};
	struct ct_run_list l;
	struct ct_clean_plan p;
	bool removed;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		const struct timespec at = {.tv_sec = time(NULL) - files[i].age_s};
		char *path = ct_strfmt("%s/runs/%s", tmpdir, files[i].name);

		write_old(path, "x");
		assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){at, at}, 0), 0);
		ct_free(path);
	}
	find(&l, "name!=relost", "name", "broken deep/er/stopped done failed");
	expect_plan(&l, &p, "report.html.tmp-17-1a postmortem.txt.tmp-20-4d classes.csv.tmp-22-5e failed");
	for (size_t i = 0; i < 3; i++) {
		const struct timespec old[2] = {{.tv_sec = 5000}, {.tv_sec = 5000}};

		/* A process has written to it since. */
		assert_int_equal(utimensat(AT_FDCWD, p.items[i].path, NULL, 0), 0);
		assert_ok(ct_clean_remove(&p.items[i], &removed));
		assert_false(removed);
		assert_int_equal(utimensat(AT_FDCWD, p.items[i].path, old, 0), 0);
		unlink_err = EROFS;
		assert_fails(ct_clean_remove(&p.items[i], &removed), CT_IO, p.items[i].path);
		assert_false(removed);
		unlink_err = 0;
		assert_ok(ct_clean_remove(&p.items[i], &removed));
		assert_true(removed);
		assert_false(ct_file_exists(p.items[i].path));
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(kept); i++) {
		char *path = ct_strfmt("%s/runs/%s", tmpdir, kept[i]);

		assert_int_equal(unlink(path), 0);
		ct_free(path);
	}
	ct_clean_release(&p);
	ct_run_list_release(&l);
}

static void test_clean(void **state)
{
	struct ct_run_list l;
	struct ct_clean_plan p;
	bool removed;

	(void)state;
	for (int i = 1; i <= 4; i++) {
		char name[24];

		snprintf(name, sizeof(name), "step-%012d", i);
		add_checkpoint("done", name);
		add_checkpoint("deep/er/stopped", name);
	}
	add_checkpoint("broken", "step-000000000001");
	write_old(in_tmpdir("runs/relost/eval/classes.csv"), "");
	write_old(in_tmpdir("runs/relost/eval/confusion.png"), "");
	write_old(in_tmpdir("runs/relost/report.html"), "");
	write_old(in_tmpdir("runs/relost/.shared-0123456789abcdef"), "");
	write_old(in_tmpdir("runs/relost/log/.probe"), "");
	assert_int_equal(symlink("step-000000000002", in_tmpdir("runs/done/checkpoints/best")), 0);
	assert_int_equal(symlink("step-000000000004", in_tmpdir("runs/done/checkpoints/last")), 0);
	write_old(in_tmpdir("runs/done/checkpoints/step-000000000003/notes.txt"), "mine");
	find(&l, "", "name", "broken deep/er/stopped done failed lost relost");
	/* Not those that can be continued, and not what contains a file of the user. */
	expect_plan(&l, &p, "step-000000000001 failed lost relost");
	assert_non_null(strstr(ct_str_text(&p.kept), "ctrain has not written"));
	assert_non_null(strstr(ct_str_text(&p.kept), "step-000000000003/notes.txt"));
	/* A run that is in use, and one that has been continued since. */
	write_old(in_tmpdir("runs/lost/lock"), "1\n");
	int fd = open(in_tmpdir("runs/lost/lock"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_ok(ct_clean_remove(&p.items[2], &removed));
	assert_false(removed);
	close(fd);
	assert_int_equal(utimensat(AT_FDCWD, in_tmpdir("runs/relost/metrics.jsonl"), NULL, 0), 0);
	assert_ok(ct_clean_remove(&p.items[3], &removed));
	assert_false(removed);
	/* A file that has appeared since. */
	write_old(in_tmpdir("runs/lost/notes.txt"), "mine");
	assert_ok(ct_clean_remove(&p.items[2], &removed));
	assert_false(removed);
	assert_int_equal(unlink(in_tmpdir("runs/lost/notes.txt")), 0);
	assert_ok(ct_clean_remove(&p.items[2], &removed));
	assert_true(removed);
	assert_false(ct_file_exists(in_tmpdir("runs/lost")));
	assert_ok(ct_clean_remove(&p.items[0], &removed));
	assert_true(removed);
	assert_false(ct_file_exists(in_tmpdir("runs/done/checkpoints/step-000000000001")));
	for (int i = 2; i <= 4; i++) {
		char *path = ct_strfmt("%s/runs/done/checkpoints/step-%012d", tmpdir, i);

		assert_true(ct_file_exists(path));
		ct_free(path);
	}
	ct_clean_release(&p);
	ct_run_list_release(&l);
}

static enum ct_status note_line(void *user, const ct_json *line)
{
	ct_str_addf(user, "%s ", ct_line_str(line, "kind", "?"));
	return CT_OK;
}

static void expect_lines(struct ct_follow *f, bool replaced, const char *kinds)
{
	struct ct_str text = {0};
	bool again;

	assert_ok(ct_follow_poll(f, note_line, &text, &again));
	assert_int_equal(again, replaced);
	assert_string_equal(ct_str_text(&text), kinds);
	ct_str_release(&text);
}

static void append(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_follow(void **state)
{
	const char *path = in_tmpdir("follow.jsonl");
	struct ct_follow f;

	(void)state;
	assert_ok(ct_follow_open(&f, path));
	expect_lines(&f, false, ""); /* it does not exist yet */
	append(path, "{\"kind\":\"a\"}\n{\"kind\":\"b\"}\n{\"ki");
	expect_lines(&f, false, "a b ");
	expect_lines(&f, false, "");
	append(path, "nd\":\"c\"}\nnot JSON\n[1]\n{\"kind\":\"d\"}\n");
	expect_lines(&f, false, "c d ");
	/* Replaced, as by a run that continues; then cut. */
	assert_ok(ct_file_replace(path, "{\"kind\":\"a\"}\n{\"kind\":\"x\"}\n", 26));
	expect_lines(&f, true, "");
	expect_lines(&f, false, "a x ");
	assert_int_equal(truncate(path, 13), 0);
	expect_lines(&f, true, "");
	expect_lines(&f, false, "a ");
	append(path, "{\"kind\":\"y\"}\n");
	expect_lines(&f, false, "y ");
	ct_follow_close(&f);
}

static void test_text_table(void **state)
{
	struct ct_text_table t = {.n_columns = 3, .right = 2};
	struct ct_str out = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		ct_text_table_add(&t, NULL, "%c", 'a' + i);
	ct_text_table_add(&t, NULL, "line\nfeed");
	ct_text_table_add(&t, "\033[32m", "7");
	ct_text_table_add(&t, NULL, "%s", "");
	assert_ok(ct_text_table_format(&t, 0, false, &out));
	assert_string_equal(out.s, "a             b\nline\\x0afeed  7\n"); /* without the column that is empty */
	ct_str_clear(&out);
	assert_ok(ct_text_table_format(&t, 8, true, &out));
	assert_non_null(strstr(out.s, "line\\\033[0m...\n"));
	ct_str_release(&out);
	ct_text_table_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),          cmocka_unit_test(test_running),
		cmocka_unit_test(test_filter_and_sort), cmocka_unit_test(test_table),
		cmocka_unit_test(test_compare),         cmocka_unit_test(test_clean),
		cmocka_unit_test(test_clean_leftovers), cmocka_unit_test(test_clean_unknown_host),
		cmocka_unit_test(test_text_table),      cmocka_unit_test(test_follow),
	};

	return cmocka_run_group_tests(tests, setup, tmpdir_teardown);
}
