/* Only rank 0 reads the tensors. It finds the checkpoint, compares config, model, data and global batch with its own,
 * and loads the tensors; then the state and all arenas are broadcast, so that every rank continues with the same bits.
 * In a pipeline, the values go through host memory of rank 0 and from there to the stages of the first replica, each of
 * which broadcasts them to its group. If rank 0 fails, it ends, and the others learn that from the watchdog.
 *
 * The number of ranks may differ from that of the checkpoint, since each global batch is the same for all. The bucket
 * size of the checkpoint is used only for the same number of ranks, because sums have another order otherwise. After a
 * restart, what this job has saved takes precedence over train.resume. */
#define CT_LOG_COMPONENT "resume"
#include "trainer/run/loop/resume.h"

#include <string.h>

#include "base/log.h"
#include "trainer/plan/precision.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/run/pipeline/gather.h"

static enum ct_status find(struct ct_session *s, char **path)
{
	const char *how = ct_session_resume_how(s);

	*path = NULL;
	if (strcmp(how, "never") == 0)
		return CT_OK;
	if (strcmp(how, "auto") != 0 && strcmp(how, "must") != 0) {
		CT_TRY(ct_checkpoint_resolve(s->run.dir, how, path));
		return ct_checkpoint_verify(*path);
	}
	CT_TRY(ct_checkpoint_find(s->run.dir, path));
	if (!*path && ct_checkpoint_count(s->run.dir) > 0) {
		CT_FAIL(CT_DATA, "none of the %d checkpoints in %s is valid (the log gives the reason for each)",
			ct_checkpoint_count(s->run.dir), s->run.dir);
		return ct_error_hint("train.resume=never renames the directory of this run and starts from scratch");
	}
	if (!*path && strcmp(how, "must") == 0) {
		CT_FAIL(CT_NOT_FOUND, "train.resume=must, but %s contains no valid checkpoint", s->run.dir);
		return ct_error_hint("use train.resume=auto to start from scratch if there is no checkpoint");
	}
	return CT_OK;
}

/* Finds the line of a key in "key=value" lines. *len is its length without the line feed. Returns NULL if there is
 * none. */
static const char *find_line(const char *lines, const char *key, size_t key_len, size_t *len)
{
	while (*lines) {
		*len = strcspn(lines, "\n");
		if (*len > key_len && memcmp(lines, key, key_len) == 0 && lines[key_len] == '=')
			return lines;
		lines += *len + (lines[*len] == '\n');
	}
	return NULL;
}

static bool is_key(const char *line, size_t len, const char *key)
{
	return len == strlen(key) && memcmp(line, key, len) == 0;
}

/* Adds "key was theirs, is ours" for each key with different values. Keys that only one side has are skipped: usually
 * they belong to another model or data set, whose name differs as well. Sets *length if the length of the run differs.
 */
static void list_differences(const char *theirs, const char *ours, struct ct_str *out, bool *length)
{
	for (size_t n; *ours; ours += n + (ours[n] == '\n')) {
		size_t key = strcspn(ours, "="), m = 0;

		n = strcspn(ours, "\n");
		if (key >= n)
			continue;
		const char *was = find_line(theirs, ours, key, &m);
		if (!was || (n == m && memcmp(was, ours, n) == 0))
			continue;
		*length |= is_key(ours, key, "train.epochs") || is_key(ours, key, "train.max_steps");
		ct_str_addf(out, "%s%.*s was %.*s and is now %.*s", out->len ? "; " : "", (int)key, ours,
			    (int)(m - key - 1), was + key + 1, (int)(n - key - 1), ours + key + 1);
	}
}

/* Adds the keys of `lines` that `others` does not have. */
static void list_missing(const char *lines, const char *others, const char *where, struct ct_str *out)
{
	for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
		size_t key = strcspn(lines, "="), m = 0;

		n = strcspn(lines, "\n");
		if (key < n && !find_line(others, lines, key, &m))
			ct_str_addf(out, "%s%.*s is %s", out->len ? "; " : "", (int)n, lines, where);
	}
}

