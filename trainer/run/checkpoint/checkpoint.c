/* Saves checkpoints. find.c and load_checkpoint.c read them. */
#define CT_LOG_COMPONENT "ckpt"
#include "trainer/run/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/description.h"
#include "trainer/run/checkpoint/snapshot_impl.h"

/* The tensors of one safetensors file that is to be written. */
struct tensor_list {
	const ct_net *net;
	const ct_graph *graph;
	const char *failpoint;
	const char *description; /* NULL: none */
	int n;
	struct ct_tensor_desc *desc; /* names owned */
	struct origin {
		const struct ct_mirror *arena;
		int param;
	} *from; /* source of tensors without desc.data */
};

static void release_list(struct tensor_list *l)
{
	for (int i = 0; i < l->n; i++)
		ct_free((char *)(uintptr_t)l->desc[i].name);
	ct_free(l->desc);
	ct_free(l->from);
}

static enum ct_status add_tensor(struct tensor_list *l, const char *state, const struct ct_param *p, const float *data,
				 struct origin from)
{
	struct ct_tensor_desc *d = &l->desc[l->n];

	CT_TRY_ALLOC(d->name = ct_strfmt("%s%s%s", state, state[0] ? "/" : "", p->name));
	d->ndim = p->ndim;
	for (int i = 0; i < p->ndim; i++)
		d->dims[i] = p->dims[i];
	d->data = data;
	l->from[l->n++] = from;
	return CT_OK;
}

/* Refuses values that are not finite: the checkpoint would be valid, and every resume would start from it. */
static enum ct_status check_finite(const float *x, size_t n, const char *name)
{
	size_t n_bad = 0;

	for (size_t k = 0; k < n; k++)
		n_bad += !isfinite(x[k]);
	if (n_bad == 0)
		return CT_OK;
	CT_FAIL(CT_NUMERIC, "%zu of the %zu values of %s are not finite", n_bad, n, name);
	return ct_error_hint("training has diverged; lower optim.lr, lengthen the warm-up, or set optim.clip_norm");
}

/* Adds all parameters of a group, and its buffers if it has any. */
static enum ct_status add_group(struct tensor_list *l, const struct ct_snapshot_group *group)
{
	const ct_graph *g = l->graph;
	const float *buffers = group->whole ? group->whole->buffers : group->buffers.data;
	const float *params = group->whole ? group->whole->params : NULL;
	int n_params = ct_graph_n_params(g), n_buffers = group->has_buffers ? ct_graph_n_buffers(g) : 0;
	size_t room = (size_t)l->n + (size_t)n_params + (size_t)n_buffers;
	void *more;

	CT_TRY_ALLOC(more = ct_realloc(l->desc, room, sizeof(*l->desc)));
	l->desc = more;
	CT_TRY_ALLOC(more = ct_realloc(l->from, room, sizeof(*l->from)));
	l->from = more;
	for (int i = 0; i < n_params; i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		if (params)
			CT_TRY(check_finite(params, p->n, p->name));
		CT_TRY(add_tensor(l, group->name, p, params, (struct origin){&group->params, i}));
		params += params ? p->n : 0;
	}
	for (int i = 0; i < n_buffers; i++) {
		const struct ct_param *p = ct_graph_buffer(g, i);

		CT_TRY(check_finite(buffers, p->n, p->name));
		CT_TRY(add_tensor(l, group->name, p, buffers, (struct origin){0}));
		buffers += p->n;
	}
	return CT_OK;
}

static enum ct_status fill(void *user, int i, float *out)
{
	const struct tensor_list *l = user;

	ct_failpoint(l->failpoint);
	CT_TRY(ct_net_export(l->net, l->from[i].arena, l->from[i].param, out));
	return check_finite(out, ct_graph_param(ct_net_graph(l->net), l->from[i].param)->n, l->desc[i].name);
}

static enum ct_status write_list(struct tensor_list *l, const char *folder, const char *name, struct ct_ckpt_file *out)
{
	const char *const metadata[] = {
		"format",       "pt", "producer", "ctrain " CTRAIN_VERSION, l->description ? CT_DESCRIPTION_KEY : NULL,
		l->description, NULL};
	enum ct_status st;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(folder, name));
	st = ct_safetensors_write(path, l->desc, l->n, fill, l, metadata, out->sha256, &out->bytes);
	ct_free(path);
	if (st == CT_OK)
		ct_failpoint(l->failpoint);
	return st;
}

