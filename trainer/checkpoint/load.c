/* Tensors of a checkpoint into a net, its optimizer and its averages. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/safetensors.h"

#define MAX_LISTED 6

/* Tensors of one file that belong together: prefix "" or "exp_avg/"; parameters go to the arena, buffers follow each other. */
struct group {
	const char *prefix;
	float *arena;
	float *buffers; /* NULL: the group has none */
};

struct differences {
	struct ct_str text;
	int n;
};

static void CT_PRINTF(2, 3) differ(struct differences *d, const char *fmt, ...)
{
	va_list ap;

	if (++d->n > MAX_LISTED)
		return;
	ct_str_add(&d->text, d->n > 1 ? "; " : "");
	va_start(ap, fmt);
	ct_str_addv(&d->text, fmt, ap);
	va_end(ap);
}

static const struct ct_param *nth(const ct_graph *g, int i)
{
	int n = ct_graph_n_params(g);

	return i < n ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n);
}

static int n_tensors(const ct_graph *g, const struct group *group)
{
	return ct_graph_n_params(g) + (group->buffers ? ct_graph_n_buffers(g) : 0);
}

/* Number of prefix+name in the file, -1 when absent. */
static int find(const ct_safetensors *s, const char *prefix, const char *name)
{
	char full[256];

	/* Longer names are not written. */
	if (strlen(prefix) + strlen(name) >= sizeof(full))
		return -1;
	memcpy(full, prefix, strlen(prefix));
	memcpy(full + strlen(prefix), name, strlen(name) + 1);
	return ct_safetensors_find(s, full);
}

static void add_shape(struct ct_str *b, int ndim, const int64_t *dims)
{
	ct_str_add(b, "[");
	for (int i = 0; i < ndim; i++)
		ct_str_addf(b, "%s%lld", i ? "," : "", (long long)dims[i]);
	ct_str_add(b, "]");
}

static void compare_shape(const char *prefix, const struct ct_param *p, const struct ct_tensor_desc *t,
			  struct differences *d)
{
	struct ct_str ours = {0}, theirs = {0};
	bool same = p->ndim == t->ndim;
	int64_t dims[4];

	for (int i = 0; i < p->ndim; i++) {
		dims[i] = p->dims[i];
		same = same && dims[i] == t->dims[i];
	}
	if (same)
		return;
	add_shape(&ours, p->ndim, dims);
	add_shape(&theirs, t->ndim, t->dims);
	differ(d, "%s%s is %s, the model's is %s", prefix, p->name, ct_str_text(&theirs), ct_str_text(&ours));
	ct_str_release(&theirs);
	ct_str_release(&ours);
}

/* Notes what the group needs and the file lacks; returns how many of its tensors were found. */
static int compare_group(const ct_safetensors *s, const ct_graph *g, const struct group *group, struct differences *d)
{
	int found = 0;

	for (int i = 0; i < n_tensors(g, group); i++) {
		const struct ct_param *p = nth(g, i);
		int at = find(s, group->prefix, p->name);
		struct ct_tensor_desc t;

		if (at < 0) {
			differ(d, "%s%s is missing", group->prefix, p->name);
			continue;
		}
		ct_safetensors_at(s, at, &t, NULL);
		compare_shape(group->prefix, p, &t, d);
		found++;
	}
	return found;
}

static bool is_expected(const char *name, const ct_graph *g, const struct group *groups, int n_groups)
{
	/* A counter of PyTorch's batch norm that plays no part with a fixed momentum. */
	if (ct_ends_with(name, ".num_batches_tracked"))
		return true;
	for (int k = 0; k < n_groups; k++) {
		size_t len = strlen(groups[k].prefix);

		if (strncmp(name, groups[k].prefix, len) != 0)
			continue;
		for (int i = 0; i < n_tensors(g, &groups[k]); i++) {
			if (strcmp(name + len, nth(g, i)->name) == 0)
				return true;
		}
	}
	return false;
}

/* Notes tensors of the file that no group takes, but for those whose names start with `ignored` (may be NULL). */
static void compare_rest(const ct_safetensors *s, const ct_graph *g, const struct group *groups, int n_groups,
			 const char *ignored, struct differences *d)
{
	for (int i = 0; i < ct_safetensors_count(s); i++) {
		struct ct_str shown = {0};
		struct ct_tensor_desc t;

		ct_safetensors_at(s, i, &t, NULL);
		if ((ignored && strncmp(t.name, ignored, strlen(ignored)) == 0) ||
		    is_expected(t.name, g, groups, n_groups))
			continue;
		ct_str_add_escaped(&shown, t.name, strlen(t.name), 100);
		differ(d, "%s is not in the model", ct_str_text(&shown));
		ct_str_release(&shown);
	}
}