static enum ct_status check_same(const struct ct_session *s, const char *path, const struct ct_train_state *st,
				 const char *lines)
{
	struct ct_str diff = {0};
	const char *what = NULL;
	bool other_batch = false, other_length = false;

	if (strcmp(st->config_digest, s->state.config_digest) != 0) {
		list_differences(lines, s->run.config_lines, &diff, &other_length);
		/* If all common keys are equal, another version of ctrain has saved the checkpoint. */
		if (!diff.len) {
			list_missing(lines, s->run.config_lines, "only in the checkpoint", &diff);
			list_missing(s->run.config_lines, lines, "only in this config", &diff);
		}
		what = "config";
	} else if (strcmp(st->graph_digest, s->state.graph_digest) != 0) {
		what = "model";
	} else if (strcmp(st->data_digest, s->state.data_digest) != 0) {
		what = "training data";
	} else if (st->global_batch != s->plan.global_batch) {
		/* The number of ranks may change, because any number of ranks continues with the same samples. */
		other_batch = true;
		ct_str_addf(&diff, "the global batch was %u and is now %u", st->global_batch, s->plan.global_batch);
		what = "global batch";
	}
	if (what) {
		CT_FAIL(CT_CONFIG, "checkpoint %s was saved with another %s%s%s", path, what, diff.len ? ": " : "",
			ct_str_text(&diff));
		if (other_batch)
			ct_error_hint(
				"batch.global=%u continues with the same batches on any number of ranks; otherwise use another run.dir",
				st->global_batch);
		else if (other_length)
			ct_error_hint(
				"with schedule.name %s, the learning rate of each step depends on the length of the run (a constant, step or "
				"multistep schedule could continue); use another run.dir or restore the old value",
				ct_config_choice(s->cfg, "schedule.name"));
		else
			ct_error_hint(
				"use another run.dir, restore the old values, or set train.resume=never, which renames the directory of the old run");
	}
	ct_str_release(&diff);
	return what ? CT_CONFIG : CT_OK;
}

static enum ct_status load_weights(struct ct_session *s)
{
	const char *path = s->cfg->model.weights;

	if (!path[0])
		return CT_OK;
	if (ct_model_weights_load(path, s->net, s->cfg->model.strict ? CT_WEIGHTS_STRICT : CT_WEIGHTS_FITTING,
				  &s->start.weights) < 0)
		return ct_error_wrap("model.weights");
	return CT_OK;
}

/* The values of a pipeline go through host memory of rank 0. The tensors that a weights file does not contain keep
 * their values. */
static enum ct_status load_weights_whole(struct ct_session *s, struct ct_whole *w)
{
	const char *path = s->cfg->model.weights;

	if (path[0] &&
	    ct_model_weights_load_whole(path, w, s->cfg->model.strict ? CT_WEIGHTS_STRICT : CT_WEIGHTS_FITTING,
					&s->start.weights) < 0)
		return ct_error_wrap("model.weights");
	return CT_OK;
}

/* Loads the checkpoint at `path` or, if it is NULL, the initial weights. */
static enum ct_status load_values(struct ct_session *s, const char *path, struct ct_whole *w)
{
	if (s->pipe && !path)
		return load_weights_whole(s, w);
	if (s->pipe) {
		if (!w->graph)
			CT_TRY(ct_whole_init(s->pipe->whole, s->optim, s->ema, w));
		return ct_checkpoint_load_whole(path, w, s->optim);
	}
	return path ? ct_checkpoint_load(path, s->net, s->optim, s->ema) : load_weights(s);
}

/* The plan was chosen before the checkpoint was found: a damaged one may have been skipped, and train.plan may have
 * given another one. */
static void warn_of_plan(const struct ct_session *s, const char *path, const char *plan)
{
	if (s->run.net_plan && plan && strcmp(s->run.net_plan, plan) != 0)
		CT_WARN("the plan of %s is another one, so the results of this run differ in their last bits from those "
			"of a run that was not interrupted",
			path);
}

/* Called by rank 0: sets *found and the state, and loads the tensors into the session or, with a pipeline, into *w. */
static enum ct_status load_root(struct ct_session *s, struct ct_train_state *st, bool *found, struct ct_whole *w)
{
	struct ct_ckpt_state state = {0};
	char *path = NULL;
	enum ct_status rc;

	*found = false;
	CT_TRY_GOTO(find(s, &path), rc, out);
	if (!path) {
		rc = load_values(s, NULL, w);
		goto out;
	}
	ct_console_stage(s->start.console, "reading checkpoint %s", path);
	CT_TRY_GOTO(ct_ckpt_state_read(path, &state), rc, out);
	*st = state.train;
	CT_TRY_GOTO(check_same(s, path, st, state.config_lines), rc, out);
	warn_of_plan(s, path, state.net_plan);
	CT_TRY_GOTO(load_values(s, path, w), rc, out);
	*found = true;
	s->start.resumed_from = path;
	path = NULL;
out:
	ct_ckpt_state_release(&state);
	ct_free(path);
	return rc;
}

