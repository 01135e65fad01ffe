/* Devices, heuristics, engines, configurations and plans. */
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

#define NUMERICAL(n) (1u << CUDNN_NUMERICAL_NOTE_##n)
enum { TENSOR_CORE = NUMERICAL(TENSOR_CORE), RUN_TIME = 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION };

/* ---- The engines of the stand-in -------------------------------------------------------------------- */

enum types { ANY_TYPE, ONLY_32_BIT, ONLY_16_BIT };
enum workspace { NO_WORKSPACE, SMALL, OF_INPUT };

static const struct {
	int64_t index;
	unsigned numerical;
	enum types types;
	enum workspace workspace;
	bool only_backward, only_plain; /* plain: one operation */
	int tile;                       /* value of the knob TILE_SIZE; 0: no knob */
} engines[] = {
	/* best first */
	{10, TENSOR_CORE, ANY_TYPE, SMALL, false, false, 0},
	{11, TENSOR_CORE, ANY_TYPE, OF_INPUT, false, false, 0},
	{12, TENSOR_CORE | NUMERICAL(DOWN_CONVERT_INPUTS), ONLY_32_BIT, SMALL, false, true, 0},
	{13, TENSOR_CORE | NUMERICAL(REDUCED_PRECISION_REDUCTION), ONLY_16_BIT, NO_WORKSPACE, false, true, 0},
	{21, TENSOR_CORE | NUMERICAL(NONDETERMINISTIC), ANY_TYPE, NO_WORKSPACE, true, true, 0},
	{20, NUMERICAL(NONDETERMINISTIC), ANY_TYPE, NO_WORKSPACE, true, true, 0},
	{1, 0, ANY_TYPE, OF_INPUT, false, true, 1},
	{1, 0, ANY_TYPE, SMALL, false, true, 2},
	{0, NUMERICAL(STRICT_NAN_PROP), ANY_TYPE, NO_WORKSPACE, false, false, 0},
};
enum { N_ENGINES = sizeof(engines) / sizeof(*engines), RUN_TIME_ENGINE = 30 };

static const struct soft__op *conv_of(const struct soft__graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		if (soft__is_conv(g->ops[i].kind))
			return &g->ops[i];
	}
	return NULL;
}

static bool is_pointwise(const struct soft__op *op, cudnnPointwiseMode_t mode)
{
	return op->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && op->pointwise.mode == mode;
}

/* The operation adds a tensor of n elements, in the type of the operands, to the result of the operation before it. */
static bool adds(const struct soft__op *op, const struct soft__op *before, int64_t n, cudnnDataType_t type)
{
	return is_pointwise(op, CUDNN_POINTWISE_ADD) && before->out[0].type == CUDNN_DATA_FLOAT &&
	       before->out[0].is_virtual && op->in_at[0] == before->out_at[0] && op->in[1].type == type &&
	       soft__count(&op->in[1]) == n;
}

/* As cuDNN 9.19 for an H200 (graphs.c): one convolution; forward [+ residual] + bias [+ ReLU] with fp32 between and the
 * addends in the type of the operands; fp16 forward + statistics. */
static bool is_precompiled(const struct soft__graph *g)
{
	const struct soft__op *conv = conv_of(g), *next = &g->ops[1], *last = &g->ops[g->n_ops - 1];
	int at = 1;

	if (!conv || g->n_ops == 1)
		return conv;
	if (conv != g->ops || conv->kind != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
		return false;
	if (next->kind == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
		return g->n_ops == 2 && !conv->out[0].is_virtual && conv->in[0].type == CUDNN_DATA_HALF;
	if (g->n_ops > 2 && adds(next, conv, soft__count(&conv->out[0]), conv->in[0].type))
		at = 2;
	if (!adds(&g->ops[at], &g->ops[at - 1], conv->out[0].dims[1], conv->in[0].type))
		return false;
	const struct soft__op *bias = &g->ops[at];
	return g->n_ops == at + 1 ||
	       (g->n_ops == at + 2 && is_pointwise(last, CUDNN_POINTWISE_RELU_FWD) &&
		bias->out[0].type == CUDNN_DATA_FLOAT && bias->out[0].is_virtual && last->in_at[0] == bias->out_at[0]);
}

/* Sizes that are no multiples of anything, as those of cuDNN. */
static int64_t workspace_of(const struct soft__op *conv, enum workspace w)
{
	if (w == OF_INPUT)
		return soft__count(&conv->in[0]) * 4 + 195;
	return w == SMALL ? 131 : 0;
}

static bool is_aligned(const struct soft__graph *g)
{
	for (int i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].alignment < 16)
			return false;
	}
	return true;
}

