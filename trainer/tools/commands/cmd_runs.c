/* `ctrain runs [DIR]`, `ctrain runs clean [DIR]`, `ctrain compare A B` and `ctrain watch RUN`. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/process/terminal.h"
#include "trainer/job/signals.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/runs/clean.h"
#include "trainer/tools/runs/select.h"
#include "trainer/tools/runs/show.h"
#include "trainer/tools/runs/watch.h"

#define DEFAULT_DIR "runs"

/* Returns 0 if standard output is not a terminal: a table is then as wide as it needs to be. */
static int table_width(void)
{
	return isatty(STDOUT_FILENO) ? ct_terminal_columns(STDOUT_FILENO, 80) : 0;
}

static enum ct_status find(const struct ct_cli *cli, struct ct_run_list *l)
{
	const char *dir = cli->n_args > 0 ? cli->args[0] : DEFAULT_DIR;
	enum ct_status st = ct_run_list_find(dir, l);

	if (st == CT_NOT_FOUND && cli->n_args == 0)
		ct_error_hint("pass the directory that contains the runs: ctrain runs DIR");
	if (st == CT_OK && cli->filter)
		st = ct_run_list_filter(l, cli->filter);
	return st == CT_OK ? ct_run_list_sort(l, cli->sort ? cli->sort : "name") : st;
}

enum ct_status ct_cmd_runs(const struct ct_cli *cli)
{
	struct ct_run_list l = {0};
	struct ct_str text = {0};
	ct_json *j = NULL;
	enum ct_status st = find(cli, &l);

	if (st == CT_OK && cli->json)
		st = ct_runs_json(&l, &j);
	else if (st == CT_OK && l.n == 0)
		ct_str_addf(&text, "no runs\n");
	else if (st == CT_OK)
		st = ct_runs_table(&l, table_width(), ct_terminal_has_colors(STDOUT_FILENO), &text);
	ct_run_list_release(&l);
	if (st == CT_OK)
		return j ? ct_print_json(j, true) : ct_print_text(&text);
	ct_json_destroy(j);
	ct_str_release(&text);
	return st;
}

static enum ct_status load(const char *dir, struct ct_run_info *r)
{
	if (!ct_run_is_dir(dir))
		return CT_FAIL(CT_NOT_FOUND, "%s is not a run directory", dir);
	return ct_run_info_load(dir, dir, r);
}

enum ct_status ct_cmd_compare(const struct ct_cli *cli)
{
	struct ct_run_info a = {0}, b = {0};
	struct ct_str text = {0};
	ct_json *j = NULL;
	bool same = false;
	enum ct_status st = load(cli->args[0], &a);

	if (st == CT_OK)
		st = load(cli->args[1], &b);
	if (st == CT_OK && cli->json)
		st = ct_runs_compare_json(&a, &b, &same, &j);
	else if (st == CT_OK)
		st = ct_runs_compare(&a, &b, table_width(), ct_terminal_has_colors(STDOUT_FILENO), &same, &text);
	ct_run_info_release(&a);
	ct_run_info_release(&b);
	if (st == CT_OK)
		st = j ? ct_print_json(j, true) : ct_print_text(&text);
	else
		ct_json_destroy(j);
	ct_str_release(&text);
	return st < 0 || same ? st : CT_DIFFERENT;
}

enum ct_status ct_cmd_watch(const struct ct_cli *cli)
{
	int signals = -1, sig;

	CT_TRY(ct_signals_open(false, &signals));
	const enum ct_status st = ct_watch(cli->args[0], CT_CFG_CONSOLE_AUTO, signals, &sig);
	ct_signals_close(signals);
	if (sig != 0)
		ct_signals_end_self(sig);
	return st;
}

static void show_plan(const struct ct_clean_plan *p)
{
	char bytes[CT_BYTES_TEXT];

	for (size_t i = 0; i < p->n; i++)
		printf("%s: %s (%s)\n", p->items[i].path, p->items[i].why, ct_bytes_text(p->items[i].bytes, bytes));
	printf("%s", ct_str_text(&p->kept));
}

/* Asks on the terminal. */
static bool confirm(const struct ct_clean_plan *p)
{
	char bytes[CT_BYTES_TEXT], answer[16] = "";

	printf("Remove %s %zu item%s (%s)? [y/N] ", p->n == 1 ? "this" : "these", p->n, p->n == 1 ? "" : "s",
	       ct_bytes_text(p->bytes, bytes));
	(void)fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static enum ct_status remove_all(const struct ct_clean_plan *p)
{
	char text[CT_BYTES_TEXT];
	uint64_t bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		bool removed;

		CT_TRY(ct_clean_remove(&p->items[i], &removed));
		if (removed) {
			bytes += p->items[i].bytes;
			n++;
		} else {
			printf("%s is kept, because the run is in use or has changed\n", p->items[i].path);
		}
	}
	printf("removed %zu item%s (%s)\n", n, n == 1 ? "" : "s", ct_bytes_text(bytes, text));
	return CT_OK;
}

static enum ct_status clean(const struct ct_cli *cli, const struct ct_clean_plan *p)
{
	const struct ct_clean_options *o = cli->own;

	show_plan(p);
	if (p->n == 0)
		printf("nothing to remove\n");
	if (p->n == 0 || o->dry_run)
		return CT_OK;
	if (!o->yes && !isatty(STDIN_FILENO)) {
		CT_FAIL(CT_USAGE, "nothing was removed, because standard input is not a terminal");
		return ct_error_hint("--yes removes them without asking, and --dry-run only lists them");
	}
	if (!o->yes && !confirm(p)) {
		printf("nothing was removed\n");
		return CT_OK;
	}
	return remove_all(p);
}

enum ct_status ct_cmd_runs_clean(const struct ct_cli *cli)
{
	struct ct_run_list l = {0};
	struct ct_clean_plan p = {0};
	enum ct_status st = find(cli, &l);

	if (st == CT_OK)
		st = ct_clean_find(&l, &p);
	if (st == CT_OK)
		st = clean(cli, &p);
	(void)fflush(stdout);
	ct_clean_release(&p);
	ct_run_list_release(&l);
	return st;
}
