/* What is known comes from three places, each of which may be missing: the line that Slurm prints for the job, the last
 * bytes of its log, and the last bytes of metrics.jsonl. A field or file that cannot be read is left out and its error
 * is cleared. The run directory is in the comment of the job; in a job array, %a in it stands for the index of the
 * task. The last line of metrics.jsonl may be incomplete while the run writes it, so lines are tried from the end. Log
 * lines are escaped before they are shown. */
#include "trainer/launch/slurm/job_status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process/subprocess.h"
#include "trainer/job/slurm/job.h"
#include "trainer/launch/slurm/script.h"

#define TAIL_BYTES (64 << 10)
#define REQUEST_NS (20 * CT_SEC)

/* Reads the last bytes of a file, from the start of a line. Returns an empty string if the file cannot be read. */
static void read_tail(const char *path, struct ct_str *out)
{
	struct stat sb;
	int fd;
	char *data = NULL;

	if (ct_file_open(path, CT_FILE_READ, &fd) < 0) {
		ct_error_clear();
		return;
	}
	if (fstat(fd, &sb) == 0 && (data = ct_calloc(TAIL_BYTES + 1, 1))) {
		off_t from = sb.st_size > TAIL_BYTES ? sb.st_size - TAIL_BYTES : 0;
		ssize_t n = pread(fd, data, TAIL_BYTES, from);

		data[n > 0 ? n : 0] = '\0';
		const char *first = from > 0 ? strchr(data, '\n') : NULL;
		ct_str_add(out, first ? first + 1 : data);
	}
	ct_free(data);
	close(fd);
}

/* Cuts off the last line and returns it, or NULL if there is none. */
static char *pop_line(struct ct_str *text)
{
	while (text->len > 0 && text->s[text->len - 1] == '\n')
		text->s[--text->len] = '\0';
	if (text->len == 0)
		return NULL;
	char *nl = strrchr(text->s, '\n'), *line = nl ? nl + 1 : text->s;
	text->len = (size_t)(line - text->s);
	return line;
}

static void add_log(ct_json *o, const char *path, int n_lines)
{
	struct ct_str text = {0};
	ct_json *lines = ct_json_array();
	const char *p;

	read_tail(path, &text);
	size_t n = 0, skip;
	for (const char *c = ct_str_text(&text); *c; c++)
		n += *c == '\n' || !c[1];
	skip = n > (size_t)n_lines ? n - (size_t)n_lines : 0;
	for (p = ct_str_text(&text); *p; p += strspn(p, "\n")) {
		size_t len = strcspn(p, "\n");
		char *line = skip > 0 ? NULL : ct_strndup(p, len);

		if (line)
			ct_json_push_str(lines, line);
		ct_free(line);
		skip -= skip > 0;
		p += len;
	}
	ct_json_set(o, "log_tail", lines);
	ct_str_release(&text);
}

/* Adds the last object of the metrics that has a step. */
static void add_progress(ct_json *o, const char *run_dir)
{
	struct ct_str text = {0};
	char *path = ct_path_join(run_dir, "metrics.jsonl"), *line;
	ct_json *found = NULL;
	int64_t step;

	if (path)
		read_tail(path, &text);
	while (!found && (line = pop_line(&text))) {
		if (ct_json_parse(line, strlen(line), path, &found) < 0) {
			ct_error_clear(); /* the last line may be incomplete */
			found = NULL;
		} else if (ct_json_get_i64(found, "step", &step) < 0) {
			ct_error_clear();
			ct_json_destroy(found);
			found = NULL;
		}
		*line = '\0';
	}
	if (found)
		ct_json_set(o, "last", found);
	ct_str_release(&text);
	ct_free(path);
}

static void copy_field(ct_json *o, const char *line, const char *name, const char *key)
{
	char value[PATH_MAX];

	if (ct_slurm_field(line, name, value, sizeof(value)) && value[0] && strcmp(value, "(null)") != 0)
		ct_json_set_str(o, key, value);
}

/* Returns the run directory in the comment of a job, or NULL. The caller owns the result. */
static char *find_run_dir(const char *line)
{
	char comment[PATH_MAX], work[PATH_MAX], index[32];
	const char *dir = comment + strlen(CT_SLURM_COMMENT);
	char *out;

	(void)ct_slurm_field(line, "Comment", comment, sizeof(comment));
	(void)ct_slurm_field(line, "WorkDir", work, sizeof(work));
	if (strncmp(comment, CT_SLURM_COMMENT, strlen(CT_SLURM_COMMENT)) != 0)
		return NULL;
	char *place = strstr(comment, "%a");
	if (!place || !ct_slurm_field(line, "ArrayTaskId", index, sizeof(index)))
		return ct_path_join(work, dir);
	*place = '\0';
	char *joined = ct_path_join(work, dir);
	out = joined ? ct_strfmt("%s%s%s", joined, index, place + 2) : NULL;
	ct_free(joined);
	return out;
}