/* Writes groups [first, end) of the snapshot to one file. */
static enum ct_status write_groups(const char *folder, const struct ct_snapshot *snap, int first, int end,
				   const char *name, const char *failpoint, struct ct_ckpt_file *out)
{
	struct tensor_list l = {
		.net = snap->net, .graph = snap->graph, .failpoint = failpoint, .description = snap->description};
	enum ct_status st = CT_OK;

	for (int i = first; i < end; i++)
		CT_TRY_GOTO(add_group(&l, &snap->groups[i]), st, out);
	CT_TRY_GOTO(write_list(&l, folder, name, out), st, out);
out:
	release_list(&l);
	return st;
}

/* Writes and syncs all files and the directory. state.json is written last. */
static enum ct_status write_files(const char *folder, const struct ct_snapshot *snap, uint64_t save_index,
				  uint64_t *bytes)
{
	struct ct_ckpt_state s = {.train = snap->state, .save_index = save_index};
	uint64_t state_bytes = 0;
	enum ct_status st;
	char *path;

	CT_TRY(write_groups(folder, snap, 0, 1, CT_CKPT_MODEL, "ckpt.model", &s.files[0]));
	CT_TRY(write_groups(folder, snap, 1, snap->n_groups, CT_CKPT_OPTIM, "ckpt.optim", &s.files[1]));
	ct_failpoint("ckpt.state");
	s.config_lines = snap->config_lines; /* borrowed, because s is never released */
	s.net_plan = snap->net_plan;
	CT_TRY_ALLOC(path = ct_path_join(folder, CT_CKPT_STATE));
	st = ct_ckpt_state_write(path, &s, &state_bytes);
	ct_free(path);
	CT_TRY(st);
	*bytes = s.files[0].bytes + s.files[1].bytes + state_bytes;
	return CT_OK;
}

static char *temp_name(const char *folder, const char *name)
{
	return ct_strfmt("%s/" CT_CKPT_TEMP "%s-%ld-%llx", folder, name, (long)getpid(),
			 (unsigned long long)ct_now_ns());
}

/* Deletes a directory that is no longer a checkpoint. A failure is harmless, because ct_ckpt_remove_stale tries again.
 */
static void discard(const char *temp)
{
	if (ct_dir_remove(temp) < 0) {
		CT_WARN("cannot delete %s: %s", temp, ct_error_message());
		ct_error_clear();
	}
}

/* Removes a checkpoint from the list atomically and then deletes it, so that no process finds a half-deleted one. */
static enum ct_status retire(const char *folder, const char *name)
{
	char *from = ct_path_join(folder, name), *to = temp_name(folder, name);
	enum ct_status st = CT_OK;

	if (!from || !to)
		st = CT_NOMEM;
	else if (rename(from, to) != 0)
		st = CT_FAIL(CT_IO, "cannot rename %s: %m", from);
	else
		discard(to);
	ct_free(to);
	ct_free(from);
	return st;
}

/* Renames temp to `name` in the directory. If a checkpoint of this name exists, because the same step was saved before,
 * the two are exchanged and the old one is deleted. */
static enum ct_status publish(const char *folder, const char *temp, const char *name)
{
	enum ct_status st = CT_OK;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(folder, name));
	if (rename(temp, path) == 0) {
		st = ct_dir_sync(folder);
	} else if (errno != ENOTEMPTY && errno != EEXIST) {
		st = CT_FAIL(CT_IO, "cannot rename %s to %s: %m", temp, path);
	} else if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
		CT_TRY_GOTO(ct_dir_sync(folder), st, out);
		discard(temp);
	} else {
		/* Not every file system can exchange two directories. */
		CT_TRY_GOTO(retire(folder, name), st, out);
		if (rename(temp, path) != 0)
			st = CT_FAIL(CT_IO, "cannot rename %s to %s: %m", temp, path);
		else
			st = ct_dir_sync(folder);
	}
out:
	ct_free(path);
	return st;
}

static enum ct_status move_link(const char *folder, const char *link, const char *target)
{
	enum ct_status st;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(folder, link));
	st = ct_link_replace(target, path);
	ct_free(path);
	return st;
}

