/* Each tensor of the model is looked up by its full name, and each name in the file must belong to one of them or be
 * allowed. The match stores indexes into the file, so importing needs no second comparison; both must go through
 * groups and tensors in the same order. Every kind of difference is counted, and only the first few are named. Names
 * from a file are escaped before they are shown. Parameters are converted to the layout of the engine through one
 * buffer for the largest tensor; tensors that do not match keep their values, because the mirrors are written back as
 * a whole with the old contents. */
#include "trainer/run/checkpoint/tensor_match_impl.h"

#include <string.h>

#define MAX_NAMED 4 /* number of names that are shown for each kind of difference */

static void CT_PRINTF(2, 3) note(struct ct_tensor_list *l, const char *fmt, ...)
{
	va_list ap;

	if (++l->n > MAX_NAMED)
		return;
	ct_str_add(&l->text, l->n > 1 ? ", " : "");
	va_start(ap, fmt);
	ct_str_addv(&l->text, fmt, ap);
	va_end(ap);
}

/* Parameters come first, then buffers. */
static const struct ct_param *nth(const ct_graph *g, int i)
{
	int n = ct_graph_n_params(g);

	return i < n ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n);
}

static int n_tensors(const ct_graph *g, const struct ct_tensor_group *group)
{
	return ct_graph_n_params(g) + (group->has_buffers ? ct_graph_n_buffers(g) : 0);
}

static bool starts_with(const char *text, const char *head)
{
	return strncmp(text, head, strlen(head)) == 0;
}