/* Whether engine e computes the graph. */
static bool fits(int e, const struct soft__graph *g, const struct soft__op *conv)
{
	const bool is_32_bit = conv->in[0].type == CUDNN_DATA_FLOAT;

	if (engines[e].types != ANY_TYPE && is_32_bit != (engines[e].types == ONLY_32_BIT))
		return false;
	if (engines[e].only_backward && conv->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
		return false;
	if (engines[e].only_plain && g->n_ops > 1)
		return false;
	return !(engines[e].numerical & TENSOR_CORE) || is_aligned(g);
}

int soft__heuristic(const struct soft__graph *g, cudnnBackendHeurMode_t mode, struct soft__engine *out)
{
	const struct soft__op *conv = conv_of(g);
	int n = 0;

	if (g->unsupported) {
		soft__refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine: %s", g->unsupported);
		return 0;
	}
	if (!is_precompiled(g)) {
		out[0] = (struct soft__engine){.index = RUN_TIME_ENGINE,
					       .workspace_bytes = 67,
					       .numerical = conv ? TENSOR_CORE : 0,
					       .behavior = RUN_TIME};
		return mode == CUDNN_HEUR_MODE_FALLBACK ? 0 : 1;
	}
	for (int e = 0; e < N_ENGINES; e++) {
		if (!fits(e, g, conv) || (mode == CUDNN_HEUR_MODE_FALLBACK && engines[e].numerical & TENSOR_CORE))
			continue;
		out[n++] = (struct soft__engine){.index = engines[e].index,
						 .workspace_bytes = workspace_of(conv, engines[e].workspace),
						 .numerical = engines[e].numerical,
						 .n_knobs = engines[e].tile > 0,
						 .knob = {CUDNN_KNOB_TYPE_TILE_SIZE, engines[e].tile}};
	}
	if (mode == CUDNN_HEUR_MODE_B && n > 1) { /* another opinion on which is best */
		struct soft__engine first = out[0];

		out[0] = out[1];
		out[1] = first;
	}
	return n;
}

/* ---- Devices ---------------------------------------------------------------------------------------- */

/* An object, with quotes and brackets in pairs. */
static bool is_json_object(const char *s)
{
	char open[64];
	int depth = 0;
	bool in_string = false;

	for (s += strspn(s, " \t\r\n"); *s; s++) {
		if (in_string) {
			if (*s == '\\' && s[1])
				s++;
			else if (*s == '"')
				in_string = false;
		} else if (*s == '"') {
			in_string = true;
		} else if (*s == '{' || *s == '[') {
			if (depth == sizeof(open) || (depth == 0 && *s != '{'))
				return false;
			open[depth++] = *s == '{' ? '}' : ']';
		} else if (*s == '}' || *s == ']') {
			if (depth == 0 || open[--depth] != *s)
				return false;
			if (depth == 0)
				return s[1 + strspn(s + 1, " \t\r\n")] == '\0';
		}
	}
	return false;
}

cudnnStatus_t soft__finalize_device(struct soft__descriptor *d)
{
	const struct soft__value *json = soft__find(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
	int n = 0;

	d->device = (struct soft__device){json, (int)soft__integer(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, 0)};
	if (json && (!is_json_object(json->data) || !strstr(json->data, "\"deviceVer\"")))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "!json_object.IsObject()");
	if (!json && (cudaGetDeviceCount(&n) != cudaSuccess || d->device.id < 0 || d->device.id >= n))
		return soft__refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device %d", d->device.id);
	return soft__consult_finalize(d);
}

static struct soft__descriptor *part(const struct soft__descriptor *d, cudnnBackendAttributeName_t name,
				     cudnnBackendDescriptorType_t kind)
{
	struct soft__descriptor *p = soft__ref(d, name);

	if (p && p->kind != kind)
		soft_gpu_fail("cudnn: attribute %d is a descriptor of type %d instead of %d", (int)name, (int)p->kind,
			      (int)kind);
	return p;
}

/* ---- Heuristics ------------------------------------------------------------------------------------- */

cudnnStatus_t soft__finalize_heuristic(struct soft__descriptor *d)
{
	const struct soft__descriptor *g = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
						CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
				      *device = part(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
						     CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	const int64_t mode = soft__integer(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_INSTANT);

	if (!g)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "nullptr == opset_ptr");
	if (!g->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the graph is not finalized");
	if (!device || !device->is_final)
		soft_gpu_fail("cudnn: a heuristic without a finalized device");
	if (mode < 0 || mode >= CUDNN_HEUR_MODES_COUNT)
		soft_gpu_fail("cudnn: there is no heuristic %lld", (long long)mode);
	soft__graph_keep(d, g->graph);
	d->device = device->device;
	return soft__consult_finalize(d);
}

cudnnStatus_t soft__results(struct soft__descriptor *h, int64_t room, int64_t *n, cudnnBackendDescriptor_t *configs)
{
	const cudnnBackendHeurMode_t mode =
		(cudnnBackendHeurMode_t)soft__integer(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_INSTANT);
	struct soft__engine found[SOFT__MAX_ENGINES];
	struct soft__descriptor *c;
	int64_t have;
	cudnnStatus_t st;

	for (int64_t i = 0; configs && i < room; i++) {
		c = soft__live(configs[i], "cudnnBackendGetAttribute");
		if (c->kind != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || c->is_final)
			soft_gpu_fail("cudnn: the results of a heuristic need new configurations");
	}
	if (soft__consults()) {
		st = soft__consult_results(h, room, &have, configs);
		if (st)
			return st;
	} else {
		have = soft__heuristic(h->graph, mode, found);
	}
	for (int64_t i = 0; configs && i < room && i < have; i++) {
		c = soft__live(configs[i], "cudnnBackendGetAttribute");
		soft__graph_keep(c, h->graph);
		c->device = h->device;
		c->is_final = true;
		if (!soft__consults())
			c->engine = found[i];
	}
	if (n)
		*n = have;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- Engines, configurations, plans ----------------------------------------------------------------- */

static cudnnStatus_t find_engine(struct soft__descriptor *d, int64_t index)
{
	struct soft__engine all[SOFT__MAX_ENGINES];
	const int n = soft__heuristic(d->graph, CUDNN_HEUR_MODE_A, all);

	for (int i = 0; i < n; i++) {
		if (all[i].index == index) {
			d->engine = all[i];
			return CUDNN_STATUS_SUCCESS;
		}
	}
	return soft__refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld does not compute the graph", (long long)index);
}

cudnnStatus_t soft__finalize_engine(struct soft__descriptor *d)
{
	const struct soft__descriptor *g = part(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
						CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
				      *device = part(d, CUDNN_ATTR_ENGINE_DEVICEPROP,
						     CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	const int64_t index = soft__integer(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
	cudnnStatus_t st;

	if (!g)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == opset_ptr");
	if (!g->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the graph is not finalized");
	if (!device || !device->is_final)
		soft_gpu_fail("cudnn: an engine without a finalized device");
	soft__graph_keep(d, g->graph);
	d->device = device->device;
	if (!soft__consults())
		return find_engine(d, index);
	st = soft__consult_finalize(d);
	d->engine.index = index;
	return st ? st : soft__consult_notes(d);
}

cudnnStatus_t soft__config_engine(struct soft__descriptor *config, cudnnBackendDescriptor_t engine)
{
	struct soft__descriptor *e = soft__live(engine, "cudnnBackendGetAttribute");

	if (e->kind != CUDNN_BACKEND_ENGINE_DESCRIPTOR || e->is_final)
		soft_gpu_fail("cudnn: the engine of a configuration needs a new descriptor of an engine");
	soft__graph_keep(e, config->graph);
	e->device = config->device;
	e->engine = config->engine;
	e->is_final = true;
	return soft__consult_engine(config, e);
}

cudnnStatus_t soft__finalize_knob(struct soft__descriptor *d)
{
	d->knob = (struct soft__knob){
		(cudnnBackendKnobType_t)soft__integer(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS),
		soft__integer(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0)};
	return soft__consult_finalize(d);
}

cudnnStatus_t soft__config_knobs(struct soft__descriptor *config, int64_t room, int64_t *n,
				 cudnnBackendDescriptor_t *knobs)
{
	for (int64_t i = 0; i < room; i++) {
		const struct soft__descriptor *k = soft__live(knobs[i], "cudnnBackendGetAttribute");

		if (k->kind != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR || k->is_final)
			soft_gpu_fail("cudnn: the knobs of a configuration need new descriptors of knobs");
	}
	if (soft__consults())
		return soft__consult_knobs(config, room, n, knobs);
	*n = config->engine.n_knobs;
	for (int64_t i = 0; i < room && i < *n; i++) {
		struct soft__descriptor *k = soft__live(knobs[i], "cudnnBackendGetAttribute");

		k->knob = config->engine.knob;
		k->is_final = true;
	}
	return CUDNN_STATUS_SUCCESS;
}

/* The variant of the engine with the knobs of the configuration. */
static cudnnStatus_t turn_knobs(struct soft__descriptor *config)
{
	const struct soft__value *v = soft__find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
	struct soft__engine all[SOFT__MAX_ENGINES];
	const int n = soft__heuristic(config->graph, CUDNN_HEUR_MODE_A, all);

	for (int64_t k = 0; v && k < v->n; k++) {
		const struct soft__descriptor *knob = ((struct soft__descriptor **)v->data)[k];
		bool found = false;

		for (int i = 0; i < n && !found; i++) {
			found = all[i].index == config->engine.index && all[i].n_knobs &&
				all[i].knob.type == knob->knob.type && all[i].knob.value == knob->knob.value;
			if (found)
				config->engine = all[i];
		}
		if (!found)
			return soft__refuse(
				CUDNN_STATUS_NOT_SUPPORTED, "engine %lld has no knob %d with the value %lld",
				(long long)config->engine.index, (int)knob->knob.type, (long long)knob->knob.value);
	}
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t soft__finalize_config(struct soft__descriptor *d)
{
	const struct soft__descriptor *e = part(d, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

	if (!e)
		soft_gpu_fail("cudnn: a configuration without an engine");
	if (!e->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the engine is not finalized");
	soft__graph_keep(d, e->graph);
	d->device = e->device;
	d->engine = e->engine;
	return soft__consults() ? soft__consult_finalize(d) : turn_knobs(d);
}

static cudnnStatus_t make_plan(struct soft__descriptor *d, const struct soft__descriptor *c)
{
	const struct soft__descriptor *device =
		part(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	cudnnStatus_t st;

	d->has_handle = soft__find(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
	if (!d->has_handle && (!device || !device->is_final))
		soft_gpu_fail("cudnn: a plan without a finalized device");
	soft__graph_keep(d, c->graph);
	d->device = d->has_handle ? c->device : device->device;
	d->engine = c->engine;
	if (soft__consults()) {
		st = soft__consult_finalize(d);
		return st ? st : soft__consult_workspace(d, &d->engine.workspace_bytes);
	}
	if (d->engine.behavior & RUN_TIME && d->device.by_json)
		return soft__refuse(CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
				    "engine %lld is compiled at run time, which needs a driver",
				    (long long)d->engine.index);
	return soft__check_broken(d->engine.index, SOFT_CUDNN_FINALIZE);
}

cudnnStatus_t soft__finalize_plan(struct soft__descriptor *d)
{
	const struct soft__descriptor *c =
		part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);

	if (!c || !c->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the configuration is not finalized");
	soft__begin_finalizing(c->engine.index);
	const cudnnStatus_t st = make_plan(d, c);
	soft__end_finalizing();
	return st;
}
