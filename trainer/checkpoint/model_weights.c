#define CT_LOG_COMPONENT "weights"
#include "trainer/checkpoint/model_weights.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/checkpoint/checkpoint_files.h"

#define MAX_NAMED 4 /* of each kind of difference */

/* One kind of difference: how many, and the first of them in words. */
struct list {
	struct ct_str text;
	int n;
};

struct comparison {
	const struct ct_weights_file *from;
	ct_net *net;
	int n;   /* parameters and buffers of the model */
	int *at; /* [n] tensor of the file, -1: none that fits */
	int loaded;
	bool head_only; /* all that is missing or misshaped belongs to the last layer with a weight */
	struct list missing, misshaped, extra;
};

static void CT_PRINTF(2, 3) note(struct list *l, const char *fmt, ...)
{
	va_list ap;

	if (++l->n > MAX_NAMED)
		return;
	ct_str_add(&l->text, l->n > 1 ? ", " : "");
	va_start(ap, fmt);
	ct_str_addv(&l->text, fmt, ap);
	va_end(ap);
}

static const struct ct_param *nth(const ct_graph *g, int i)
{
	int n = ct_graph_n_params(g);

	return i < n ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n);
}

static bool starts_with(const char *text, const char *head)
{
	return strncmp(text, head, strlen(head)) == 0;
}

/* What wrappers of PyTorch put before every name. */
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

static int find(const struct comparison *c, const char *name)
{
	char full[sizeof(((struct ct_param *)0)->name) + 32];
	size_t len = strlen(c->from->prefix);

	CT_ASSERT(len + strlen(name) < sizeof(full));
	memcpy(full, c->from->prefix, len);
	memcpy(full + len, name, strlen(name) + 1);
	return ct_safetensors_find(c->from->tensors, full);
}

static void add_shape(struct ct_str *b, const struct ct_tensor_desc *t)
{
	ct_str_add(b, "[");
	for (int i = 0; i < t->ndim; i++)
		ct_str_addf(b, "%s%lld", i ? "," : "", (long long)t->dims[i]);
	ct_str_add(b, "]");
}

static bool is_float(const char *dtype)
{
	return !strcmp(dtype, "F32") || !strcmp(dtype, "F64") || !strcmp(dtype, "F16") || !strcmp(dtype, "BF16");
}

/* Notes why tensor `at` can't be p; false when it can. */
static bool misfits(struct comparison *c, const struct ct_param *p, int at)
{
	struct ct_tensor_desc t, want = {.ndim = p->ndim};
	struct ct_str ours = {0}, theirs = {0};
	const char *dtype;
	bool same = true;

	ct_safetensors_at(c->from->tensors, at, &t, &dtype);
	for (int i = 0; i < p->ndim; i++) {
		want.dims[i] = p->dims[i];
		same = same && i < t.ndim && t.dims[i] == want.dims[i];
	}
	same = same && t.ndim == p->ndim;
	if (!same) {
		add_shape(&ours, &want);
		add_shape(&theirs, &t);
		note(&c->misshaped, "%s is %s, the model's is %s", p->name, ct_str_text(&theirs), ct_str_text(&ours));
	} else if (!is_float(dtype)) {
		note(&c->misshaped, "%s is of type %s", p->name, dtype);
		same = false;
	}
	ct_str_release(&theirs);
	ct_str_release(&ours);
	return !same;
}

/* Node of the last layer with a weight: the classifier. */
static int head_of(const ct_graph *g)
{
	int head = -1;

	for (int i = 0; i < ct_graph_n_params(g); i++)
		head = ct_graph_param(g, i)->node > head ? ct_graph_param(g, i)->node : head;
	return head;
}

static void compare_model(struct comparison *c)
{
	const ct_graph *g = ct_net_graph(c->net);
	int head = head_of(g);

	c->head_only = true;
	for (int i = 0; i < c->n; i++) {
		const struct ct_param *p = nth(g, i);
		int at = find(c, p->name);
		if (at < 0)
			note(&c->missing, "%s", p->name);
		else if (misfits(c, p, at))
			at = -1;
		c->at[i] = at;
		c->loaded += at >= 0;
		c->head_only = c->head_only && (at >= 0 || p->node == head);
	}
}

static bool in_model(const ct_graph *g, int n, const char *name)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(nth(g, i)->name, name) == 0)
			return true;
	}
	return false;
}

static void compare_rest(struct comparison *c)
{
	for (int i = 0; i < ct_safetensors_count(c->from->tensors); i++) {
		struct ct_tensor_desc t;
		struct ct_str shown = {0};
		ct_safetensors_at(c->from->tensors, i, &t, NULL);
		if (!starts_with(t.name, c->from->prefix))
			continue; /* beside averages lies the optimizer's state */
		const char *name = t.name + strlen(c->from->prefix);
		/* A counter of PyTorch's batch norm that plays no part with a fixed momentum. */
		if (ct_ends_with(name, ".num_batches_tracked") || in_model(ct_net_graph(c->net), c->n, name))
			continue;
		ct_str_add_escaped(&shown, t.name, strlen(t.name), 100);
		note(&c->extra, "%s", ct_str_text(&shown));
		ct_str_release(&shown);
	}
}

static void describe(const struct list *l, const char *what, struct ct_str *out)
{
	if (l->n > 0)
		ct_str_addf(out, "%s%d %s: %s%s", out->len ? "; " : "", l->n, what, ct_str_text(&l->text),
			    l->n > MAX_NAMED ? ", ..." : "");
}

static void describe_all(const struct comparison *c, struct ct_str *out)
{
	describe(&c->misshaped, c->misshaped.n == 1 ? "does not fit" : "do not fit", out);
	describe(&c->missing, c->missing.n == 1 ? "is missing" : "are missing", out);
	describe(&c->extra, c->extra.n == 1 ? "is not in the model" : "are not in the model", out);
}

