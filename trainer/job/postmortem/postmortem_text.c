/* The text of the report after a failure. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "trainer/job/postmortem/postmortem.h"

/* Values that are missing are normal, because ranks may end at any time. */
static const char *str(const ct_json *o, const char *key)
{
	const ct_json *v = o ? ct_json_get(o, key) : NULL;
	const char *s = v ? ct_json_as_str(v) : NULL;

	return s ? s : "";
}

static int64_t i64(const ct_json *o, const char *key, int64_t otherwise)
{
	const ct_json *v = o ? ct_json_get(o, key) : NULL;
	int64_t n = otherwise;

	return v && ct_json_as_i64(v, &n) ? n : otherwise;
}

static double f64(const ct_json *o, const char *key)
{
	const ct_json *v = o ? ct_json_get(o, key) : NULL;
	double d = NAN;

	return v && ct_json_as_f64(v, &d) ? d : NAN;
}

static bool flag(const ct_json *o, const char *key)
{
	bool b = false;

	if (ct_json_get_bool(o, key, &b) < 0)
		ct_error_clear();
	return b;
}

static void add_memory(const ct_json *e, struct ct_str *out)
{
	char bytes[CT_BYTES_TEXT];
	int64_t limit = i64(e, "memory_limit", 0);

	ct_str_add(out, " by the kernel, because memory ran out");
	if (limit > 0)
		ct_str_addf(out, " (limit of the control group: %s)", ct_bytes_text((uint64_t)limit, bytes));
}

/* "was killed by signal 9 (Killed)", "ended with exit code 5" ... */
static void add_end(const ct_json *e, struct ct_str *out)
{
	const int64_t sig = i64(e, "signal", 0), code = i64(e, "exit_code", -1);

	if (sig > 0 && flag(e, "killed_by_launcher"))
		ct_str_add(out, "did not end by itself: the launcher killed it");
	else if (sig > 0)
		ct_str_addf(out, "was killed by signal %d (%s)", (int)sig, str(e, "signal_name"));
	else if (code >= 0)
		ct_str_addf(out, "ended with exit code %d", (int)code);
	else
		ct_str_add(out, "ended");
	if (flag(e, "out_of_memory"))
		add_memory(e, out);
	if (strcmp(str(e, "state"), "T") == 0)
		ct_str_add(out, "; it was stopped (SIGSTOP, a debugger, or Ctrl-Z)");
	else if (strcmp(str(e, "state"), "D") == 0)
		ct_str_add(out, "; it waited for a device or a file system (state D)");
	ct_str_add(out, "\n");
	if (str(e, "message")[0])
		ct_str_addf(out, "  message    %s\n", str(e, "message"));
}

static void add_operation(const ct_json *r, struct ct_str *out)
{
	const double ago = f64(r, "posted_ms_ago"), done = f64(r, "done_ms");
	const int64_t bucket = i64(r, "bucket", -1), step = i64(r, "step", -1), number = i64(r, "collective", 0);

	if (bucket >= 0)
		ct_str_addf(out, "bucket %d of step %lld: ", (int)bucket, (long long)step);
	else if (step >= 0)
		ct_str_addf(out, "step %lld: ", (long long)step);
	ct_str_addf(out, "%s %s[%lld]", str(r, "op"), str(r, "type"), (long long)i64(r, "count", 0));
	if (str(r, "parameters")[0])
		ct_str_addf(out, ", %s", str(r, "parameters"));
	if (number > 0)
		ct_str_addf(out, " (collective %lld)", (long long)number);
	if (isnan(done))
		ct_str_addf(out, ": not done, %s %.3f s before this report\n", str(r, "state"), ago * 1e-3);
	else
		ct_str_addf(out, ": done %.3f s before this report\n", (ago - done) * 1e-3);
}

static void add_communicators(const ct_json *list, struct ct_str *out)
{
	for (size_t i = 0; list && i < ct_json_len(list); i++) {
		const ct_json *c = ct_json_at(list, i), *records = ct_json_get(c, "records");
		const size_t n = records ? ct_json_len(records) : 0;

		for (size_t k = n > 2 ? n - 2 : 0; k < n; k++) {
			ct_str_addf(out, "  %-10s ", k + 1 == n ? "last" : "before");
			if (ct_json_len(list) > 1)
				ct_str_addf(out, "[%s] ", str(c, "scope"));
			add_operation(ct_json_at(records, k), out);
		}
	}
}

static void add_loader(const ct_json *list, struct ct_str *out)
{
	for (size_t i = 0; list && i < ct_json_len(list); i++) {
		const ct_json *t = ct_json_at(list, i);
		const int64_t number = i64(t, "number", -1);

		ct_str_addf(out, "  loader     thread %lld %s", (long long)i64(t, "tid", 0), str(t, "doing"));
		if (number >= 0)
			ct_str_addf(out, " %lld", (long long)number);
		ct_str_addf(out, ", since %.3f s before this report\n", f64(t, "seconds"));
	}
}

