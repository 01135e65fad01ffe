#include "tests/nn/nn_check.h"

enum ct_status graph_try(struct ct_shape input, const char *layers, int n_outputs, enum ct_loss loss, float smoothing,
			 ct_graph **out)
{
	const char *list[MAX_LAYERS];
	struct ct_model_spec spec = {.name = "layers",
				     .input = input,
				     .n_outputs = n_outputs,
				     .loss = loss,
				     .label_smoothing = smoothing,
				     .layers = list};
	char *copy = ct_strdup(layers), *rest = copy;

	assert_non_null(copy);
	while (rest) {
		char *end = strchr(rest, ';');

		assert_true(spec.n_layers < MAX_LAYERS);
		list[spec.n_layers++] = rest;
		if (end)
			*end++ = '\0';
		rest = end;
	}
	enum ct_status st = ct_model_build(&spec, out);
	ct_free(copy);
	return st;
}

ct_graph *graph_make(struct ct_shape input, const char *layers, int n_outputs, enum ct_loss loss, float smoothing)
{
	ct_graph *g = NULL;

	if (graph_try(input, layers, n_outputs, loss, smoothing, &g) < 0)
		fail_msg("\"%s\": %s", layers, ct_error_message());
	return g;
}

void rig_open(struct rig *r, const char *engine, ct_graph *graph, const struct ct_net_opts *opts)
{
	*r = (struct rig){.graph = graph};
	assert_ok(ct_device_open("cpu", 0, &r->device));
	assert_ok(ct_engine_open(engine, r->device, 1, &r->engine));
	if (ct_net_create(r->engine, graph, opts, &r->net) < 0)
		fail_msg("%s: %s", engine, ct_error_message());
	assert_ok(ct_net_init(r->net, CT_INIT_PYTORCH, 1));
	if (opts->train && ct_program_create(r->net, opts->batch, CT_TRAIN, &r->program) < 0)
		fail_msg("%s: %s", engine, ct_error_message());
}

void rig_close(struct rig *r)
{
	ct_program_destroy(r->program);
	ct_net_destroy(r->net);
	ct_engine_close(r->engine);
	ct_device_close(r->device);
	ct_graph_destroy(r->graph);
}

void each_engine(void (*test)(const char *engine))
{
	const char *name;
	bool available;
	char why[256];

	for (size_t i = 0; ct_engine_at(i, &name, &available, why, sizeof(why)); i++) {
		if (available)
			test(name);
	}
}

void vary_norms(ct_net *net)
{
	const ct_graph *g = ct_net_graph(net);
	struct ct_mirror m;

	assert_ok(ct_mirror_open(ct_net_params(net), CT_MIRROR_WRITE, ct_engine_stream(ct_net_engine(net)), &m));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		if (p->kind != CT_PARAM_BN_WEIGHT && p->kind != CT_PARAM_BN_BIAS)
			continue;
		float *x = CT_NEW_ARRAY(float, p->n);
		assert_non_null(x);
		fill_floats(1000 + (uint32_t)i, x, p->n);
		for (size_t k = 0; k < p->n; k++)
			x[k] = p->kind == CT_PARAM_BN_WEIGHT ? 1 + 0.5f * x[k] : 0.3f * x[k];
		assert_ok(ct_net_import(net, &m, i, x));
		ct_free(x);
	}
	assert_ok(ct_mirror_close(&m));
}

int limit_isa(int argc, char **argv)
{
	if (argc < 2)
		return 0;
	const int isa = ct_isa_find(argv[1]);
	assert_true(isa >= 0);
	if (ct_cpu_set_limit((enum ct_isa)isa) == CT_OK)
		return 0;
	printf("skipped: %s\n", ct_error_message());
	return 77;
}

void fill_floats(uint32_t stream, float *x, size_t n)
{
	struct ct_rng r;

	ct_rng_init(&r, 42, CT_RNG_TEST, stream, 0);
	for (size_t i = 0; i < n; i++)
		x[i] = 2.0f * ct_rng_uniform(&r) - 1.0f;
}

void fill_shares(uint32_t stream, float *x, size_t n)
{
	fill_floats(stream, x, n);
	for (size_t i = 0; i < n; i++)
		x[i] = 0.5f + 0.5f * x[i];
}

void fill_bytes(uint32_t stream, uint8_t *x, size_t n)
{
	struct ct_rng r;

	ct_rng_init(&r, 42, CT_RNG_TEST, stream, 1);
	for (size_t i = 0; i < n; i++)
		x[i] = (uint8_t)(ct_rng_u32(&r) >> 24);
}

void fill_labels(uint32_t stream, int32_t *labels, size_t n, int k)
{
	struct ct_rng r;

	ct_rng_init(&r, 42, CT_RNG_TEST, stream, 2);
	for (size_t i = 0; i < n; i++)
		labels[i] = (int32_t)ct_rng_below(&r, (uint32_t)k);
}

float *export_param(ct_net *net, const float *arena, int param)
{
	float *x = CT_NEW_ARRAY(float, ct_graph_param(ct_net_graph(net), param)->n);

	assert_non_null(x);
	assert_ok(export_now(net, arena, param, x));
	return x;
}

int param_named(const ct_graph *g, const char *name)
{
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		if (!strcmp(ct_graph_param(g, i)->name, name))
			return i;
	}
	fail_msg("no parameter %s", name);
	return -1;
}

int node_named(const ct_graph *g, const char *name)
{
	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		if (!strcmp(ct_graph_node(g, i)->name, name))
			return i;
	}
	fail_msg("no node %s", name);
	return -1;
}

size_t shape_elems(struct ct_shape s)
{
	return (size_t)s.c * (size_t)s.h * (size_t)s.w;
}

bool has_precision(const char *engine, enum ct_precision precision)
{
	ct_device *device;
	ct_engine *e;

	assert_ok(ct_device_open("cpu", 0, &device));
	assert_ok(ct_engine_open(engine, device, 1, &e));
	const bool has = ct_engine_check_precision(e, precision) == CT_OK;
	if (!has)
		printf("not compared: %s\n", ct_error_message());
	ct_engine_close(e);
	ct_device_close(device);
	ct_error_clear();
	return has;
}
