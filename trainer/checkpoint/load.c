/* Loads the tensors of a checkpoint into a net, its optimizer and its EMA weights. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/tensor_match_impl.h"

/* Loads all groups from one file. Nothing is imported unless all tensors match. */
static enum ct_status load_file(const char *path, ct_net *net, const struct ct_tensor_group *groups, int n_groups,
				struct ct_tensor_policy policy)
{
	struct ct_tensor_match m = {0};
	struct ct_str text = {0};
	ct_safetensors *s;
	enum ct_status st;

	CT_TRY(ct_safetensors_open(path, &s));
	CT_TRY_GOTO(ct__tensor_match(s, ct_net_graph(net), groups, n_groups, policy, &m), st, out);
	if (ct__tensor_match_is_exact(&m)) {
		st = ct__tensor_match_import(&m, s, net, groups, n_groups);
	} else {
		ct__tensor_match_describe(&m, &text);
		st = CT_FAIL_HINT(CT_DATA, "the checkpoint was saved with other settings of model, optim or train.ema",
				  "%s: %d of %d tensors match. %s", path, m.loaded, m.n, ct_str_text(&text));
	}
out:
	ct_str_release(&text);
	ct__tensor_match_release(&m);
	ct_safetensors_close(s);
	return st;
}

/* Opens file i of the checkpoint after comparing its checksum. */
static enum ct_status load_checked(const char *folder, const struct ct_ckpt_state *state, int i, ct_net *net,
				   const struct ct_tensor_group *groups, int n_groups, struct ct_tensor_policy policy)
{
	enum ct_status st;
	char *path;

	CT_TRY(ct_ckpt_file_verify(folder, state, i));
	CT_TRY_ALLOC(path = ct_path_join(folder, ct_ckpt_file_name(i)));
	st = load_file(path, net, groups, n_groups, policy);
	ct_free(path);
	return st;
}

static enum ct_status load_optim(const char *folder, const struct ct_ckpt_state *state, ct_net *net, ct_optim *optim,
				 ct_ema *ema)
{
	struct ct_tensor_group groups[8];
	char prefixes[7][64];
	int n = 0;

	for (; optim && ct_optim_state_name(optim, n); n++) {
		const char *name = ct_optim_state_name(optim, n);

		CT_ASSERT(n < (int)CT_ARRAY_LEN(prefixes) && strlen(name) + 2 <= sizeof(prefixes[0]));
		memcpy(prefixes[n], name, strlen(name));
		memcpy(prefixes[n] + strlen(name), "/", 2);
		groups[n] = (struct ct_tensor_group){prefixes[n], false, ct_optim_state(optim, n), NULL};
	}
	if (ema)
		groups[n++] = (struct ct_tensor_group){CT_CKPT_EMA "/", true, ct_ema_params(ema), ct_ema_buffers(ema)};
	/* The file may contain states and EMA weights that the caller does not request. */
	CT_TRY(load_checked(
		folder, state, 1, net, groups, n,
		(struct ct_tensor_policy){.others_allowed = !optim, .ignored = ema ? NULL : CT_CKPT_EMA "/"}));
	if (optim)
		ct_optim_set_steps(optim, state->train.optim_steps);
	return CT_OK;
}

enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema)
{
	const struct ct_tensor_group model = {"", true, ct_net_params(net), ct_net_buffers(net)};
	struct ct_ckpt_state state;
	enum ct_status st;

	CT_TRY(ct_ckpt_state_read(path, &state));
	CT_TRY_GOTO(load_checked(path, &state, 0, net, &model, 1, (struct ct_tensor_policy){0}), st, out);
	if (optim || ema)
		CT_TRY_GOTO(load_optim(path, &state, net, optim, ema), st, out);
out:
	ct_ckpt_state_release(&state);
	return st;
}
