/* The signal handlers of a rank may call only async-signal-safe functions, so they write addresses and the memory map
 * of their process; names are found here, by another process, when the report is made. All frames but the first are
 * return addresses, which point after the call. The page is read while its rank may still write it: its numbers are
 * atomic, and a string may be that of a moment before. What is not known is omitted from the entry. */
#include "trainer/job/postmortem/entry.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process/symbols.h"
#include "dist/comm/comm.h"

#define STACKS_NAME "stacks-%05d.txt"
#define STACKS_MAX_BYTES (4 << 20)
#define LAST_RECORDS 4

char *ct_postmortem_stacks_path(const char *run_dir, int rank)
{
	return ct_strfmt("%s/log/" STACKS_NAME, run_dir, rank);
}

/* Returns the rank to which a file of this name belongs, or -1 if it is not such a file. */
static int stacks_rank(const char *name)
{
	char same[32];
	int rank;

	if (sscanf(name, "stacks-%d", &rank) != 1 || rank < 0)
		return -1;
	snprintf(same, sizeof(same), STACKS_NAME, rank);
	return strcmp(name, same) == 0 ? rank : -1;
}

enum ct_status ct_postmortem_stacks_ranks(const char *run_dir, int **ranks, size_t *n)
{
	char **names, *log;
	size_t n_names;
	enum ct_status st;

	CT_TRY_ALLOC(log = ct_path_join(run_dir, "log"));
	st = ct_dir_list(log, &names, &n_names);
	ct_free(log);
	CT_TRY(st);
	*n = 0;
	*ranks = CT_NEW_ARRAY(int, n_names + 1);
	for (size_t i = 0; *ranks && i < n_names; i++) {
		const int rank = stacks_rank(names[i]);

		if (rank >= 0)
			(*ranks)[(*n)++] = rank;
	}
	ct_dir_list_free(names, n_names);
	return *ranks ? CT_OK : CT_NOMEM;
}

enum ct_status ct_postmortem_remove_stacks(const char *run_dir, int world)
{
	int *ranks;
	size_t n;
	enum ct_status st = CT_OK;

	CT_TRY(ct_postmortem_stacks_ranks(run_dir, &ranks, &n));
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		if (ranks[i] < world)
			continue;
		char *path = ct_postmortem_stacks_path(run_dir, ranks[i]);

		if (path)
			(void)unlink(path);
		else
			st = CT_NOMEM;
		ct_free(path);
	}
	ct_free(ranks);
	return st;
}

/* ---- backtraces */

static ct_symbols *read_maps(const char *data)
{
	ct_symbols *s;

	if (ct_symbols_create(&s) < 0)
		return NULL;
	for (const char *m = strstr(data, "\nmap "); m; m = strstr(m + 1, "\nmap ")) {
		if (ct_symbols_add_map(s, m + strlen("\nmap ")) < 0)
			break;
	}
	return s;
}

/* "thread TID NAME" */
static ct_json *thread_json(const char *line)
{
	ct_json *t = ct_json_object();
	char *end;

	ct_json_set_i64(t, "tid", strtoll(line, &end, 10));
	ct_json_set_str(t, "name", *end == ' ' ? end + 1 : end);
	return t;
}

static void end_thread(ct_json *threads, ct_json *thread, ct_json *frames)
{
	if (!thread)
		return;
	ct_json_set(thread, "frames", frames);
	ct_json_push(threads, thread);
}

/* Turns the contents of a file of backtraces into an object. Changes data. */
static ct_json *stacks_json(char *data)
{
	ct_json *o = ct_json_object(), *threads = ct_json_array(), *thread = NULL, *frames = NULL;
	ct_symbols *s = read_maps(data);
	char name[512], *line, *rest = data;

	while (s && (line = strsep(&rest, "\n"))) {
		if (strncmp(line, "reason ", 7) == 0) {
			ct_json_set_str(o, "reason", line + 7);
		} else if (strncmp(line, "thread ", 7) == 0) {
			end_thread(threads, thread, frames);
			thread = thread_json(line + 7);
			frames = ct_json_array();
		} else if (strncmp(line, "at ", 3) == 0 && frames) {
			ct_symbols_name(s, strtoull(line + 3, NULL, 16), ct_json_len(frames) > 0, name, sizeof(name));
			ct_json_push_str(frames, name);
		}
	}
	end_thread(threads, thread, frames);
	ct_symbols_destroy(s);
	ct_json_set(o, "threads", threads);
	return o;
}