static enum ct_status refuse(const struct comparison *c, enum ct_weights_how how)
{
	struct ct_str text = {0};
	const ct_graph *g = ct_net_graph(c->net);
	enum ct_status st;

	describe_all(c, &text);
	st = CT_FAIL(CT_DATA, "%s has %d of the model's %d tensors as they should be. Of its tensors %s", c->from->path,
		     c->loaded, c->n, ct_str_text(&text));
	if (c->loaded == 0)
		ct_error_hint("is it of another model.name? `ctrain ckpt show` lists what a file holds");
	else if (how == CT_WEIGHTS_WHOLE)
		ct_error_hint("is model.name, or one of its options, another one?");
	else if (c->head_only && head_of(g) >= 0)
		ct_error_hint("use model.strict=false to start with a new head (%s) and take the rest",
			      ct_graph_node(g, head_of(g))->name);
	else
		ct_error_hint("is model.name, or one of its options, another one? model.strict=false takes what fits");
	ct_str_release(&text);
	return st;
}

static enum ct_status import(const struct comparison *c)
{
	const ct_graph *g = ct_net_graph(c->net);
	int n_params = ct_graph_n_params(g);
	float *scratch, *buffer = ct_net_buffers(c->net);
	enum ct_status st = CT_OK;
	size_t most = 1;

	for (int i = 0; i < n_params; i++)
		most = ct_graph_param(g, i)->n > most ? ct_graph_param(g, i)->n : most;
	CT_TRY_ALLOC(scratch = CT_NEW_ARRAY(float, most));
	for (int i = 0; i < c->n; i++) {
		size_t n = nth(g, i)->n;
		if (i < n_params && c->at[i] >= 0) {
			CT_TRY_GOTO(ct_safetensors_read(c->from->tensors, c->at[i], scratch, n), st, out);
			CT_TRY_GOTO(ct_net_import(c->net, ct_net_params(c->net), i, scratch), st, out);
		} else if (i >= n_params) {
			if (c->at[i] >= 0)
				CT_TRY_GOTO(ct_safetensors_read(c->from->tensors, c->at[i], buffer, n), st, out);
			buffer += n;
		}
	}
out:
	ct_free(scratch);
	return st;
}

static enum ct_status load(struct comparison *c, enum ct_weights_how how)
{
	struct ct_str text = {0};

	compare_model(c);
	compare_rest(c);
	bool fits = c->missing.n + c->misshaped.n + c->extra.n == 0;
	if (c->loaded == 0 || (how != CT_WEIGHTS_FITTING && !fits))
		return refuse(c, how);
	CT_TRY(import(c));
	if (how == CT_WEIGHTS_WHOLE)
		return CT_OK;
	describe_all(c, &text);
	CT_INFO("%d of the model's %d tensors come from %s%s%s%s", c->loaded, c->n, c->from->path,
		c->from->averages ? " (the averages)" : "", fits ? "" : "; of its tensors ", ct_str_text(&text));
	ct_str_release(&text);
	return CT_OK;
}

/* Says the checkpoint that there are none? Then the optimizer's file need not be there. */
static bool is_without_averages(const struct ct_ckpt_state *s)
{
	static const char line[] = "train.ema=0\n";
	const char *at = strstr(s->config_lines, line);

	return at && (at == s->config_lines || at[-1] == '\n');
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

/* File i of the checkpoint. */
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

enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out)
{
	enum ct_status st;
	char *found;

	*out = (struct ct_weights_file){.prefix = ""};
	CT_TRY(ct_checkpoint_resolve(NULL, path, &found));
	if (ct_ends_with(found, ".safetensors")) {
		out->path = found;
		st = ct_safetensors_open(found, &out->tensors);
		if (st == CT_OK)
			out->prefix = common_prefix(out->tensors);
	} else {
		st = open_checkpoint(found, out);
		ct_free(found);
	}
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
	const ct_graph *g = ct_net_graph(net);
	struct ct_weights_file file;
	struct comparison c = {.from = &file, .net = net, .n = ct_graph_n_params(g) + ct_graph_n_buffers(g)};
	enum ct_status st;

	CT_TRY(ct_weights_open(path, &file));
	c.at = CT_NEW_ARRAY(int, (size_t)c.n + 1);
	st = c.at ? load(&c, how) : CT_NOMEM;
	if (out)
		*out = (struct ct_weights_report){c.loaded, c.missing.n, c.misshaped.n, c.extra.n};
	ct_str_release(&c.missing.text);
	ct_str_release(&c.misshaped.text);
	ct_str_release(&c.extra.text);
	ct_free(c.at);
	ct_weights_close(&file);
	return st;
}

/* Name of the head's weight. */
static const char *head_weight(const ct_graph *g)
{
	int head = head_of(g);

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);
		if (p->node == head && p->kind == CT_PARAM_WEIGHT)
			return p->name;
	}
	return NULL;
}

static enum ct_status read_outputs(const struct ct_weights_file *file, const ct_graph *g, int *out)
{
	const struct comparison c = {.from = file};
	const char *name = head_weight(g);
	int at = name ? find(&c, name) : -1;
	struct ct_tensor_desc t;

	if (at >= 0)
		ct_safetensors_at(file->tensors, at, &t, NULL);
	if (at < 0 || t.ndim < 1 || t.dims[0] < 1 || t.dims[0] > INT32_MAX) {
		(void)CT_FAIL(CT_DATA, "%s holds no tensor \"%s\"", file->path, name ? name : "?");
		ct_error_hint("these are the weights of another model than model.name says");
		return CT_DATA;
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
