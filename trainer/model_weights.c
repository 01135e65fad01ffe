#define CT_LOG_COMPONENT "weights"
#include "trainer/model_weights.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/checkpoint.h"
#include "trainer/safetensors.h"

#define MAX_NAMED 4 /* of each kind of difference */

/* One kind of difference: how many, and the first of them in words. */
struct list {
	struct ct_str text;
	int n;
};

struct comparison {
	const ct_safetensors *file;
	ct_net *net;
	const char *prefix; /* of all names in the file, or "" */
	int n;              /* parameters and buffers of the model */
	int *at;            /* [n] tensor of the file, -1: none that fits */
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

static bool ends_with(const char *text, const char *tail)
{
	size_t n = strlen(text), k = strlen(tail);

	return n >= k && strcmp(text + n - k, tail) == 0;
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
	size_t len = strlen(c->prefix);

	CT_ASSERT(len + strlen(name) < sizeof(full));
	memcpy(full, c->prefix, len);
	memcpy(full + len, name, strlen(name) + 1);
	return ct_safetensors_find(c->file, full);
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

	ct_safetensors_at(c->file, at, &t, &dtype);
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
	for (int i = 0; i < ct_safetensors_count(c->file); i++) {
		struct ct_tensor_desc t;
		struct ct_str shown = {0};
		ct_safetensors_at(c->file, i, &t, NULL);
		const char *name = t.name + strlen(c->prefix);
		/* A counter of PyTorch's batch norm that plays no part with a fixed momentum. */
		if (ends_with(name, ".num_batches_tracked") || in_model(ct_net_graph(c->net), c->n, name))
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

static enum ct_status refuse(const struct comparison *c, const char *path)
{
	struct ct_str text = {0};
	const ct_graph *g = ct_net_graph(c->net);
	enum ct_status st;

	describe_all(c, &text);
	st = CT_FAIL(CT_DATA, "%s has %d of the model's %d tensors as they should be. Of its tensors %s", path,
		     c->loaded, c->n, ct_str_text(&text));
	if (c->loaded == 0)
		ct_error_hint("is it of another model.name? `ctrain ckpt show` lists what a file holds");
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
			CT_TRY_GOTO(ct_safetensors_read(c->file, c->at[i], scratch, n), st, out);
			CT_TRY_GOTO(ct_net_import(c->net, ct_net_params(c->net), i, scratch), st, out);
		} else if (i >= n_params) {
			if (c->at[i] >= 0)
				CT_TRY_GOTO(ct_safetensors_read(c->file, c->at[i], buffer, n), st, out);
			buffer += n;
		}
	}
out:
	ct_free(scratch);
	return st;
}

static enum ct_status load(struct comparison *c, const char *path, bool strict)
{
	struct ct_str text = {0};

	compare_model(c);
	compare_rest(c);
	bool fits = c->missing.n + c->misshaped.n + c->extra.n == 0;
	if (c->loaded == 0 || (strict && !fits))
		return refuse(c, path);
	CT_TRY(import(c));
	describe_all(c, &text);
	CT_INFO("%d of the model's %d tensors come from %s%s%s", c->loaded, c->n, path, fits ? "" : "; of its tensors ",
		ct_str_text(&text));
	ct_str_release(&text);
	return CT_OK;
}

/* A folder stands for the model.safetensors of the checkpoint that it is or holds. Returns owned. */
static enum ct_status find_file(const char *path, char **out)
{
	static const char *const pickles[] = {".pth", ".pt", ".bin", ".pkl", ".tar", ".ckpt"};
	enum ct_status st;
	char *folder;

	for (size_t i = 0; i < CT_ARRAY_LEN(pickles); i++) {
		if (!ends_with(path, pickles[i]))
			continue;
		st = CT_FAIL(CT_DATA, "%s is not a safetensors file", path);
		ct_error_hint("PyTorch's own files are programs and not read: convert them once with "
			      "safetensors.torch.save_file(torch.load(\"a.pth\"), \"a.safetensors\")");
		return st;
	}
	CT_TRY(ct_checkpoint_resolve(NULL, path, &folder));
	if (ends_with(folder, ".safetensors")) {
		*out = folder;
		return CT_OK;
	}
	st = ct_checkpoint_verify(folder);
	if (st == CT_OK && !(*out = ct_path_join(folder, "model.safetensors")))
		st = CT_NOMEM;
	ct_free(folder);
	return st;
}

enum ct_status ct_model_weights_load(const char *path, ct_net *net, bool strict, struct ct_weights_report *out)
{
	const ct_graph *g = ct_net_graph(net);
	struct comparison c = {.net = net, .n = ct_graph_n_params(g) + ct_graph_n_buffers(g)};
	ct_safetensors *file = NULL;
	char *name = NULL;
	enum ct_status st;

	CT_TRY(find_file(path, &name));
	CT_TRY_GOTO(ct_safetensors_open(name, &file), st, out);
	c.file = file;
	c.prefix = common_prefix(file);
	c.at = CT_NEW_ARRAY(int, (size_t)c.n + 1);
	st = c.at ? load(&c, name, strict) : CT_NOMEM;
	if (out)
		*out = (struct ct_weights_report){c.loaded, c.missing.n, c.misshaped.n, c.extra.n};
	ct_str_release(&c.missing.text);
	ct_str_release(&c.misshaped.text);
	ct_str_release(&c.extra.text);
	ct_free(c.at);
	ct_safetensors_close(file);
out:
	ct_free(name);
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

static enum ct_status read_outputs(const ct_safetensors *file, const char *path, const ct_graph *g, int *out)
{
	const struct comparison c = {.file = file, .prefix = common_prefix(file)};
	const char *name = head_weight(g);
	int at = name ? find(&c, name) : -1;
	struct ct_tensor_desc t;

	if (at >= 0)
		ct_safetensors_at(file, at, &t, NULL);
	if (at < 0 || t.ndim < 1 || t.dims[0] < 1 || t.dims[0] > INT32_MAX) {
		(void)CT_FAIL(CT_DATA, "%s holds no tensor \"%s\"", path, name ? name : "?");
		ct_error_hint("these are the weights of another model than model.name says");
		return CT_DATA;
	}
	*out = (int)t.dims[0];
	return CT_OK;
}

enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out)
{
	ct_safetensors *file = NULL;
	char *name = NULL;
	enum ct_status st;

	CT_TRY(find_file(path, &name));
	CT_TRY_GOTO(ct_safetensors_open(name, &file), st, out);
	st = read_outputs(file, name, g, out);
	ct_safetensors_close(file);
out:
	ct_free(name);
	return st;
}
