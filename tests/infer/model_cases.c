/* Writes models with random weights, inputs and ctrain's outputs, with which tests compare other programs.
 *   model_cases list              prints the names of the cases, and the number of parameters of each
 *   model_cases DIR NAME          writes DIR/NAME.safetensors, DIR/NAME.input (uint8 [N,H,W,C], or float [N,C,H,W] for
 *                                 regression) and DIR/NAME.output (float [N,K]) */
#include <stdio.h>
#include <string.h>

#include "base/device/arena.h"
#include "base/file.h"
#include "base/rng.h"
#include "infer/description.h"
#include "nn/engine.h"
#include "nn/graph/op.h"

enum { ROWS = 3, MAX_LAYERS = 24 };

static const struct model_case {
	const char *name, *model; /* model NULL: the name */
	struct ct_shape input;
	int n_outputs;
	const char *layers[MAX_LAYERS];
} cases[] = {
	{"mlp", NULL, {1, 28, 28}, 10, {0}},
	{"lenet", NULL, {1, 28, 28}, 10, {0}},
	{"convnet", NULL, {1, 28, 28}, 10, {0}},
	{"resnet18", NULL, {3, 64, 48}, 10, {0}},
	{"resnet34", NULL, {3, 64, 64}, 10, {0}},
	{"resnet50", NULL, {3, 64, 64}, 7, {0}},
	{"resnet101", NULL, {3, 64, 64}, 7, {0}},
	{"resnet152", NULL, {3, 64, 64}, 7, {0}},
	{"resnext50_32x4d", NULL, {3, 64, 64}, 7, {0}},
	{"wide_resnet50_2", NULL, {3, 64, 64}, 7, {0}},
	{"resnet20", NULL, {3, 32, 32}, 10, {0}},
	{"resnet32", NULL, {3, 32, 32}, 10, {0}},
	{"resnet44", NULL, {3, 32, 32}, 10, {0}},
	{"resnet56", NULL, {3, 32, 32}, 10, {0}},
	{"windows",
	 "layers",
	 {3, 23, 30},
	 5,
	 {"conv2d 12 kernel=3x5 stride=2x1 padding=1x2 bias=false", "batch_norm eps=1e-3", "relu name=a.b",
	  "conv2d 24 kernel=3 padding=2 dilation=2 groups=3 name=a-b", "max_pool 3 stride=2 padding=1",
	  "relu name=forward", "conv2d 24 kernel=1 name=type", "drop_path 0.3", "add from=forward",
	  "batch_norm name=a.b.c", "avg_pool 3x2 stride=2x1 padding=1x0", "max_pool 2 stride=1 dilation=2",
	  "dropout 0.5", "flatten", "linear 9 name=logits", "dropout 0.2", "linear 5 name=output"}},
	{"ranks",
	 "layers",
	 {1, 6, 5},
	 4,
	 {"linear 12", "batch_norm name=n1", "relu", "dropout 0.1", "conv2d 8 kernel=1 name=c1", "relu name=r2",
	  "flatten name=f", "flatten name=g", "add from=r2 name=s1", "conv2d 4 kernel=1 name=input2",
	  "global_avg_pool name=logits"}},
	{"last_add",
	 "layers",
	 {3, 8, 8},
	 4,
	 {"conv2d 4 kernel=8 name=c", "flatten name=f", "linear 4 name=l", "add from=c name=logits", "dropout 0.5"}},
	{"regression", "mlp", {2, 3, 4}, 3, {0}},
};

static bool is_regression(const struct model_case *c)
{
	return strcmp(c->name, "regression") == 0;
}

static enum ct_status describe(const struct model_case *c, struct ct_description *d)
{
	static const int hidden[] = {33, 17};
	static const char *const classes[] = {
		"zero", "one \"quoted\"", "\xc3\xa9t\xc3\xa9", "d", "e", "f", "g", "h", "i", "j"};
	struct ct_model_spec spec = {.name = c->model ? c->model : c->name,
				     .input = c->input,
				     .n_outputs = c->n_outputs,
				     .loss = is_regression(c) ? CT_LOSS_MSE : CT_LOSS_CROSS_ENTROPY,
				     .layers = c->layers};

