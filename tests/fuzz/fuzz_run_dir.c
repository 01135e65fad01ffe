/* The files of a run directory that ctrain reads again: metrics, config, classes, predictions, backtraces and the
 * leader of the job; and the report of the run, which is made from them. The input contains the files one after the
 * other, each after the line that `tail -n +1 FILE...` writes in front of it: "==> NAME <==". */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/job/postmortem/entry.h"
#include "trainer/launch/leader.h"
#include "trainer/run/evaluation/eval_files.h"
#include "trainer/tools/report/report.h"
#include "trainer/tools/runs/run_info.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"metrics.jsonl",        "config.yaml",          "classes.txt",         "leader",
				    "eval/predictions.csv", "eval/evaluation.json", "log/stacks-00000.txt"};
static char dir[] = "/tmp/ctrain-fuzz-XXXXXX";

static void must(enum ct_status st)
{
	if (st < 0)
		abort();
}

static void remove_dir(void)
{
	(void)!ct_dir_remove(dir);
}

static void in_dir(const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", dir, name);
}

static void create_dir(void)
{
	static bool created;
	char path[64];

	if (created)
		return;
	created = true;
	must(ct_log_configure("error"));
	if (!mkdtemp(dir))
		abort();
	atexit(remove_dir);
	in_dir("eval", path, sizeof(path));
	must(ct_dir_make(path));
	in_dir("log", path, sizeof(path));
	must(ct_dir_make(path));
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
	char path[64];
	int fd;

	in_dir(name, path, sizeof(path));
	must(ct_file_open(path, CT_FILE_NEW, &fd));
	must(ct_fd_write_all(fd, data, size, path));
	close(fd);
}

/* Writes the part of the input that begins with the line of this name. */
static void write_part(const char *name, const uint8_t *data, size_t size)
{
	static const char mark[] = "==> ";
	char line[64], path[64];
	const uint8_t *at, *end;

	in_dir(name, path, sizeof(path));
	(void)unlink(path);
	snprintf(line, sizeof(line), "%s%s <==\n", mark, name);
	at = size > 0 ? memmem(data, size, line, strlen(line)) : NULL;
	if (!at)
		return;
	at += strlen(line);
	end = memmem(at, size - (size_t)(at - data), mark, strlen(mark));
	write_file(name, at, (size_t)((end ? end : data + size) - at));
}

static void read_run(void)
{
	struct ct_run_info run;

	if (ct_run_info_load(dir, "run", &run) == CT_OK) {
		for (size_t i = 0; i < run.files.n_settings; i++) {
			if (!ct_run_setting(&run, run.files.settings[i].key))
				__builtin_trap();
		}
	}
	ct_run_info_release(&run);
	ct_error_clear();
}

static void read_predictions(void)
{
	struct ct_predictions p;
	struct ct_scores s = {0};
	char path[64];

	in_dir("eval", path, sizeof(path));
	if (ct_eval_files_load(path, &p) == CT_OK && ct_scores_create(&p, &s) == CT_OK) {
		uint32_t n = 0;

		for (int i = 0; i < CT_CALIBRATION_BINS; i++)
			n += s.bins[i].n;
		if (n != s.n || s.correct > s.n || !(s.calibration_error >= 0 && s.calibration_error <= 1))
			__builtin_trap();
	}
	ct_scores_release(&s);
	ct_predictions_release(&p);
	ct_error_clear();
}

static void read_leader(void)
{
	struct ct_leader l;
	struct ct_str line = {0};

	if (ct_leader_read(dir, &l, &line) == CT_OK && (l.number < -1 || l.port < 0 || l.port > 65535 || l.used < 0))
		__builtin_trap();
	ct_str_release(&line);
	ct_error_clear();
}

static void read_backtraces(void)
{
	const struct ct_rank_end end = {.host = "a", .wait_status = -1};
	ct_json *entry = ct_postmortem_entry(dir, &end, NULL);
	struct ct_str text = {0};

	if (ct_json_dump(entry, false, &text) < 0)
		__builtin_trap();
	ct_str_release(&text);
	ct_json_destroy(entry);
}

static void write_report(void)
{
	const char *const runs[] = {dir};
	char path[64];

	in_dir("report.html", path, sizeof(path));
	if (ct_report_write(runs, 1, path) < 0)
		ct_error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	create_dir();
	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++)
		write_part(names[i], data, size);
	read_run();
	read_predictions();
	read_leader();
	read_backtraces();
	write_report();
	return 0;
}