static enum ct_status import_group(const ct_safetensors *s, ct_net *net, const struct group *group)
{
	const ct_graph *g = ct_net_graph(net);
	float *buffer = group->buffers, *scratch;
	enum ct_status st = CT_OK;
	size_t most = 1;

	for (int i = 0; i < ct_graph_n_params(g); i++)
		most = ct_graph_param(g, i)->n > most ? ct_graph_param(g, i)->n : most;
	CT_TRY_ALLOC(scratch = ct_realloc(NULL, most, sizeof(float)));
	for (int i = 0; i < n_tensors(g, group); i++) {
		const struct ct_param *p = nth(g, i);
		int at = find(s, group->prefix, p->name);

		if (i < ct_graph_n_params(g)) {
			CT_TRY_GOTO(ct_safetensors_read(s, at, scratch, p->n), st, out);
			CT_TRY_GOTO(ct_net_import(net, group->arena, i, scratch), st, out);
		} else {
			CT_TRY_GOTO(ct_safetensors_read(s, at, buffer, p->n), st, out);
			buffer += p->n;
		}
	}
out:
	ct_free(scratch);
	return st;
}

/* All groups from one file: nothing is imported unless everything fits. */
static enum ct_status load_file(const char *path, ct_net *net, const struct group *groups, int n_groups,
				const char *ignored)
{
	struct differences d = {0};
	ct_safetensors *s;
	enum ct_status st = CT_OK;

	CT_TRY(ct_safetensors_open(path, &s));
	for (int k = 0; k < n_groups; k++)
		(void)compare_group(s, ct_net_graph(net), &groups[k], &d);
	compare_rest(s, ct_net_graph(net), groups, n_groups, ignored, &d);
	if (d.n > 0) {
		st = CT_FAIL(CT_DATA, "%s does not fit: %s%s", path, ct_str_text(&d.text),
			     d.n > MAX_LISTED ? "; ..." : "");
		ct_error_hint("the checkpoint was made with other model, optim or train.ema settings");
	}
	for (int k = 0; k < n_groups && st == CT_OK; k++)
		st = import_group(s, net, &groups[k]);
	ct_str_release(&d.text);
	ct_safetensors_close(s);
	return st;
}

/* File i of the checkpoint, its checksum compared first. */
static enum ct_status load_checked(const char *folder, const struct ct_ckpt_state *state, int i, ct_net *net,
				   const struct group *groups, int n_groups, const char *ignored)
{
	enum ct_status st;
	char *path;

	CT_TRY(ct_ckpt_file_verify(folder, state, i));
	CT_TRY_ALLOC(path = ct_path_join(folder, ct_ckpt_file_name(i)));
	st = load_file(path, net, groups, n_groups, ignored);
	ct_free(path);
	return st;
}

static enum ct_status load_optim(const char *folder, const struct ct_ckpt_state *state, ct_net *net, ct_optim *optim,
				 ct_ema *ema)
{
	struct group groups[8];
	char prefixes[7][64];
	int n = 0;

	for (; optim && ct_optim_state_name(optim, n); n++) {
		const char *name = ct_optim_state_name(optim, n);

		CT_ASSERT(n < (int)CT_ARRAY_LEN(prefixes) && strlen(name) + 2 <= sizeof(prefixes[0]));
		memcpy(prefixes[n], name, strlen(name));
		memcpy(prefixes[n] + strlen(name), "/", 2);
		groups[n] = (struct group){prefixes[n], ct_optim_state(optim, n), NULL};
	}
	if (ema)
		groups[n++] = (struct group){CT_CKPT_EMA "/", ct_ema_params(ema), ct_ema_buffers(ema)};
	/* Without the optimizer only the averages are wanted, and all else is passed over. */
	CT_TRY(load_checked(folder, state, 1, net, groups, n, !optim ? "" : !ema ? CT_CKPT_EMA "/" : NULL));
	if (optim)
		ct_optim_set_steps(optim, state->train.optim_steps);
	return CT_OK;
}

enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema)
{
	struct group model = {"", ct_net_params(net), ct_net_buffers(net)};
	struct ct_ckpt_state state;
	enum ct_status st;

	CT_TRY(ct_ckpt_state_read(path, &state));
	CT_TRY_GOTO(load_checked(path, &state, 0, net, &model, 1, NULL), st, out);
	if (optim || ema)
		CT_TRY_GOTO(load_optim(path, &state, net, optim, ema), st, out);
out:
	ct_ckpt_state_release(&state);
	return st;
}