static enum ct_status broadcast_values(struct ct_session *s, bool resumed)
{
	CT_TRY(ct_session_share_weights(s));
	if (!resumed) /* the EMA weights are a copy of the initial weights, which model.weights may have replaced */
		return s->ema ? ct_ema_restart(s->ema) : CT_OK;
	for (int i = 0; ct_optim_state_name(s->optim, i); i++)
		CT_TRY(ct_session_broadcast_arena(s, ct_optim_state(s->optim, i)));
	if (s->ema) {
		CT_TRY(ct_session_broadcast_arena(s, ct_ema_params(s->ema)));
		CT_TRY(ct_session_broadcast_arena(s, ct_ema_buffers(s->ema)));
	}
	return CT_OK;
}

static enum ct_status resume(struct ct_session *s, struct ct_whole *w)
{
	struct {
		bool found;
		struct ct_train_state state;
	} msg;
	const bool weights = s->cfg->model.weights[0];

	memset(&msg, 0, sizeof(msg));
	if (s->pipe && weights)
		CT_TRY(ct_pipeline_gather(s->pipe, s->net, s->optim, s->ema, w));
	if (ct_session_is_root(s))
		CT_TRY(load_root(s, &msg.state, &msg.found, w));
	CT_TRY(ct_session_broadcast(s, &msg, sizeof(msg)));
	if (msg.found) {
		const bool same_world = msg.state.world == (uint32_t)s->world.id.world;

		msg.state.world = (uint32_t)s->world.id.world;
		s->state = msg.state;
		/* Another number of ranks may need another size, and adds in another order in any case. */
		CT_TRY(ct_session_resume_buckets(s, same_world ? msg.state.bucket_bytes : 0));
		ct_optim_set_steps(s->optim, s->state.optim_steps);
		if (ct_optim_scales_loss(s->optim))
			CT_TRY(ct_optim_set_loss_scale(s->optim, s->state.loss_scale, s->state.loss_scale_steps,
						       s->state.skipped_updates));
		if (ct_session_is_root(s))
			CT_INFO("resuming from %s (step %llu)", s->start.resumed_from,
				(unsigned long long)s->state.step);
	}
	if (s->pipe && (msg.found || weights))
		CT_TRY(ct_pipeline_scatter(s->pipe, s->net, s->optim, s->ema, w));
	return broadcast_values(s, msg.found);
}

enum ct_status ct_resume(struct ct_session *s)
{
	struct ct_whole w = {0};
	enum ct_status st = resume(s, &w);

	ct_whole_release(&w);
	return st;
}

/* Copies the precision of a checkpoint, or "" if there is none; ct_resume reports what is wrong with it. */
static enum ct_status stored_precision(const char *run_dir, const char *what, char *out, size_t size)
{
	struct ct_ckpt_state state = {0};
	char *path = NULL;
	enum ct_status st = ct_checkpoint_resolve(run_dir, what, &path);

	if (st == CT_OK)
		st = ct_ckpt_state_read(path, &state);
	if (st < 0 || !ct_ckpt_config_value(&state, "precision", out, size))
		out[0] = '\0';
	if (st != CT_NOMEM)
		ct_error_clear();
	ct_ckpt_state_release(&state);
	ct_free(path);
	return st == CT_NOMEM ? st : CT_OK;
}

enum ct_status ct_resume_settle(struct ct_config *c, bool restarted)
{
	const char *how = c->train.resume;
	const bool own = strcmp(how, "auto") == 0 || strcmp(how, "must") == 0;
	char *run_dir, stored[16] = "";
	enum ct_status st = CT_OK;

	if (c->precision != CT_PRECISION_AUTO)
		return CT_OK;
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(c));
	if (own || restarted)
		st = stored_precision(run_dir, "last", stored, sizeof(stored));
	if (st == CT_OK && !stored[0] && !own && strcmp(how, "never") != 0)
		st = stored_precision(run_dir, how, stored, sizeof(stored));
	ct_free(run_dir);
	return st == CT_OK ? ct_plan_settle_precision(c, stored[0] ? stored : NULL) : st;
}
