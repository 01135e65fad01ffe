/* The page of a rank outlives it, so it shows what a rank did that was killed. The states of processes are read before
 * the launcher kills them; a state that is not 0 therefore marks a rank that did not end by itself. A SIGKILL that did
 * not come from the launcher is the kernel's if the counter of the control group has grown since the start. Reporting
 * keeps the error chain, and adds only a hint. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/witness.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/job/postmortem/entry.h"
#include "trainer/job/postmortem/oom.h"
#include "trainer/job/postmortem/postmortem.h"

#define GROUPS "/proc/self/cgroup", "/sys/fs/cgroup"

enum ct_status ct_witness_open(struct ct_witness *w, int n)
{
	*w = (struct ct_witness){.n = n, .oom_kills = ct_oom_kills(GROUPS), .started = ct_wall_seconds()};
	return (w->states = CT_NEW_ARRAY(char, (size_t)n)) ? CT_OK : CT_NOMEM;
}

void ct_witness_close(struct ct_witness *w)
{
	ct_free(w->states);
	*w = (struct ct_witness){0};
}

static char state_of(pid_t pid)
{
	char path[48], text[512] = "";
	const char *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	(void)fclose(f);
	end = strrchr(text, ')'); /* of the program's name */
	return end && end[1] == ' ' ? end[2] : 0;
}

void ct_witness_note_states(struct ct_witness *w, const struct ct_worker *workers)
{
	for (int i = 0; i < w->n; i++) {
		if (workers[i].pid > 0 && !workers[i].ended)
			w->states[i] = state_of(workers[i].pid);
	}
}

static bool was_killed(const struct ct_witness *w, const struct ct_worker *workers, int i)
{
	return workers[i].ended && WIFSIGNALED(workers[i].wait_status) && !w->states[i];
}

static bool has_worked(const struct ct_witness *w, const struct ct_worker *workers)
{
	for (int i = 0; i < w->n; i++) {
		if (was_killed(w, workers, i) || ct_rank_phase_has_worked(ct_rank_page_position(workers[i].page).phase))
			return true;
	}
	return false;
}

static bool ran_out_of_memory(const struct ct_witness *w)
{
	return w->oom_kills >= 0 && ct_oom_kills(GROUPS) > w->oom_kills;
}

void ct_witness_explain_kill(const struct ct_witness *w, const char *less)
{
	const uint64_t limit = ct_oom_limit(GROUPS);
	char bytes[CT_BYTES_TEXT];

	if (!ran_out_of_memory(w))
		ct_error_hint(w->oom_kills < 0 ? "kill -9, or the kernel ran out of memory (see dmesg)"
					       : "a user or the batch system has used kill -9");
	else if (limit > 0)
		ct_error_hint(
			"the kernel killed it because memory ran out: the limit of its control group is %s; raise it, or use %s",
			ct_bytes_text(limit, bytes), less);
	else
		ct_error_hint("the kernel killed it because memory ran out; use %s", less);
}

static ct_json *entries_of(const struct ct_witness *w, const struct ct_worker *workers, int node, const char *run_dir)
{
	ct_json *list = ct_json_array();
	char host[65] = "?";
	const bool oom = ran_out_of_memory(w);

	(void)gethostname(host, sizeof(host) - 1);
	for (int i = 0; i < w->n; i++) {
		const struct ct_worker *k = &workers[i];
		const bool by_kernel = oom && was_killed(w, workers, i) && WTERMSIG(k->wait_status) == SIGKILL;
		const struct ct_rank_end end = {.rank = k->rank,
						.pid = (int)k->pid,
						.node = node,
						.host = host,
						.wait_status = k->ended ? k->wait_status : -1,
						.error = ct__worker_error(k),
						.killed_by_launcher = w->states[i] != 0,
						.state = w->states[i],
						.out_of_memory = by_kernel,
						.memory_limit = by_kernel ? ct_oom_limit(GROUPS) : 0};

		if (k->pid > 0)
			ct_json_push(list, ct_postmortem_entry(run_dir, &end, k->page));
	}
	return list;
}

/* A failure without a record in the store, for example of a single rank. */
static void describe(const struct ct_worker *w, struct ct_failure *out)
{
	*out = (struct ct_failure){
		.rank = w->rank, .pid = (int)w->pid, .status = ct_error_status(), .at = ct_rank_page_position(w->page)};
	snprintf(out->message, sizeof(out->message), "%.639s", ct_error_message());
}

void ct_witness_report(const struct ct_witness *w, const struct ct_worker *workers, int node, int world,
		       const char *run_dir, const struct ct_failure *failure, int first)
{
	struct ct_postmortem_job job = {.world = world, .started = w->started, .failure = failure};
	struct ct_failure own;
	struct ct_error keep;
	enum ct_status st;

	if (!run_dir || ct_error_status() >= 0 || ct_error_status() == CT_INTERRUPTED || !has_worked(w, workers))
		return;
	if (first >= 0)
		describe(&workers[first], &own);
	if (!failure && first >= 0)
		job.failure = &own;
	ct_error_save(&keep);
	st = ct_postmortem_add(run_dir, &job, entries_of(w, workers, node, run_dir));
	if (st < 0)
		CT_WARN("cannot write the report of the failure: %s", ct_error_message());
	(void)ct_error_restore(&keep);
	if (st == CT_OK)
		ct_error_hint("%s/log/postmortem.txt describes what each rank was doing", run_dir);
}
