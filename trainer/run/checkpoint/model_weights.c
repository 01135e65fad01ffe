/* A file is matched completely before a value is changed, so a refusal leaves the net as it was. EMA weights are
 * preferred in a directory because evaluations have used them. They are in the optimizer's file, which need not exist
 * if the config in the checkpoint says that there are none. Only the file that is read is verified. A match is doubtful
 * if tensors outside of the head are missing: such a run would start from random values, so this is a warning and not
 * only a line of the log. Retention may delete a checkpoint while it is opened; ct_checkpoint_use then resolves the
 * name again. */
#define CT_LOG_COMPONENT "weights"
#include "trainer/run/checkpoint/model_weights.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/tensor_match_impl.h"

static bool starts_with(const char *text, const char *head)
{
	return strncmp(text, head, strlen(head)) == 0;
}

/* Prefixes that PyTorch's wrappers add to every name. */
static const char *common_prefix(const ct_safetensors *s)
{
	static const char *const wrappers[] = {"module._orig_mod.", "module.", "_orig_mod."};

	for (size_t k = 0; k < CT_ARRAY_LEN(wrappers); k++) {
		int i = 0;

		for (; i < ct_safetensors_count(s); i++) {
			struct ct_tensor_desc t;

			ct_safetensors_at(s, i, &t, NULL);
			if (!starts_with(t.name, wrappers[k]))
				break;
		}
		if (i > 0 && i == ct_safetensors_count(s))
			return wrappers[k];
	}
	return "";
}

static enum ct_status refuse(const struct ct_weights_file *from, const ct_graph *g, const struct ct_tensor_match *m,
			     enum ct_weights_how how)
{
	const int head = ct_graph_head(g);
	struct ct_str text = {0};
	enum ct_status st;

	ct__tensor_match_describe(m, &text);
	st = CT_FAIL(CT_DATA, "%s: %d of the model's %d tensors match. %s", from->path, m->loaded, m->n,
		     ct_str_text(&text));
	if (m->loaded == 0)
		ct_error_hint(
			"the weights belong to a model other than model.name; `ctrain ckpt show` lists the tensors of a file");
	else if (how == CT_WEIGHTS_WHOLE)
		ct_error_hint(
			"compare model.name and the other model options with those of the training that produced the weights");
	else if (m->head_only && head >= 0)
		ct_error_hint("use model.strict=false to start with a new head (%s) and load the rest",
			      ct_graph_node(g, head)->name);
	else
		ct_error_hint(
			"compare model.name and the other model options, or set model.strict=false to load the tensors that match");
	ct_str_release(&text);
	return st;
}

/* Describes what was loaded. The file of another model may match in a single bias only. */
static void report(const struct ct_weights_file *from, const struct ct_tensor_match *m, struct ct_weights_report *out)
{
	const char *what = from->averages ? " (the EMA weights)" : "";
	struct ct_str text = {0};

	out->doubtful = m->loaded < m->n && !m->head_only;
	ct__tensor_match_describe(m, &text);
	if (m->loaded < m->n)
		snprintf(
			out->text, sizeof(out->text),
			"%s%d of the model's %d tensors were loaded from %s%s; the other %d start from random values. %s",
			out->doubtful ? "only " : "", m->loaded, m->n, from->path, what, m->n - m->loaded,
			ct_str_text(&text));
	else
		snprintf(out->text, sizeof(out->text), "all of the model's %d tensors were loaded from %s%s%s%s", m->n,
			 from->path, what, text.len ? "; " : "", ct_str_text(&text));
	if (out->doubtful)
		CT_WARN("%s", out->text);
	else
		CT_INFO("%s", out->text);
	ct_str_release(&text);
}

/* Loads into the net or, if it is NULL, into the memory of the group. */
static enum ct_status load(const struct ct_weights_file *from, const ct_graph *g, ct_net *net,
			   struct ct_tensor_group group, enum ct_weights_how how, struct ct_weights_report *out)
{
	struct ct_tensor_match m;
	enum ct_status st;

	group.prefix = from->prefix;
	group.has_buffers = true;
	CT_TRY(ct__tensor_match(from->tensors, g, &group, 1, (struct ct_tensor_policy){.others_allowed = true}, &m));
	*out = (struct ct_weights_report){
		.n = m.n, .loaded = m.loaded, .missing = m.missing.n, .misshaped = m.misshaped.n, .extra = m.extra.n};
	if (m.loaded == 0 || (how != CT_WEIGHTS_FITTING && !ct__tensor_match_is_exact(&m)))
		st = refuse(from, g, &m, how);
	else
		st = ct__tensor_match_import(&m, from->tensors, g, net, &group, 1);
	if (st == CT_OK && how != CT_WEIGHTS_WHOLE)
		report(from, &m, out);
	ct__tensor_match_release(&m);
	return st;
}