ct_json *ct_slurm_status(const char *line, int n_lines)
{
	static const char *const fields[][2] = {
		{"JobName", "name"},     {"JobState", "state"},       {"Reason", "reason"},
		{"RunTime", "run_time"}, {"TimeLimit", "time_limit"}, {"Restarts", "restarts"},
		{"NodeList", "nodes"},   {"StartTime", "start_time"}, {"StdOut", "log"}};
	ct_json *o = ct_json_object();
	char array[32], index[32], job[80], *run_dir = find_run_dir(line);
	const char *log;

	(void)ct_slurm_field(line, "JobId", job, sizeof(job));
	if (ct_slurm_field(line, "ArrayJobId", array, sizeof(array)) &&
	    ct_slurm_field(line, "ArrayTaskId", index, sizeof(index)))
		snprintf(job, sizeof(job), "%s_%s", array, index);
	ct_json_set_str(o, "job", job);
	for (size_t i = 0; i < CT_ARRAY_LEN(fields); i++)
		copy_field(o, line, fields[i][0], fields[i][1]);
	if (run_dir) {
		ct_json_set_str(o, "run_dir", run_dir);
		add_progress(o, run_dir);
	}
	if (ct_json_get_str(o, "log", &log) == CT_OK)
		add_log(o, log, n_lines);
	else
		ct_error_clear();
	ct_free(run_dir);
	return o;
}

static const char *text_of(const ct_json *o, const char *key)
{
	const ct_json *v = ct_json_get(o, key);
	const char *s = v ? ct_json_as_str(v) : NULL;

	return s ? s : "";
}

static void add_last(const ct_json *last, struct ct_str *out)
{
	int64_t step;
	double loss;

	if (!last || !ct_json_get(last, "step") || !ct_json_as_i64(ct_json_get(last, "step"), &step))
		return;
	ct_str_addf(out, ", at step %lld", (long long)step);
	if (ct_json_get(last, "loss") && ct_json_as_f64(ct_json_get(last, "loss"), &loss))
		ct_str_addf(out, ", loss %.4g", loss);
	if (strcmp(text_of(last, "kind"), "end") == 0)
		ct_str_addf(out, " (%s)", text_of(last, "status"));
}

void ct_slurm_status_text(const ct_json *o, struct ct_str *out)
{
	const char *state = text_of(o, "state"), *reason = text_of(o, "reason"), *nodes = text_of(o, "nodes");
	const ct_json *lines = ct_json_get(o, "log_tail");

	ct_str_addf(out, "job %s (%s): %s", text_of(o, "job"), text_of(o, "name"), state);
	if (reason[0] && strcmp(reason, "None") != 0)
		ct_str_addf(out, " (%s)", reason);
	if (strcmp(state, "PENDING") == 0)
		ct_str_addf(out, ", starts at %s", text_of(o, "start_time"));
	else
		ct_str_addf(out, " for %s of %s%s%s", text_of(o, "run_time"), text_of(o, "time_limit"),
			    nodes[0] ? " on " : "", nodes);
	if (strcmp(text_of(o, "restarts"), "0") != 0)
		ct_str_addf(out, ", restarts: %s", text_of(o, "restarts"));
	ct_str_add(out, "\n");
	if (text_of(o, "run_dir")[0]) {
		ct_str_addf(out, "  run directory  %s", text_of(o, "run_dir"));
		add_last(ct_json_get(o, "last"), out);
		ct_str_add(out, "\n");
	}
	if (text_of(o, "log")[0])
		ct_str_addf(out, "  log            %s\n", text_of(o, "log"));
	for (size_t i = 0; lines && i < ct_json_len(lines); i++) {
		const char *line = ct_json_as_str(ct_json_at(lines, i));

		ct_str_add(out, "    | ");
		ct_str_add_escaped(out, line ? line : "", line ? strlen(line) : 0, 200);
		ct_str_add(out, "\n");
	}
}

enum ct_status ct_slurm_own_jobs(struct ct_str *out)
{
	struct ct_str text = {0};
	enum ct_status st =
		ct_subprocess_run((const char *const[]){"squeue", "-h", "--me", "-t", "all", "-r", "-o", "%i %k", NULL},
				  ct_deadline_in(REQUEST_NS), &text);

	for (const char *p = ct_str_text(&text); st == CT_OK && *p; p += *p == '\n') {
		size_t len = strcspn(p, "\n"), id = strcspn(p, " \n");

		if (id < len && strncmp(p + id + 1, CT_SLURM_COMMENT, strlen(CT_SLURM_COMMENT)) == 0) {
			ct_str_add_bytes(out, p, id);
			ct_str_add(out, "\n");
		}
		p += len;
	}
	ct_str_release(&text);
	return st;
}