int ct__tensor_find(const ct_safetensors *s, const char *prefix, const char *name)
{
	char full[sizeof(((struct ct_param *)0)->name) + 64];
	size_t len = strlen(prefix);

	CT_ASSERT(len + strlen(name) < sizeof(full));
	memcpy(full, prefix, len);
	memcpy(full + len, name, strlen(name) + 1);
	return ct_safetensors_find(s, full);
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

/* Returns true if tensor `at` of the file matches p. Otherwise adds the reason to the list. */
static bool fits(const ct_safetensors *s, int at, const char *prefix, const struct ct_param *p,
		 struct ct_tensor_list *l)
{
	struct ct_tensor_desc t, want = {.ndim = p->ndim};
	struct ct_str ours = {0}, theirs = {0};
	const char *dtype;
	bool same;

	ct_safetensors_at(s, at, &t, &dtype);
	same = t.ndim == p->ndim;
	for (int i = 0; i < p->ndim; i++) {
		want.dims[i] = p->dims[i];
		same = same && t.dims[i] == want.dims[i];
	}
	if (same && is_float(dtype))
		return true;
	if (same) {
		note(l, "%s%s has the element type %s", prefix, p->name, dtype);
		return false;
	}
	add_shape(&ours, &want);
	add_shape(&theirs, &t);
	note(l, "%s%s is %s, but the model's is %s", prefix, p->name, ct_str_text(&theirs), ct_str_text(&ours));
	ct_str_release(&theirs);
	ct_str_release(&ours);
	return false;
}

/* Matches the tensors of one group, starting at number `first` of the match. */
static void match_group(const ct_safetensors *s, const ct_graph *g, const struct ct_tensor_group *group, int first,
			struct ct_tensor_match *m)
{
	const int head = ct_graph_head(g);

	for (int i = 0; i < n_tensors(g, group); i++) {
		const struct ct_param *p = nth(g, i);
		int at = ct__tensor_find(s, group->prefix, p->name);

		if (at < 0)
			note(&m->missing, "%s%s", group->prefix, p->name);
		else if (!fits(s, at, group->prefix, p, &m->misshaped))
			at = -1;
		m->at[first + i] = at;
		m->loaded += at >= 0;
		m->head_only = m->head_only && (at >= 0 || p->node == head);
	}
}

/* Returns true if the tensor belongs to a group, or is allowed to be in the file anyway. */
static bool is_expected(const char *name, const ct_graph *g, const struct ct_tensor_group *groups, int n_groups,
			struct ct_tensor_policy policy)
{
	bool prefixed = false;

	if (ct_ends_with(name, ".num_batches_tracked") || (policy.ignored && starts_with(name, policy.ignored)))
		return true;
	for (int k = 0; k < n_groups; k++) {
		if (!starts_with(name, groups[k].prefix))
			continue;
		prefixed = true;
		for (int i = 0; i < n_tensors(g, &groups[k]); i++) {
			if (strcmp(name + strlen(groups[k].prefix), nth(g, i)->name) == 0)
				return true;
		}
	}
	return policy.others_allowed && !prefixed;
}

enum ct_status ct__tensor_match(const ct_safetensors *s, const ct_graph *g, const struct ct_tensor_group *groups,
				int n_groups, struct ct_tensor_policy policy, struct ct_tensor_match *out)
{
	struct ct_tensor_match m = {.head_only = true};
	int first = 0;

	for (int k = 0; k < n_groups; k++)
		m.n += n_tensors(g, &groups[k]);
	CT_TRY_ALLOC(m.at = CT_NEW_ARRAY(int, (size_t)m.n));
	for (int k = 0; k < n_groups; first += n_tensors(g, &groups[k]), k++)
		match_group(s, g, &groups[k], first, &m);
	for (int i = 0; i < ct_safetensors_count(s); i++) {
		struct ct_str shown = {0};
		struct ct_tensor_desc t;

		ct_safetensors_at(s, i, &t, NULL);
		if (is_expected(t.name, g, groups, n_groups, policy))
			continue;
		ct_str_add_escaped(&shown, t.name, strlen(t.name), 100);
		note(&m.extra, "%s", ct_str_text(&shown));
		ct_str_release(&shown);
	}
	*out = m;
	return CT_OK;
}

void ct__tensor_match_release(struct ct_tensor_match *m)
{
	ct_str_release(&m->missing.text);
	ct_str_release(&m->misshaped.text);
	ct_str_release(&m->extra.text);
	ct_free(m->at);
	*m = (struct ct_tensor_match){0};
}

bool ct__tensor_match_is_exact(const struct ct_tensor_match *m)
{
	return m->loaded == m->n && m->extra.n == 0;
}

static void describe(const struct ct_tensor_list *l, const char *one, const char *many, bool *first, struct ct_str *out)
{
	if (l->n == 0)
		return;
	ct_str_addf(out, "%s%d %s: %s%s", *first ? "" : "; ", l->n, l->n == 1 ? one : many, ct_str_text(&l->text),
		    l->n > MAX_NAMED ? ", ..." : "");
	*first = false;
}

void ct__tensor_match_describe(const struct ct_tensor_match *m, struct ct_str *out)
{
	bool first = true;

	describe(&m->misshaped, "has another shape or type", "have another shape or type", &first, out);
	describe(&m->missing, "is missing", "are missing", &first, out);
	describe(&m->extra, "is not in the model", "are not in the model", &first, out);
}

/* Mirrors of the arenas of a group in host memory. */
struct destination {
	struct ct_mirror params, buffers;
};

static enum ct_status open_destination(ct_net *net, const struct ct_tensor_group *group, struct destination *d)
{
	ct_stream *s = ct_engine_stream(ct_net_engine(net));

	*d = (struct destination){0};
	CT_TRY(ct_mirror_open(group->params, CT_MIRROR_WRITE, s, &d->params));
	if (group->has_buffers)
		CT_TRY(ct_mirror_open(group->buffers, CT_MIRROR_WRITE, s, &d->buffers));
	return CT_OK;
}

static enum ct_status read_tensors(const ct_safetensors *s, ct_net *net, const struct ct_tensor_group *group,
				   const int *at, float *scratch, struct destination *d)
{
	const ct_graph *g = ct_net_graph(net);
	float *buffer = d->buffers.data;

	for (int i = 0; i < n_tensors(g, group); i++) {
		const struct ct_param *p = nth(g, i);
		bool is_param = i < ct_graph_n_params(g);

		if (at[i] >= 0) {
			CT_TRY(ct_safetensors_read(s, at[i], is_param ? scratch : buffer, p->n));
			if (is_param)
				CT_TRY(ct_net_import(net, &d->params, i, scratch));
		}
		buffer += is_param ? 0 : p->n;
	}
	return CT_OK;
}

static enum ct_status import_group(const ct_safetensors *s, ct_net *net, const struct ct_tensor_group *group,
				   const int *at, float *scratch)
{
	struct destination d;
	enum ct_status st;

	CT_TRY_GOTO(open_destination(net, group, &d), st, fail);
	CT_TRY_GOTO(read_tensors(s, net, group, at, scratch, &d), st, fail);
	CT_TRY_GOTO(ct_mirror_close(&d.params), st, fail);
	return ct_mirror_close(&d.buffers);
fail:
	ct_mirror_drop(&d.params);
	ct_mirror_drop(&d.buffers);
	return st;
}

static enum ct_status read_whole(const ct_safetensors *s, const ct_graph *g, const struct ct_tensor_group *group,
				 const int *at)
{
	float *params = group->whole->params, *buffers = group->whole->buffers;

	for (int i = 0; i < n_tensors(g, group); i++) {
		const size_t n = nth(g, i)->n;
		float **to = i < ct_graph_n_params(g) ? &params : &buffers;

		if (at[i] >= 0)
			CT_TRY(ct_safetensors_read(s, at[i], *to, n));
		*to += n;
	}
	return CT_OK;
}

enum ct_status ct__tensor_match_import(const struct ct_tensor_match *m, const ct_safetensors *s, const ct_graph *g,
				       ct_net *net, const struct ct_tensor_group *groups, int n_groups)
{
	enum ct_status st = CT_OK;
	const int *at = m->at;
	size_t most = 1;
	float *scratch;

	for (int i = 0; i < ct_graph_n_params(g) + ct_graph_n_buffers(g); i++)
		most = nth(g, i)->n > most ? nth(g, i)->n : most;
	CT_TRY_ALLOC(scratch = ct_realloc(NULL, most, sizeof(float)));
	for (int k = 0; k < n_groups && st == CT_OK; at += n_tensors(g, &groups[k]), k++)
		st = groups[k].whole ? read_whole(s, g, &groups[k], at) : import_group(s, net, &groups[k], at, scratch);
	ct_free(scratch);
	return st;
}
