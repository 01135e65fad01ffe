/* The store is asked every half second which ranks have joined. On a terminal the text replaces itself; it is drawn so
 * that the cursor stays in the first column, and other output can follow at any time. Elsewhere a line appears when the
 * text has changed, and otherwise at intervals that double, so a log does not fill up in a long wait. Nothing is
 * printed if all nodes join quickly. An unreachable store is not an error here: the line says why, and the ranks have
 * their own timeouts. */
#include "trainer/launch/waiting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/process/terminal.h"
#include "trainer/launch/workers_impl.h"

#define LOOK_NS (500 * CT_MS)
#define FIRST_NS (2 * CT_SEC) /* nodes that are started by a script join within this time, and nothing is printed */
#define PAUSE_NS (5 * CT_SEC) /* between equal lines; doubles */
#define PAUSE_MAX_NS (60 * CT_SEC)

void ct_waiting_begin(struct ct_waiting *w, const struct ct_job_store *j, const struct ct_config *cfg)
{
	*w = (struct ct_waiting){.done = !j->watch || j->roll.n_nodes < 2, .limit_s = cfg->dist.rendezvous_timeout};
	w->live = ct_terminal_is_live(STDERR_FILENO);
	w->start_ns = ct_now_ns();
	w->look_at_ns = w->start_ns + LOOK_NS;
	w->print_at_ns = w->start_ns + FIRST_NS;
	w->pause = (struct ct_backoff){PAUSE_NS, PAUSE_MAX_NS};
}

int64_t ct_waiting_due(const struct ct_waiting *w)
{
	return w->done ? CT_FOREVER : w->look_at_ns;
}

/* The first column is where the next output begins, so the line needs no line feed. */
static void draw(struct ct_waiting *w, const char *text)
{
	struct ct_str line = {0};
	int columns = ct_terminal_columns(STDERR_FILENO, 80) - 1;

	ct_str_addf(&line, "\r\033[J%.*s\r", columns, text);
	ct_output_transient(STDERR_FILENO, ct_str_text(&line), line.len);
	ct_str_release(&line);
	w->shown = true;
}

static void print(struct ct_waiting *w, const char *text, const char *time)
{
	bool changed = strcmp(text, ct_str_text(&w->last)) != 0;
	int64_t now = ct_now_ns();

	if (w->live) {
		struct ct_str line = {0};

		ct_str_addf(&line, "%s%s", text, time);
		draw(w, ct_str_text(&line));
		ct_str_release(&line);
		return;
	}
	if (now < w->print_at_ns && !(changed && w->shown))
		return;
	ct_output_print(STDERR_FILENO, "%s%s\n", text, time);
	ct_str_clear(&w->last);
	ct_str_add(&w->last, text);
	w->print_at_ns = now + ct_backoff_ns(&w->pause);
	w->shown = true;
}

/* Returns true if all ranks have joined. */
static bool describe(struct ct_job_store *j, struct ct_str *text)
{
	struct ct_member_state *m;
	bool complete;
	int n;

	if (ct_job_store_members(j, &m, &n) != CT_OK) {
		const char *why = ct_error_message();

		ct_str_addf(text, "ctrain: waiting for node rank 0 at %s%s%s", j->master, why[0] ? ": " : "", why);
		ct_error_clear();
		return false;
	}
	ct_str_add(text, "ctrain: waiting for nodes: ");
	ct_roll_call(&j->roll, m, n, text);
	complete = ct_roll_complete(&j->roll, m, n);
	ct_free(m);
	return complete;
}

void ct_waiting_look(struct ct_waiting *w, struct ct_job_store *j)
{
	struct ct_str text = {0};
	char time[64];

	if (w->done || ct_now_ns() < w->look_at_ns)
		return;
	w->look_at_ns = ct_deadline_in(LOOK_NS);
	if (describe(j, &text)) {
		bool print_end = w->shown;

		ct_waiting_end(w);
		if (print_end)
			ct_output_print(STDERR_FILENO, "ctrain: all %d nodes have joined after %.1f s\n",
					j->roll.n_nodes, ct_seconds_since(w->start_ns));
	} else {
		snprintf(time, sizeof(time), " (%.0f s of at most %g s)", ct_seconds_since(w->start_ns), w->limit_s);
		print(w, ct_str_text(&text), time);
	}
	ct_str_release(&text);
}

void ct_waiting_end(struct ct_waiting *w)
{
	if (!w->done && w->live && w->shown)
		ct_lines_clear_live();
	w->done = true;
	ct_str_release(&w->last);
}