	*d = (struct ct_description){.std = {1, 1, 1, 1}};
	while (c->layers[spec.n_layers])
		spec.n_layers++;
	if (strcmp(spec.name, "mlp") == 0) {
		spec.hidden = hidden;
		spec.n_hidden = 2;
		spec.dropout = 0.1f;
	}
	CT_TRY(ct_description_set_model(d, &spec));
	if (is_regression(c))
		return CT_OK;
	d->resize = (c->input.h > c->input.w ? c->input.h : c->input.w) * 9 / 8;
	for (int i = 0; i < c->input.c; i++) {
		d->mean[i] = 0.4f + 0.05f * (float)i;
		d->std[i] = 0.2f + 0.03f * (float)i;
	}
	return ct_description_set_classes(d, classes, c->n_outputs);
}

/* Scales of batch norms are small, so that values do not grow from block to block. */
static float value_of(const struct ct_param *p, float initial, struct ct_rng *r)
{
	const float u = ct_rng_uniform(r);

	switch (p->kind) {
	case CT_PARAM_BN_WEIGHT:
		return 0.2f + 0.5f * u;
	case CT_PARAM_RUNNING_VAR:
		return 0.5f + u;
	case CT_PARAM_BN_BIAS:
	case CT_PARAM_BIAS:
	case CT_PARAM_RUNNING_MEAN:
		return 0.4f * u - 0.2f;
	default:
		return initial;
	}
}

struct net {
	struct ct_description description;
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	float *values; /* all parameters, then all buffers */
};

static const struct ct_param *tensor(const ct_graph *g, int i)
{
	const int n = ct_graph_n_params(g);

	return i < n ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n);
}

static int n_tensors(const ct_graph *g)
{
	return ct_graph_n_params(g) + ct_graph_n_buffers(g);
}

static enum ct_status set_values(struct net *t)
{
	ct_stream *s = ct_engine_stream(t->engine);
	struct ct_mirror params, buffers;
	struct ct_rng r;
	float *v = t->values;
	size_t at = 0;

	ct_rng_init(&r, 7, CT_RNG_CROP, 0, 0);
	CT_TRY(ct_net_init(t->net, CT_INIT_KAIMING, 3));
	CT_TRY(ct_mirror_open(ct_net_params(t->net), CT_MIRROR_WRITE, s, &params));
	CT_TRY(ct_mirror_open(ct_net_buffers(t->net), CT_MIRROR_WRITE, s, &buffers));
	for (int i = 0; i < n_tensors(t->graph); i++) {
		const struct ct_param *p = tensor(t->graph, i);
		const bool is_param = i < ct_graph_n_params(t->graph);

		if (is_param)
			CT_TRY(ct_net_export(t->net, &params, i, v));
		for (size_t k = 0; k < p->n; k++)
			v[k] = value_of(p, v[k], &r);
		if (is_param) {
			CT_TRY(ct_net_import(t->net, &params, i, v));
		} else {
			memcpy((float *)buffers.data + at, v, p->n * sizeof(float));
			at += p->n;
		}
		v += p->n;
	}
	CT_TRY(ct_mirror_close(&params));
	return ct_mirror_close(&buffers);
}

static enum ct_status open_net(const struct model_case *c, struct net *t)
{
	struct ct_net_opts opts = {.batch = ROWS,
				   .input = is_regression(c) ? CT_INPUT_F32_NCHW : CT_INPUT_U8_NHWC,
				   .autotune = CT_AUTOTUNE_OFF};
	size_t n = 0;

	CT_TRY(describe(c, &t->description));
	memcpy(opts.mean, t->description.mean, sizeof(opts.mean));
	memcpy(opts.std, t->description.std, sizeof(opts.std));
	CT_TRY(ct_model_build(&t->description.model, &t->graph));
	CT_TRY(ct_device_open("cpu", 0, &t->device));
	CT_TRY(ct_engine_open("auto", t->device, 2, &t->engine));
	CT_TRY(ct_net_create(t->engine, t->graph, &opts, &t->net));
	for (int i = 0; i < n_tensors(t->graph); i++)
		n += tensor(t->graph, i)->n;
	CT_TRY_ALLOC(t->values = CT_NEW_ARRAY(float, n));
	return set_values(t);
}

static enum ct_status write_weights(const struct net *t, const char *path)
{
	struct ct_tensor_desc *list = CT_NEW_ARRAY(struct ct_tensor_desc, (size_t)n_tensors(t->graph));
	struct ct_str text = {0};
	const float *v = t->values;
	char sha[65];
	uint64_t bytes;