/* A failure does not affect the checkpoint that was just saved, and pruning is tried again after the next save. */
static void prune(const char *folder, const struct ct_ckpt_entry *list, size_t n, const char *newest, int keep_last)
{
	char last[64], best[64];
	int kept = 1;

	ct_ckpt_link_target(folder, "last", last, sizeof(last));
	ct_ckpt_link_target(folder, "best", best, sizeof(best));
	/* The list was made before the save. */
	while (n-- > 0) {
		const char *name = list[n].name;

		if (strcmp(name, newest) == 0 || kept++ < keep_last || strcmp(name, last) == 0 ||
		    strcmp(name, best) == 0)
			continue;
		ct_failpoint("ckpt.prune");
		if (retire(folder, name) < 0) {
			CT_WARN("cannot delete the old checkpoint %s: %s", name, ct_error_message());
			ct_error_clear();
		}
	}
}

/* Training continues while a save is written, so the directory at this path may belong to another run by now. */
static enum ct_status check_guard(const struct ct_snapshot *snap)
{
	return snap->guard ? snap->guard->check(snap->guard->user) : CT_OK;
}

/* Writes the checkpoint to a temporary directory and publishes it. On failure, removes the temporary directory. */
static enum ct_status write_checkpoint(const char *folder, const struct ct_snapshot *snap, const char *name,
				       uint64_t save_index, uint64_t *bytes)
{
	enum ct_status st = CT_OK;
	struct ct_error first;
	int lock = -1;
	char *temp;

	CT_TRY_ALLOC(temp = temp_name(folder, name));
	if (mkdir(temp, 0777) != 0) {
		st = CT_FAIL(errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot create the directory %s: %m", temp);
		goto out;
	}
	lock = ct_ckpt_lock(temp);
	CT_TRY_GOTO(write_files(temp, snap, save_index, bytes), st, fail);
	ct_failpoint("ckpt.rename");
	CT_TRY_GOTO(check_guard(snap), st, fail);
	CT_TRY_GOTO(publish(folder, temp, name), st, fail);
	goto out;

fail:
	ct_error_save(&first);
	(void)!ct_dir_remove(temp);
	st = ct_error_restore(&first);
out:
	if (lock >= 0)
		close(lock);
	ct_free(temp);
	return st;
}

static enum ct_status save_in(const char *folder, const struct ct_snapshot *snap, int keep_last, bool best,
			      uint64_t *bytes)
{
	struct ct_ckpt_entry *list = NULL;
	uint64_t save_index = 1;
	enum ct_status st;
	char name[40];
	size_t n;

	ct_ckpt_name(snap->state.step, name);
	CT_TRY(check_guard(snap));
	CT_TRY(ct_dir_make(folder));
	CT_TRY(ct_ckpt_list(folder, &list, &n));
	if (n > 0)
		save_index = list[n - 1].save_index + 1;
	CT_TRY_GOTO(write_checkpoint(folder, snap, name, save_index, bytes), st, out);
	ct_failpoint("ckpt.link");
	CT_TRY_GOTO(move_link(folder, "last", name), st, out);
	if (best)
		CT_TRY_GOTO(move_link(folder, "best", name), st, out);
	if (keep_last > 0)
		prune(folder, list, n, name, keep_last);
out:
	ct_free(list);
	return st;
}

enum ct_status ct__snapshot_write(const char *run_dir, const struct ct_snapshot *snap, int keep_last, bool best,
				  struct ct_checkpoint_result *out)
{
	enum ct_status st;
	char *folder;
	char name[40];

	*out = (struct ct_checkpoint_result){.step = snap->state.step};
	CT_TRY_ALLOC(folder = ct_path_join(run_dir, CT_CKPT_FOLDER));
	st = save_in(folder, snap, keep_last, best, &out->bytes);
	if (st < 0) {
		st = ct_error_wrap("cannot save the checkpoint of step %llu", (unsigned long long)snap->state.step);
		/* If a directory has disappeared, this is a file system error, not missing data. */
		if (st == CT_NOT_FOUND)
			st = CT_FAIL(CT_IO, "%s", ct_error_message());
		goto out;
	}
	ct_ckpt_name(snap->state.step, name);
	out->path = ct_path_join(folder, name);
	st = out->path ? CT_OK : CT_NOMEM;
	out->seconds = ct_seconds_since(snap->start_ns);
out:
	ct_free(folder);
	return st;
}
