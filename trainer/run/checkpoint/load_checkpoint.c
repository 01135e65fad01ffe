/* Loads the tensors of a checkpoint into a net, its optimizer and its EMA weights. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/tensor_match_impl.h"

/* What is loaded: groups 0 are those of the model, the others are in the file of the optimizer. */
struct target {
	const ct_graph *graph;
	ct_net *net; /* NULL: the groups are in host memory */
	struct ct_tensor_group groups[8];
	char prefixes[8][64];
	int n_groups;
	bool has_ema;
};

static struct ct_tensor_group *add(struct target *t, const char *name)
{
	char *prefix = t->prefixes[t->n_groups];
	const size_t len = strlen(name);

	CT_ASSERT(t->n_groups < (int)CT_ARRAY_LEN(t->groups) && len + 2 <= sizeof(t->prefixes[0]));
	memcpy(prefix, name, len);
	memcpy(prefix + len, "/", len > 0 ? 2 : 0);
	t->has_ema = t->has_ema || strcmp(name, CT_CKPT_EMA) == 0;
	t->groups[t->n_groups] = (struct ct_tensor_group){.prefix = prefix};
	return &t->groups[t->n_groups++];
}

/* Loads groups [first, end) from one file. Nothing is imported unless all tensors match. */
static enum ct_status load_file(const char *path, const struct target *t, int first, int end,
				struct ct_tensor_policy policy)
{
	const struct ct_tensor_group *groups = t->groups + first;
	struct ct_tensor_match m = {0};
	struct ct_str text = {0};
	ct_safetensors *s;
	enum ct_status st;

	CT_TRY(ct_safetensors_open(path, &s));
	CT_TRY_GOTO(ct__tensor_match(s, t->graph, groups, end - first, policy, &m), st, out);
	if (ct__tensor_match_is_exact(&m)) {
		st = ct__tensor_match_import(&m, s, t->graph, t->net, groups, end - first);
	} else {
		ct__tensor_match_describe(&m, &text);
		CT_FAIL(CT_DATA, "%s: %d of %d tensors match. %s", path, m.loaded, m.n, ct_str_text(&text));
		st = ct_error_hint("the checkpoint was saved with other settings of model, optim or train.ema");
	}
out:
	ct_str_release(&text);
	ct__tensor_match_release(&m);
	ct_safetensors_close(s);
	return st;
}

/* Opens file i of the checkpoint after comparing its checksum. */
static enum ct_status load_checked(const char *dir, const struct ct_ckpt_state *state, int i, const struct target *t,
				   int first, int end, struct ct_tensor_policy policy)
{
	enum ct_status st;
	char *path;

	CT_TRY(ct_ckpt_file_verify(dir, state, i));
	CT_TRY_ALLOC(path = ct_path_join(dir, ct_ckpt_file_name(i)));
	st = load_file(path, t, first, end, policy);
	ct_free(path);
	return st;
}

static enum ct_status load(const char *path, const struct target *t, ct_optim *optim)
{
	/* The file may contain states and EMA weights that the caller does not request. */
	const struct ct_tensor_policy policy = {.others_allowed = !optim,
						.ignored = t->has_ema ? NULL : CT_CKPT_EMA "/"};
	struct ct_ckpt_state state;
	enum ct_status st;

	CT_TRY(ct_ckpt_state_read(path, &state));
	CT_TRY_GOTO(load_checked(path, &state, 0, t, 0, 1, (struct ct_tensor_policy){0}), st, out);
	if (optim || t->has_ema)
		CT_TRY_GOTO(load_checked(path, &state, 1, t, 1, t->n_groups, policy), st, out);
	if (optim)
		ct_optim_set_steps(optim, state.train.optim_steps);
out:
	ct_ckpt_state_release(&state);
	return st;
}

static void add_arenas(struct target *t, const char *name, ct_arena *params, ct_arena *buffers)
{
	struct ct_tensor_group *g = add(t, name);

	g->has_buffers = buffers != NULL;
	g->params = params;
	g->buffers = buffers;
}

enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema)
{
	struct target t = {.graph = ct_net_graph(net), .net = net};

	add_arenas(&t, "", ct_net_params(net), ct_net_buffers(net));
	for (int i = 0; optim && ct_optim_state_name(optim, i); i++)
		add_arenas(&t, ct_optim_state_name(optim, i), ct_optim_state(optim, i), NULL);
	if (ema)
		add_arenas(&t, CT_CKPT_EMA, ct_ema_params(ema), ct_ema_buffers(ema));
	return load(path, &t, optim);
}

enum ct_status ct_checkpoint_load_whole(const char *path, struct ct_whole *w, ct_optim *optim)
{
	struct target t = {.graph = w->graph};

	for (int i = 0; i < w->n_groups; i++) {
		struct ct_tensor_group *g = add(&t, w->groups[i].name);

		g->has_buffers = w->groups[i].buffers != NULL;
		g->whole = &w->groups[i];
	}
	return load(path, &t, optim);
}