	CT_TRY_ALLOC(list);
	CT_TRY(ct_description_write(&t->description, &text));
	for (int i = 0; i < n_tensors(t->graph); i++) {
		const struct ct_param *p = tensor(t->graph, i);

		list[i] = (struct ct_tensor_desc){.name = p->name, .ndim = p->ndim, .data = v};
		for (int k = 0; k < p->ndim; k++)
			list[i].dims[k] = p->dims[k];
		v += p->n;
	}
	const char *const metadata[] = {CT_DESCRIPTION_KEY, ct_str_text(&text), NULL};
	CT_TRY(ct_safetensors_write(path, list, n_tensors(t->graph), NULL, NULL, metadata, sha, &bytes));
	ct_str_release(&text);
	ct_free(list);
	return CT_OK;
}

static enum ct_status compute(struct net *t, const struct ct_batch *b, const char *dir, const char *name, size_t bytes)
{
	const int k = t->description.model.n_outputs, loss = ct_graph_loss(t->graph);
	float *out = CT_NEW_ARRAY(float, (size_t)(ROWS * k));
	char *in_path = ct_strfmt("%s/%s.input", dir, name), *out_path = ct_strfmt("%s/%s.output", dir, name);
	ct_program *p;

	CT_TRY(ct_program_create(t->net, ROWS, CT_EVAL, &p));
	CT_TRY(ct_program_forward(p, b));
	CT_TRY(ct_program_read(p, ct_graph_node(t->graph, loss)->in[0], false, out));
	ct_program_destroy(p);
	CT_TRY(ct_file_replace(in_path, b->x, bytes));
	CT_TRY(ct_file_replace(out_path, out, (size_t)(ROWS * k) * sizeof(float)));
	ct_free(in_path);
	ct_free(out_path);
	ct_free(out);
	return CT_OK;
}

static enum ct_status write_case(const struct model_case *c, const char *dir)
{
	const size_t n = ROWS * (size_t)c->input.c * (size_t)c->input.h * (size_t)c->input.w;
	const bool real = is_regression(c);
	char *path = ct_strfmt("%s/%s.safetensors", dir, c->name);
	float *x = CT_NEW_ARRAY(float, n), targets[ROWS * 10] = {0};
	int32_t labels[ROWS] = {0};
	struct net t = {0};
	struct ct_rng r;

	ct_rng_init(&r, 5, CT_RNG_CROP, 1, 1);
	for (size_t i = 0; i < n; i++) {
		const float u = ct_rng_uniform(&r);

		if (real)
			x[i] = u - 0.5f;
		else
			((uint8_t *)x)[i] = (uint8_t)(255.99f * u);
	}
	CT_TRY(open_net(c, &t));
	CT_TRY(write_weights(&t, path));
	CT_TRY(compute(
		&t,
		&(struct ct_batch){.n = ROWS, .x = x, .labels = real ? NULL : labels, .targets = real ? targets : NULL},
		dir, c->name, n * (real ? sizeof(float) : 1)));
	ct_net_destroy(t.net);
	ct_engine_close(t.engine);
	ct_device_close(t.device);
	ct_graph_destroy(t.graph);
	ct_description_release(&t.description);
	ct_free(t.values);
	ct_free(x);
	ct_free(path);
	return CT_OK;
}

/* Every layer of model.layers must be in a case, so that its exports are tested. */
static enum ct_status check_operations(void)
{
	bool seen[CT_N_OPS] = {0};

	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_description d;
		ct_graph *g;

		if (!cases[i].layers[0])
			continue;
		CT_TRY(describe(&cases[i], &d));
		CT_TRY(ct_model_build(&d.model, &g));
		for (int id = 0; id < ct_graph_n_nodes(g); id++)
			seen[ct_graph_node(g, id)->op] = true;
		ct_graph_destroy(g);
		ct_description_release(&d);
	}
	for (enum ct_op op = 0; op < CT_N_OPS; op++) {
		if (ct_op_info(op)->layer.prefix && !seen[op])
			return CT_FAIL(CT_BUG, "no case of model_cases has the operation %s", ct_op_name(op));
	}
	return CT_OK;
}

int main(int argc, char **argv)
{
	if (argc == 2 && check_operations() < 0) {
		fprintf(stderr, "%s\n", ct_error_message());
		return 1;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		if (argc == 2)
			printf("%s\n", cases[i].name);
		else if (argc == 3 && strcmp(argv[2], cases[i].name) == 0 && write_case(&cases[i], argv[1]) < 0) {
			fprintf(stderr, "%s\n%s", ct_error_message(), ct_error_frames());
			return 1;
		}
	}
	return argc < 2;
}