static size_t n_frames(const ct_json *thread)
{
	const ct_json *frames = ct_json_get(thread, "frames");

	return frames ? ct_json_len(frames) : 0;
}

static const char *frame(const ct_json *thread, size_t i)
{
	const char *s = ct_json_as_str(ct_json_at(ct_json_get(thread, "frames"), i));

	return s ? s : "";
}

static bool same_frames(const ct_json *a, const ct_json *b)
{
	const size_t n = n_frames(a);

	if (n != n_frames(b))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(frame(a, i), frame(b, i)) != 0)
			return false;
	}
	return true;
}

/* Threads with the same backtrace, such as compute threads, are shown once. */
static void add_stacks(const ct_json *stacks, struct ct_str *out)
{
	const ct_json *threads = stacks ? ct_json_get(stacks, "threads") : NULL;

	for (size_t i = 0; threads && i < ct_json_len(threads); i++) {
		const ct_json *t = ct_json_at(threads, i);

		ct_str_addf(out, "  backtrace  of thread %lld (%s)", (long long)i64(t, "tid", 0), str(t, "name"));
		while (i + 1 < ct_json_len(threads) && same_frames(t, ct_json_at(threads, i + 1))) {
			i++;
			ct_str_addf(out, ", %lld", (long long)i64(ct_json_at(threads, i), "tid", 0));
		}
		ct_str_add(out, "\n");
		for (size_t k = 0; k < n_frames(t); k++)
			ct_str_addf(out, "      %s\n", frame(t, k));
	}
}

static void add_rank(const ct_json *e, int64_t first, struct ct_str *out)
{
	const int64_t rank = i64(e, "rank", -1), pid = i64(e, "pid", 0);

	ct_str_addf(out, "\nrank %d", (int)rank);
	if (pid > 0)
		ct_str_addf(out, " (pid %d on %s)", (int)pid, str(e, "host"));
	ct_str_addf(out, "%s ", rank == first ? ", which failed first," : "");
	add_end(e, out);
	if (str(e, "phase")[0])
		ct_str_addf(out, "  phase      %s\n", str(e, "phase"));
	add_communicators(ct_json_get(e, "communicators"), out);
	add_loader(ct_json_get(e, "loader"), out);
	add_stacks(ct_json_get(e, "stacks"), out);
}

/* Ranks of nodes that do not share the run directory, or whose launcher was killed, too. */
static void add_missing(const ct_json *ranks, int64_t world, struct ct_str *out)
{
	enum { MOST = 64 }; /* ranks to name; world may be any number if the file was changed */
	int n = 0;

	for (int64_t r = 0; r < world && n <= MOST; r++) {
		bool found = false;

		for (size_t i = 0; i < ct_json_len(ranks) && !found; i++)
			found = i64(ct_json_at(ranks, i), "rank", -1) == r;
		if (!found && n == MOST)
			ct_str_add(out, " and others");
		else if (!found)
			ct_str_addf(out, "%s%lld", n == 0 ? "\nNothing is known here of rank " : ", ", (long long)r);
		n += !found;
	}
	if (n > 0)
		ct_str_add(out,
			   ": it was killed together with its launcher, or its node writes to another directory.\n");
}

static void add_report(const ct_json *report, struct ct_str *out)
{
	const ct_json *failure = ct_json_get(report, "failure"), *ranks = ct_json_get(report, "ranks");
	const double seconds = f64(report, "time");
	const time_t when = seconds > 0 && seconds < 1e11 ? (time_t)seconds : 0;
	char text[32] = "";
	struct tm tm;

	if (when > 0 && gmtime_r(&when, &tm) && strftime(text, sizeof(text), " (%Y-%m-%d %H:%M:%S UTC)", &tm) == 0)
		text[0] = '\0';
	ct_str_addf(out, "The run has failed%s.\n", text);
	if (failure)
		ct_str_addf(out, "First failure: %s\n", str(failure, "message"));
	for (size_t i = 0; ranks && i < ct_json_len(ranks); i++)
		add_rank(ct_json_at(ranks, i), i64(failure, "rank", -1), out);
	if (ranks)
		add_missing(ranks, i64(report, "world_size", 0), out);
}

/* The strings are those of other processes, or of a file that anyone may have changed. */
void ct_postmortem_text(const ct_json *report, struct ct_str *out)
{
	struct ct_str raw = {0};

	add_report(report, &raw);
	ct_str_add_lines(out, ct_str_text(&raw));
	out->failed = out->failed || raw.failed;
	ct_str_release(&raw);
}
