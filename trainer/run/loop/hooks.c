/* Commands run through /usr/bin/env, which sets the facts and removes what identifies this rank: a ctrain that the
 * command starts must be a run of its own. Facts are passed in the environment and never in the text of the command, so
 * file names and messages need no quoting. Standard error goes to the same pipe as standard output. The other ranks
 * wait in the next collective, so the time limit is at most half of theirs, and short after a failure. No result of a
 * command makes the run fail, and the error chain stays as it is. */
#define CT_LOG_COMPONENT "hook"
#include "trainer/run/loop/hooks.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/subprocess.h"
#include "trainer/job/launch_env.h"

/* The other ranks report a failure within seconds, so its command must not take longer. */
#define FAILURE_SECONDS 5.0

struct facts {
	const char *checkpoint; /* its path, or NULL */
	const char *status;     /* of the end of the run, or NULL */
	const char *message;    /* of a failure, or NULL */
};

enum { MAX_ARGS = 128 };

/* The arguments of /usr/bin/env. */
struct args {
	const char *v[MAX_ARGS];
	char *owned[MAX_ARGS];
	int n, n_owned;
	bool failed;
};

static void add(struct args *a, const char *text)
{
	CT_ASSERT(a->n < MAX_ARGS - 1);
	a->v[a->n++] = text;
}

static void CT_PRINTF(2, 3) set(struct args *a, const char *fmt, ...)
{
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	a->failed = a->failed || ct_str_status(&text) < 0;
	add(a, ct_str_text(&text));
	a->owned[a->n_owned++] = text.s;
}

/* The command may start ctrain, which must not believe that it is a rank of this run, whoever has started the ranks. It
 * does not get the run's secret either. */
static void hide_identity(struct args *a)
{
	static const char *const names[] = {"RANK",
					    "WORLD_SIZE",
					    "LOCAL_RANK",
					    "LOCAL_WORLD_SIZE",
					    "NODE_RANK",
					    "MASTER_ADDR",
					    "MASTER_PORT",
					    "CTRAIN_STORE",
					    "CTRAIN_TOKEN",
					    "CTRAIN_RUN_ID",
					    "CTRAIN_NODE_RANK",
					    "CTRAIN_N_NODES",
					    "CTRAIN_RESTART",
					    "TORCHELASTIC_RUN_ID",
					    "GROUP_RANK",
					    "GROUP_WORLD_SIZE",
					    "PET_NNODES",
					    "PET_NODE_RANK",
					    "OMPI_COMM_WORLD_RANK",
					    "OMPI_COMM_WORLD_SIZE",
					    "PMI_RANK",
					    "PMI_SIZE",
					    "PMIX_RANK",
					    "PMIX_NAMESPACE",
					    "SLURM_STEP_ID",
					    "SLURM_STEP_NUM_TASKS",
					    "SLURM_PROCID",
					    "OMP_NUM_THREADS",
					    CT_ENV_PAGES_FD,
					    CT_ENV_JOB_START_NS,
					    CT_ENV_START_NS,
					    CT_ENV_SAVES_BEFORE,
					    CT_ENV_RESTART_LINE};

	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++) {
		add(a, "-u");
		add(a, names[i]);
	}
}

static void set_facts(struct args *a, const struct ct_session *s, const char *event, const struct facts *f)
{
	const struct ct_train_state *t = &s->state;

	set(a, "CTRAIN_EVENT=%s", event);
	set(a, "CTRAIN_RUN_DIR=%s", s->run.dir);
	set(a, "CTRAIN_RUN_NAME=%s", s->cfg->run.name);
	set(a, "CTRAIN_EPOCH=%u", t->epoch);
	set(a, "CTRAIN_STEP=%llu", (unsigned long long)t->step);
	if (t->best_step > 0) {
		set(a, "CTRAIN_EVAL_LOSS=%.9g", t->last_loss);
		set(a, "CTRAIN_TOP1=%.9g", t->last_top1);
		set(a, "CTRAIN_BEST_TOP1=%.9g", t->best_top1);
	}
	if (f->checkpoint)
		set(a, "CTRAIN_CHECKPOINT=%s", f->checkpoint);
	if (f->status)
		set(a, "CTRAIN_STATUS=%s", f->status);
	if (f->message)
		set(a, "CTRAIN_MESSAGE=%s", f->message);
}

static void log_lines(const char *text)
{
	for (size_t n; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		CT_INFO("%.*s", (int)n, text);
	}
}

/* Returns how long the command may take. The other ranks wait for rank 0 in the next collective meanwhile. */
static double limit_seconds(const struct ct_session *s, const struct facts *f)
{
	double most = s->cfg->on.timeout;

	if (s->world.id.world > 1)
		most = fmin(most, s->cfg->dist.timeout / 2);
	return f->message ? fmin(most, FAILURE_SECONDS) : most;
}

static void run(const struct ct_session *s, ct_metrics_log *metrics, const char *event, const char *command,
		const struct facts *f)
{
	const int64_t deadline = ct_deadline_in((int64_t)(limit_seconds(s, f) * 1e9));
	struct args a = {0};
	struct ct_str script = {0}, out = {0};
	struct ct_error keep;

	if (!metrics || !command[0])
		return;
	ct_error_save(&keep);
	ct_str_addf(&script, "exec 2>&1\n%s", command);
	add(&a, "/usr/bin/env");
	hide_identity(&a);
	set_facts(&a, s, event, f);
	add(&a, "/bin/sh");
	add(&a, "-c");
	add(&a, ct_str_text(&script));
	if (a.failed || ct_str_status(&script) < 0 || ct_subprocess_run(a.v, deadline, &out) < 0) {
		CT_WARN("on.%s: %s", event, ct_error_message());
		ct_metrics_say(metrics,
			       "warning: the command of on.%s failed: %s (its output is in %s/log/rank-00000.log)",
			       event, ct_error_message(), s->run.dir);
	}
	log_lines(ct_str_text(&out));
	for (int i = 0; i < a.n_owned; i++)
		ct_free(a.owned[i]);
	ct_str_release(&out);
	ct_str_release(&script);
	ct_error_clear();
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}

void ct_hook_epoch_end(const struct ct_session *s, ct_metrics_log *metrics)
{
	run(s, metrics, "epoch_end", s->cfg->on.epoch_end, &(struct facts){0});
}

void ct_hook_checkpoint(const struct ct_session *s, ct_metrics_log *metrics, const char *path)
{
	run(s, metrics, "checkpoint", s->cfg->on.checkpoint, &(struct facts){.checkpoint = path});
}

void ct_hook_end(const struct ct_session *s, ct_metrics_log *metrics, enum ct_run_end end)
{
	run(s, metrics, "end", s->cfg->on.end, &(struct facts){.status = ct_run_end_name(end)});
}

void ct_hook_failure(const struct ct_session *s, ct_metrics_log *metrics)
{
	struct ct_error e;

	ct_error_save(&e);
	run(s, metrics, "failure", s->cfg->on.failure,
	    &(struct facts){.status = ct_status_name(e.status), .message = e.message});
}
