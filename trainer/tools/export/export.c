/* Values of the graph are mapped to values of the exported model: an operation that does nothing in evaluation has no
 * counterpart, so its users refer to its input (ct__export_values). In ctrain all values have the shape [N,C,H,W], but
 * in the formats some have rank 2, so for each value it is recorded which one it has (`flat`).
 *
 * A file that exists is never replaced, because it may be the only copy of other weights, and a file gets its name when
 * it is complete. A Python module comes with a file of weights; both are written, or none, unless the weights
 * file is the one that was exported. Weights of unknown models can be copied, since this needs no graph. */
#include "trainer/tools/export/export.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/tools/export/export_impl.h"

const float *ct__export_param(const struct ct_export_model *m, int id)
{
	const float *at = m->whole->groups[0].params;

	for (int i = 0; i < id; i++)
		at += ct_graph_param(m->graph, i)->n;
	return at;
}

const float *ct__export_buffer(const struct ct_export_model *m, int id)
{
	const float *at = m->whole->groups[0].buffers;

	for (int i = 0; i < id; i++)
		at += ct_graph_buffer(m->graph, i)->n;
	return at;
}

static bool is_identity(const struct ct_op_export *e, const struct ct_export_value *x)
{
	return e->identity == CT_IDENTITY_IN_EVALUATION || (e->identity == CT_IDENTITY_OF_VECTORS && x->flat);
}

void ct__export_values(const ct_graph *g, struct ct_export_value *values)
{
	values[0] = (struct ct_export_value){0};
	for (int i = 1; i < ct_graph_n_nodes(g); i++) {
		const struct ct_node *n = ct_graph_node(g, i);
		const struct ct_op_export *e = &ct_op_info(n->op)->exported;
		const struct ct_export_value *x = &values[n->in[0]];
		const bool any = x->flat || (n->in[1] >= 0 && values[n->in[1]].flat);

		if (is_identity(e, x))
			values[i] = *x;
		else
			values[i] = (struct ct_export_value){
				.node = i, .flat = e->gives == CT_RANK_ANY ? any : e->gives == CT_RANK_2};
	}
}

bool ct__export_is_flat(const struct ct_node *n, const struct ct_export_value *value)
{
	const enum ct_rank takes = ct_op_info(n->op)->exported.takes;

	return takes == CT_RANK_ANY ? value->flat : takes == CT_RANK_2;
}

bool ct__export_normalizes(const struct ct_description *d)
{
	for (int i = 0; i < d->model.input.c && i < (int)CT_ARRAY_LEN(d->mean); i++) {
		if (d->mean[i] != 0 || d->std[i] != 1)
			return true;
	}
	return false;
}

void ct__export_describe_input(const struct ct_description *d, struct ct_str *out)
{
	const struct ct_shape *in = &d->model.input;

	ct_str_addf(out, "float32 [N,%d,%d,%d]", in->c, in->h, in->w);
	if (d->resize > 0)
		ct_str_addf(out, ": %s images, values from 0 to 1", in->c == 3 ? "RGB" : "gray");
	if (ct__export_normalizes(d))
		ct_str_add(out, "; the model normalizes them");
}

/* One export: what the formats need to know. */
struct job {
	struct ct_model_source source;
	const char *path;
	const struct format *format;
	struct ct_str *report;
};

/* Fails if the file exists: it may be the only copy of other weights. */
static enum ct_status write_new(const char *path, const struct ct_str *text)
{
	CT_TRY(ct_str_status(text));
	return ct_file_create(path, text->s, text->len);
}

static enum ct_status write_onnx(const struct job *j, const struct ct_export_model *m, const char *weights)
{
	struct ct_str file = {0};
	enum ct_status st = ct__export_onnx(m, &file);

	if (st == CT_OK)
		st = write_new(j->path, &file);
	if (st == CT_OK) {
		ct_str_addf(j->report, "%s: %s from %s; the input is ", j->path, m->description->model.name, weights);
		ct__export_describe_input(m->description, j->report);
		ct_str_add(j->report, "\n");
	}
	ct_str_release(&file);
	return st;
}

