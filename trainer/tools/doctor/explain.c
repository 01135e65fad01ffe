/* One switch has a case for every status, so the compiler warns when a new status has no explanation; checks are
 * explained by their own table. The page docs/DOCTOR.md is made from the same tables, and a test compares it. */
#include "trainer/tools/doctor/explain.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "trainer/tools/doctor/checks.h"

struct meaning {
	const char *what, *fix;
};

/* The compiler warns if a status is missing. */
static struct meaning meaning_of(enum ct_status st)
{
	switch (st) {
	case CT_OK:
		return (struct meaning){"The command has done what was requested.", "Nothing."};
	case CT_INPROGRESS:
		return (struct meaning){"An operation has not finished yet. Programs never end with this status.",
					"If you see it, report a bug."};
	case CT_DIFFERENT:
		return (struct meaning){
			"`ctrain compare` has found that the configs or the weights of two runs differ.",
			"Nothing, unless they should be equal: the output lists the keys that differ."};
	case CT_USAGE:
		return (struct meaning){
			"The command line or the environment contradicts itself, or has an unknown option.",
			"Read the message: it shows the option or variable and both values. `ctrain help COMMAND` lists the options."};
	case CT_CONFIG:
		return (struct meaning){
			"The configuration has an unknown key, a value that is out of range, or values that exclude each other.",
			"The message shows the file, line and column. `ctrain check CONFIG` lists all mistakes at once; `ctrain help KEY` explains a key."};
	case CT_UNSUPPORTED:
		return (struct meaning){
			"The config requests a back end, an engine or a precision that this build or machine does not have.",
			"`ctrain info` lists what is available, and why other parts are not available."};
	case CT_MISMATCH:
		return (struct meaning){
			"Ranks disagree about the config, the model, the number of ranks, the program version or a collective.",
			"Start all ranks with the same program, file and options. The message shows the rank and both values. `ctrain doctor` compares the nodes."};
	case CT_DATA:
		return (struct meaning){
			"A file is damaged or is not in the expected format, or too many samples are unreadable.",
			"`ctrain data check CONFIG` reads every sample and lists the unreadable ones; `ctrain ckpt verify` checks checkpoints."};
	case CT_NOT_FOUND:
		return (struct meaning){"A file or directory does not exist.",
					"Correct the path, for example data.dir, on every node."};
	case CT_DEVICE:
		return (struct meaning){
			"A device has failed or reported an error.",
			"Run the command again; if it fails again, use another host. `ctrain doctor` shows lost GPUs and driver errors."};
	case CT_NOMEM:
		return (struct meaning){
			"There is no memory left on the host or on a device, or a limit (ulimit, /dev/shm) is too small.",
			"Lower batch.per_rank or raise train.accumulate; `ctrain plan CONFIG` shows how much memory the run needs."};
	case CT_COMM:
		return (struct meaning){
			"A connection could not be opened, or a message could not be sent.",
			"Run `ctrain doctor CONFIG` with the same launch options on every node. It shows which nodes cannot reach each other, and why."};
	case CT_PEER_LOST:
		return (struct meaning){
			"Another rank has ended, was killed, or is no longer reachable. This rank is not the cause.",
			"Read the message, which names the rank, and the log of this rank (RUN/log/rank-*.log). Then run the command again: it continues from the last checkpoint."};
	case CT_TIMEOUT:
		return (struct meaning){
			"A rank did not join the run, or did not take part in a collective, before the deadline.",
			"The message names the rank. Check that this rank was started and is not stopped or overloaded; dist.timeout and dist.rendezvous_timeout set the deadlines."};
	case CT_CANCELLED:
		return (struct meaning){"The operation was ended because the run had failed elsewhere.",
					"Look for the first error of the run."};
	case CT_NUMERIC:
		return (struct meaning){
			"The loss or the gradients are not finite (NaN or Inf).",
			"Lower optim.lr, use a warm-up (schedule.warmup_epochs) or optim.clip_norm, or train with precision=fp32."};
	case CT_IO:
		return (struct meaning){
			"A file could not be written, read or locked: no space, no permission, a limit, or another run in the same directory.",
			"The message shows the path, and the reason that the system gives. Free space, or set run.dir."};
	case CT_BUG:
		return (struct meaning){
			"ctrain has found a bug in itself.",
			"Report it with the message, the output of `ctrain info --report RUN_DIRECTORY`, and that of the command with CTRAIN_LOG=debug."};
	case CT_INTERRUPTED:
		return (struct meaning){"The run was stopped by a signal after it had saved a checkpoint.",
					"Run the same command again to continue."};
	case CT_NO_DEVICE:
		return (struct meaning){
			"The requested device does not exist, or no rank can use it.",
			"`ctrain info` lists the devices. Correct device, launch.devices or CUDA_VISIBLE_DEVICES, or use fewer ranks."};
	}
	return (struct meaning){"", ""};
}

static const struct {
	enum ct_status status;
	const char *name;
} statuses[] = {
#define ENTRY(name, value, code, text) {CT_##name, #name},
	CT_STATUS_LIST(ENTRY)
#undef ENTRY
};

static void add_status(enum ct_status st, struct ct_str *out)
{
	const struct meaning m = meaning_of(st);

	ct_str_addf(out, "%s: %s (exit code %d)\n    %s\n    what to do: %s\n", ct_status_name(st), ct_status_text(st),
		    ct_status_exit_code(st), m.what, m.fix);
}