/* Returns true if the checkpoint states that it has no EMA weights. The optimizer's file is then not needed. */
static bool is_without_averages(const struct ct_ckpt_state *s)
{
	char value[8];

	return ct_ckpt_config_value(s, "train.ema", value, sizeof(value)) && strcmp(value, "0") == 0;
}

static bool has_averages(const ct_safetensors *s)
{
	struct ct_tensor_desc t;

	for (int i = 0; i < ct_safetensors_count(s); i++) {
		ct_safetensors_at(s, i, &t, NULL);
		if (starts_with(t.name, CT_CKPT_EMA "/"))
			return true;
	}
	return false;
}

/* Opens file i of the checkpoint. */
static enum ct_status open_part(const char *folder, int i, struct ct_weights_file *out)
{
	CT_TRY_ALLOC(out->path = ct_path_join(folder, ct_ckpt_file_name(i)));
	return ct_safetensors_open(out->path, &out->tensors);
}

static enum ct_status open_checkpoint(const char *folder, struct ct_weights_file *out)
{
	struct ct_ckpt_state state;
	enum ct_status st;

	CT_TRY(ct_ckpt_state_read(folder, &state));
	if (!is_without_averages(&state)) {
		CT_TRY_GOTO(open_part(folder, 1, out), st, out);
		out->averages = has_averages(out->tensors);
	}
	if (out->averages) {
		out->prefix = CT_CKPT_EMA "/";
	} else {
		ct_weights_close(out);
		CT_TRY_GOTO(open_part(folder, 0, out), st, out);
	}
	st = ct_ckpt_file_verify(folder, &state, out->averages ? 1 : 0);
out:
	ct_ckpt_state_release(&state);
	return st;
}

static enum ct_status open_resolved(const char *path, void *user)
{
	struct ct_weights_file *f = user;

	ct_weights_close(f);
	if (!ct_ends_with(path, ".safetensors"))
		return open_checkpoint(path, f);
	CT_TRY_ALLOC(f->path = ct_strdup(path));
	CT_TRY(ct_safetensors_open(path, &f->tensors));
	f->prefix = common_prefix(f->tensors);
	return CT_OK;
}

enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out)
{
	enum ct_status st;
	char *found;

	*out = (struct ct_weights_file){.prefix = ""};
	st = ct_checkpoint_use(NULL, path, open_resolved, out, &found);
	ct_free(found);
	if (st < 0)
		ct_weights_close(out);
	return st;
}

void ct_weights_close(struct ct_weights_file *f)
{
	ct_safetensors_close(f->tensors);
	ct_free(f->path);
	*f = (struct ct_weights_file){.prefix = ""};
}

enum ct_status ct_model_weights_load(const char *path, ct_net *net, enum ct_weights_how how,
				     struct ct_weights_report *out)
{
	struct ct_weights_report unused;
	struct ct_weights_file file;
	enum ct_status st;

	CT_TRY(ct_weights_open(path, &file));
	st = load(&file, ct_net_graph(net), net,
		  (struct ct_tensor_group){.params = ct_net_params(net), .buffers = ct_net_buffers(net)}, how,
		  out ? out : &unused);
	ct_weights_close(&file);
	return st;
}

enum ct_status ct_model_weights_load_whole(const char *path, struct ct_whole *w, enum ct_weights_how how,
					   struct ct_weights_report *out)
{
	struct ct_weights_report unused;
	struct ct_weights_file file;
	enum ct_status st;

	CT_TRY(ct_weights_open(path, &file));
	st = load(&file, w->graph, NULL, (struct ct_tensor_group){.whole = &w->groups[0]}, how, out ? out : &unused);
	ct_weights_close(&file);
	return st;
}

/* Returns the name of the weight of the model's head. */
static const char *head_weight(const ct_graph *g)
{
	int head = ct_graph_head(g);

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		if (p->node == head && p->kind == CT_PARAM_WEIGHT)
			return p->name;
	}
	return NULL;
}

static enum ct_status read_outputs(const struct ct_weights_file *file, const ct_graph *g, int *out)
{
	const char *name = head_weight(g);
	int at = name ? ct__tensor_find(file->tensors, file->prefix, name) : -1;
	struct ct_tensor_desc t;

	if (at >= 0)
		ct_safetensors_at(file->tensors, at, &t, NULL);
	if (at < 0 || t.ndim < 1 || t.dims[0] < 1 || t.dims[0] > INT32_MAX) {
		CT_FAIL(CT_DATA, "%s does not contain a tensor \"%s\"", file->path, name ? name : "?");
		return ct_error_hint("the weights belong to a model other than model.name");
	}
	*out = (int)t.dims[0];
	return CT_OK;
}

enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out)
{
	struct ct_weights_file file;
	enum ct_status st;

	CT_TRY(ct_weights_open(path, &file));
	st = read_outputs(&file, g, out);
	ct_weights_close(&file);
	return st;
}