/* Returns the path of the weights of a Python module: model.safetensors for model.py. Owned by the caller. */
static char *python_weights(const char *path)
{
	return ct_strfmt("%.*s.safetensors", (int)(strlen(path) - strlen(".py")), path);
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static enum ct_status write_python(const struct job *j, const struct ct_export_model *m, const char *weights)
{
	char *beside = python_weights(j->path);
	const bool exists = beside && same_file(beside, weights); /* model.safetensors is exported to model.py */
	struct ct_str file = {0};
	enum ct_status st = beside ? ct__export_python(m, ct_path_name(beside), &file) : CT_NOMEM;

	if (st == CT_OK && !exists)
		st = ct__export_safetensors(weights, m->description, beside, j->report);
	if (st == CT_OK) {
		st = write_new(j->path, &file);
		if (st < 0 && !exists)
			unlink(beside);
	}
	if (st == CT_OK)
		ct_str_addf(j->report, "%s: %s as a torch.nn.Module, which loads %s\n", j->path,
			    m->description->model.name, beside);
	ct_str_release(&file);
	ct_free(beside);
	return st;
}

static const struct format {
	const char *suffix, *what;
	/* NULL: the weights are copied without building the model */
	enum ct_status (*write)(const struct job *j, const struct ct_export_model *m, const char *weights);
} formats[] = {
	{".onnx", "ONNX, for onnxruntime and others", write_onnx},
	{".safetensors", "weights, for PyTorch and ctrain", NULL},
	{".py", "a module for PyTorch, with its weights next to it", write_python},
};

static const struct format *find_format(const char *path)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(formats); i++) {
		if (ct_ends_with(path, formats[i].suffix))
			return &formats[i];
	}
	return NULL;
}

enum ct_status ct_export_check_path(const char *path)
{
	struct ct_str list = {0};
	enum ct_status st;

	if (find_format(path))
		return CT_OK;
	for (size_t i = 0; i < CT_ARRAY_LEN(formats); i++)
		ct_str_addf(&list, "%s%s (%s)", i ? ", " : "", formats[i].suffix, formats[i].what);
	st = CT_FAIL(CT_USAGE, "--out %s: the suffix does not name a format that ctrain can export", path);
	if (ct_ends_with(path, ".pth") || ct_ends_with(path, ".pt") || ct_ends_with(path, ".bin"))
		ct_error_hint(
			"export to FILE.safetensors, which PyTorch can read with safetensors.torch.load_file. To convert it to .pth: "
			"torch.save(load_file(\"FILE.safetensors\"), \"FILE.pth\")");
	else
		ct_error_hint("the suffixes are %s", ct_str_text(&list));
	ct_str_release(&list);
	return st;
}

static enum ct_status write_model(const struct job *j, const char *weights)
{
	const struct ct_description *d = &j->source.description;
	struct ct_whole whole = {0};
	ct_graph *g;
	enum ct_status st;

	CT_TRY(ct_model_build(&d->model, &g));
	CT_TRY_GOTO(ct_whole_init(g, NULL, NULL, &whole), st, out);
	CT_TRY_GOTO(ct_model_weights_load_whole(weights, &whole, CT_WEIGHTS_WHOLE, NULL), st, out);
	st = j->format->write(j, &(struct ct_export_model){d, g, &whole}, weights);
out:
	ct_whole_release(&whole);
	ct_graph_destroy(g);
	return st;
}

static enum ct_status write_file(const char *weights, void *user)
{
	const struct job *j = user;
	const bool described = j->source.description.model.name != NULL;

	if (j->format->write)
		return write_model(j, weights);
	return ct__export_safetensors(weights, described ? &j->source.description : NULL, j->path, j->report);
}

enum ct_status ct_export(const struct ct_model_request *q, const char *path, struct ct_str *report)
{
	struct job j = {.path = path, .format = find_format(path), .report = report};
	enum ct_status st;

	CT_TRY(ct_export_check_path(path));
	st = ct_model_source_open(q, &j.source);
	/* Weights of unknown models can be copied. */
	if (st == CT_USAGE && !j.format->write && !q->config && q->n_sets == 0 && j.source.weights) {
		ct_error_clear();
		st = CT_OK;
	}
	if (st == CT_OK)
		st = ct_model_source_use(&j.source, write_file, &j);
	ct_model_source_release(&j.source);
	return st;
}