static bool explain_code(const char *word, struct ct_str *out)
{
	bool found = false;
	int64_t code;

	if (ct_parse_i64(word, &code) < 0) {
		ct_error_clear();
		return false;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(statuses); i++) {
		/* No program ends with INPROGRESS. */
		if (statuses[i].status == CT_INPROGRESS || ct_status_exit_code(statuses[i].status) != code)
			continue;
		add_status(statuses[i].status, out);
		found = true;
	}
	return found;
}

/* Case does not matter, and '-' is the same as '_'. */
static bool same_word(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		const char x = *a == '-' ? '_' : *a, y = *b == '-' ? '_' : *b;

		if (strncasecmp(&x, &y, 1) != 0)
			return false;
	}
	return *a == *b;
}

static enum ct_status unknown(const char *word)
{
	const char *names[CT_ARRAY_LEN(statuses) + 64], *near;
	size_t n = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(statuses); i++)
		names[n++] = statuses[i].name;
	for (size_t i = 0; ct_check_at(i) && n < CT_ARRAY_LEN(names); i++)
		names[n++] = ct_check_at(i)->name;
	CT_FAIL(CT_USAGE, "\"%.60s\" is neither an exit code, nor a status, nor a doctor check", word);
	near = ct_suggest(word, names, n);
	if (near)
		ct_error_hint("did you mean %s?", near);
	else
		ct_error_hint("`ctrain explain` without an argument lists all of them");
	return CT_USAGE;
}

enum ct_status ct_explain(const char *word, struct ct_str *out)
{
	const char *name = strncasecmp(word, "CT_", 3) == 0 ? word + 3 : word;

	if (explain_code(word, out))
		return ct_str_status(out);
	for (size_t i = 0; i < CT_ARRAY_LEN(statuses); i++) {
		if (same_word(statuses[i].name, name)) {
			add_status(statuses[i].status, out);
			return ct_str_status(out);
		}
	}
	for (size_t i = 0; ct_check_at(i); i++) {
		const struct ct_check *c = ct_check_at(i);

		if (same_word(c->name, word)) {
			ct_str_addf(out, "%s: a check of `ctrain doctor`\n    %s\n    what to do: %s\n", c->name,
				    c->doc, c->fix);
			return ct_str_status(out);
		}
	}
	return unknown(word);
}

static const char intro[] =
	"# Doctor\n"
	"\n"
	"<!-- Written by `ctrain explain --out docs/DOCTOR.md` from the tables in trainer/tools/doctor/; a test compares it. -->\n"
	"\n"
	"`ctrain doctor CONFIG.yaml` checks before a run whether the hosts, network, directories and devices meet the needs of the run. Start\n"
	"it on every node, with the options of the run:\n"
	"\n"
	"```sh\n"
	"ctrain doctor CONFIG.yaml --nodes 2 --node-rank 0 --master-addr 10.0.0.1       # on the first node\n"
	"ctrain doctor CONFIG.yaml --nodes 2 --node-rank 1 --master-addr 10.0.0.1       # on the second node\n"
	"srun --ntasks-per-node=1 ctrain doctor CONFIG.yaml                             # in a Slurm allocation\n"
	"ctrain doctor                                                                  # this host only\n"
	"```\n"
	"\n"
	"The nodes meet on the master port with the secret of the run. They exchange facts about themselves, connect to each other, and measure\n"
	"each link for a tenth of a second. Node 0 prints a table of the nodes, the speed of each link, and the findings. Each finding names the\n"
	"node, what is wrong, why it matters, and the command or setting that repairs it. `ctrain doctor` changes nothing: it removes the files\n"
	"that it writes to measure the run directory.\n"
	"\n"
	"`--json` prints the findings, facts and links as JSON. The exit code is that of the first error, or of the first warning if there are\n"
	"no errors, or 0 if there are only notes, which do not matter to this run. All nodes end with the same code.\n"
	"\n"
	"Before a run on several nodes, ctrain does all checks of single nodes that need no measurement. It logs warnings, and errors end the run\n"
	"before training starts.\n"
	"\n"
	"`ctrain explain NAME` explains a check, a status or an exit code.\n"
	"\n";

void ct_explain_page(struct ct_str *out)
{
	ct_str_add(out, intro);
	ct_str_add(out, "## Checks\n\n| check | finds | repair |\n| --- | --- | --- |\n");
	for (size_t i = 0; ct_check_at(i); i++)
		ct_str_addf(out, "| `%s` | %s | %s |\n", ct_check_at(i)->name, ct_check_at(i)->doc,
			    ct_check_at(i)->fix);
	ct_str_add(
		out,
		"\n## Statuses and exit codes\n\n| status | exit code | meaning | what to do |\n| --- | --- | --- | --- |\n");
	for (size_t i = 0; i < CT_ARRAY_LEN(statuses); i++) {
		const enum ct_status st = statuses[i].status;

		if (st == CT_INPROGRESS)
			continue;
		ct_str_addf(out, "| `%s` | %d | %s | %s |\n", statuses[i].name, ct_status_exit_code(st),
			    meaning_of(st).what, meaning_of(st).fix);
	}
}
