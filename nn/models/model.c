/* A builder adds the layers after node 0 and returns the logits. The loss head and the final checks are the same for
 * all models. Errors of the graph are sticky, so builders do not check them after each layer. The names of nodes are
 * part of the checkpoint format, because parameters are named after them; initial values depend on them, too. */
#include "nn/models/model.h"

#include "base/mem.h"
#include "nn/models/layers_impl.h"
#include "nn/models/resnet_impl.h"

static enum ct_status build_mlp(ct_graph *g, const struct ct_model_spec *spec, int *logits)
{
	struct ct_str name = {0};
	int x = ct_graph_flatten(g, "flatten", 0);

	for (int i = 0; i < spec->n_hidden; i++) {
		ct_str_clear(&name);
		ct_str_addf(&name, "fc%d", i + 1);
		x = ct_graph_linear(g, ct_str_text(&name), x, spec->hidden[i], true);
		ct_str_clear(&name);
		ct_str_addf(&name, "relu%d", i + 1);
		x = ct_graph_relu(g, ct_str_text(&name), x);
		if (spec->dropout != 0) { /* ct_graph_dropout refuses values that are not probabilities */
			ct_str_clear(&name);
			ct_str_addf(&name, "drop%d", i + 1);
			x = ct_graph_dropout(g, ct_str_text(&name), x, spec->dropout);
		}
	}
	ct_str_clear(&name);
	ct_str_addf(&name, "fc%d", spec->n_hidden + 1);
	*logits = ct_graph_linear(g, ct_str_text(&name), x, spec->n_outputs, true);
	enum ct_status st = ct_str_status(&name);
	ct_str_release(&name);
	return st;
}

static enum ct_status build_lenet(ct_graph *g, const struct ct_model_spec *spec, int *logits)
{
	struct ct_window pool = ct_window_square(2, 2, 0);

	int x = ct_graph_conv2d(g, "conv1", 0, 6, ct_window_square(5, 1, 2), 1, true);
	x = ct_graph_max_pool(g, "pool1", ct_graph_relu(g, "relu1", x), pool);
	x = ct_graph_conv2d(g, "conv2", x, 16, ct_window_square(5, 1, 0), 1, true);
	x = ct_graph_max_pool(g, "pool2", ct_graph_relu(g, "relu2", x), pool);
	x = ct_graph_flatten(g, "flatten", x);
	x = ct_graph_relu(g, "relu3", ct_graph_linear(g, "fc1", x, 120, true));
	x = ct_graph_relu(g, "relu4", ct_graph_linear(g, "fc2", x, 84, true));
	*logits = ct_graph_linear(g, "fc3", x, spec->n_outputs, true);
	return CT_OK;
}

static enum ct_status build_convnet(ct_graph *g, const struct ct_model_spec *spec, int *logits)
{
	static const char *const names[2][4] = {{"layer1.0", "layer1.1", "layer1.2", "layer1.3"},
						{"layer2.0", "layer2.1", "layer2.2", "layer2.3"}};
	static const int channels[2] = {16, 32};
	int x = 0;

	for (int i = 0; i < 2; i++) {
		x = ct_graph_conv2d(g, names[i][0], x, channels[i], ct_window_square(5, 1, 2), 1, true);
		x = ct_graph_batch_norm(g, names[i][1], x, 1e-5f, 0.1f);
		x = ct_graph_relu(g, names[i][2], x);
		x = ct_graph_max_pool(g, names[i][3], x, ct_window_square(2, 2, 0));
	}
	*logits = ct_graph_linear(g, "fc", ct_graph_flatten(g, "flatten", x), spec->n_outputs, true);
	return CT_OK;
}

static const char *const names[] = {CT_MODELS(CT_CHOICE_NAME) NULL};
static const struct model {
	/* Adds the layers after node 0; returns the id of the logits. */
	enum ct_status (*build)(ct_graph *g, const struct ct_model_spec *spec, int *logits);
	enum ct_init init; /* by default */
} models[] = {
	[CT_MODEL_MLP] = {build_mlp, CT_INIT_PYTORCH},
	[CT_MODEL_LENET] = {build_lenet, CT_INIT_PYTORCH},
	[CT_MODEL_CONVNET] = {build_convnet, CT_INIT_PYTORCH},
	[CT_MODEL_LAYERS] = {ct__model_layers, CT_INIT_PYTORCH},
	[CT_MODEL_RESNET18] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET34] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET50] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET101] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET152] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNEXT50_32X4D] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_WIDE_RESNET50_2] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET20] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET32] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET44] = {ct__resnet_build, CT_INIT_KAIMING},
	[CT_MODEL_RESNET56] = {ct__resnet_build, CT_INIT_KAIMING},
};
enum { N_MODELS = CT_CHOICE_COUNT(CT_MODELS) };
_Static_assert(CT_ARRAY_LEN(models) == N_MODELS, "one row for each model");

const char *ct_model_name_at(size_t i)
{
	return i < N_MODELS ? names[i] : NULL;
}

enum ct_init ct_model_init(const char *name)
{
	int model = ct_choice_find(names, name);

	return model < 0 ? CT_INIT_PYTORCH : models[model].init;
}

static enum ct_status unknown_model(const char *name)
{
	const char *near = ct_suggest(name, names, N_MODELS);
	enum ct_status st = CT_FAIL(CT_CONFIG, "unknown model \"%.80s\"", name);

	if (near) {
		ct_error_hint("did you mean \"%s\"?", near);
		return st;
	}
	struct ct_str list = {0};
	for (size_t i = 0; i < N_MODELS; i++)
		ct_str_addf(&list, "%s%s", i ? ", " : "", names[i]);
	ct_error_hint("the models are %s", ct_str_text(&list));
	ct_str_release(&list);
	return st;
}

static enum ct_status build(ct_graph *g, int model, const struct ct_model_spec *spec)
{
	int logits;

	CT_TRY(models[model].build(g, spec, &logits));
	if (spec->loss == CT_LOSS_MSE)
		ct_graph_mse(g, logits);
	else
		ct_graph_softmax_xent(g, logits, spec->label_smoothing);
	return ct_graph_finish(g);
}

enum ct_status ct_model_build(const struct ct_model_spec *spec, ct_graph **out)
{
	int model = ct_choice_find(names, spec->name);
	ct_graph *g;

	if (model < 0)
		return unknown_model(spec->name);
	if (spec->n_outputs < (model == CT_MODEL_LAYERS ? 0 : 1))
		return CT_FAIL(CT_CONFIG, "model %s has %d outputs, but needs at least 1", spec->name, spec->n_outputs);
	CT_TRY(ct_graph_create(spec->input, &g));
	enum ct_status st = build(g, model, spec);
	if (st < 0) {
		ct_graph_destroy(g);
		return ct_error_wrap("model %s", spec->name);
	}
	*out = g;
	return CT_OK;
}