static void add_stacks(ct_json *e, const char *run_dir, int rank)
{
	char *path = ct_postmortem_stacks_path(run_dir, rank), *data;
	size_t len;

	if (path && ct_file_read(path, STACKS_MAX_BYTES, &data, &len) == CT_OK) {
		ct_json_set(e, "stacks", stacks_json(data));
		ct_free(data);
	}
	ct_error_clear();
	ct_free(path);
}

/* ---- the page */

static ct_json *loader_json(const struct ct_rank_page *p)
{
	const int64_t now_ns = ct_now_ns();
	ct_json *list = ct_json_array();

	for (int i = 0; i < CT_RANK_THREADS; i++) {
		const struct ct_rank_thread *t = &p->threads[i];
		const int64_t tid = atomic_load(&t->tid), doing = atomic_load(&t->doing);
		ct_json *o;

		if (tid == 0)
			continue;
		o = ct_json_object();
		ct_json_set_i64(o, "tid", tid);
		ct_json_set_str(o, "doing", ct_doing_text(doing));
		if (doing != CT_DOING_WAIT)
			ct_json_set_i64(o, "number", atomic_load(&t->number));
		ct_json_set_f64(o, "seconds", (double)(now_ns - atomic_load(&t->since_ns)) * 1e-9);
		ct_json_push(list, o);
	}
	return list;
}

static void add_page(ct_json *e, const struct ct_rank_page *p)
{
	const struct ct_position at = ct_rank_page_position(p);
	char doing[CT_POSITION_TEXT];

	ct_position_text(doing, sizeof(doing), &at);
	if (doing[0])
		ct_json_set_str(e, "phase", doing);
	ct_json_set(e, "loader", loader_json(p));
	ct_json_set(e, "communicators", ct_flights_of_page(p, LAST_RECORDS));
}

/* ---- the end of the process */

static void add_end(ct_json *e, const struct ct_rank_end *d)
{
	const bool signaled = d->wait_status >= 0 && WIFSIGNALED(d->wait_status);
	const char state[2] = {d->state, '\0'};

	if (signaled) {
		ct_json_set_i64(e, "signal", WTERMSIG(d->wait_status));
		ct_json_set_str(e, "signal_name", strsignal(WTERMSIG(d->wait_status)));
	} else if (d->wait_status >= 0) {
		ct_json_set_i64(e, "exit_code", WEXITSTATUS(d->wait_status));
	}
	ct_json_set_bool(e, "killed_by_launcher", d->killed_by_launcher && signaled);
	if (d->state)
		ct_json_set_str(e, "state", state);
	ct_json_set_bool(e, "out_of_memory", d->out_of_memory);
	if (d->memory_limit > 0)
		ct_json_set_i64(e, "memory_limit", (int64_t)d->memory_limit);
	if (d->error) {
		ct_json_set_str(e, "status", ct_status_name(d->error->status));
		ct_json_set_str(e, "message", d->error->message);
	}
}

ct_json *ct_postmortem_entry(const char *run_dir, const struct ct_rank_end *end, const struct ct_rank_page *page)
{
	ct_json *e = ct_json_object();

	ct_json_set_i64(e, "rank", end->rank);
	ct_json_set_i64(e, "pid", end->pid);
	ct_json_set_i64(e, "node", end->node);
	ct_json_set_str(e, "host", end->host);
	add_end(e, end);
	if (page)
		add_page(e, page);
	add_stacks(e, run_dir, end->rank);
	return e;
}
