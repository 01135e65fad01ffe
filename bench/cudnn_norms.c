/* Asks cuDNN, with or without a GPU, about graphs that the CUDA engine could use in place of its own kernels and does
 * not: batch norm with the sum and the ReLU after it, its gradient, and the gradient of a convolution with a sum.
 * Prints a table with one line for each graph and type.
 *
 *   build/release/bench/cudnn_norms [DEVICE.json]       [tests/nn/cuda/devices/h200.json]
 *
 * Columns: proposed = configurations that the heuristics propose (modes A and fallback); engines = their engines, each
 * followed by a comma; compiled = engines that cuDNN compiles at run time; finalized = engines whose first
 * configuration becomes a plan; reason = why another one does not, or why the heuristics fail.
 *
 * cuDNN lists engines that it compiles at run time only if it finds a libcuda.so.1. Without a driver, a link with this
 * name to lib64/stubs/libcuda.so of the toolkit, in a directory of LD_LIBRARY_PATH, is enough. Plans of these engines
 * still cannot be finalized, because this loads the compiled code on the GPU. bench/results/2026-11-22_cudnn_norms.tsv
 * has the answers with such a link. The gate (scripts/gpu_gate.sh) asks on a GPU. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "nn/cuda/cudnn/descriptor.h"

enum { MAX_PARTS = 64, MAX_OPS = 4, MAX_CONFIGS = 96, MAX_NOTES = 16 };

struct question {
	cudnnBackendDescriptor_t parts[MAX_PARTS], ops[MAX_OPS]; /* parts: everything that is destroyed */
	int n_parts, n_ops;
	int64_t n_tensors;
	cudnnDataType_t type;
	int64_t dims[4]; /* of x */
	enum ct_status status;
};

struct answer {
	int64_t proposed, compiled, finalized;
	struct ct_str engines;
	char reason[512];
};

/* ---- Graphs: after an error, the functions do nothing ---- */

static cudnnBackendDescriptor_t make(struct question *q, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d = NULL;

	CT_ASSERT(q->n_parts < MAX_PARTS);
	if (q->status == CT_OK)
		q->status = ct__cudnn_create(type, &d);
	if (d)
		q->parts[q->n_parts++] = d;
	return d;
}

static void set(struct question *q, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	if (q->status == CT_OK)
		q->status = ct__cudnn_set(d, name, type, n, values);
}

static void refer(struct question *q, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		  cudnnBackendDescriptor_t to)
{
	set(q, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void finalize(struct question *q, cudnnBackendDescriptor_t d, const char *what)
{
	if (q->status == CT_OK)
		q->status = ct__cudnn_finalize(d, what);
}

enum kind { STORED, VIRTUAL, BY_VALUE };

static cudnnBackendDescriptor_t tensor(struct question *q, const int64_t *dims, cudnnDataType_t type, enum kind kind)
{
	cudnnBackendDescriptor_t d = make(q, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]}, alignment = 16;
	const bool is_virtual = kind == VIRTUAL, by_value = kind == BY_VALUE;

	q->n_tensors++;
	set(q, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(q, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	set(q, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	set(q, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &q->n_tensors);
	set(q, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
	set(q, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
	set(q, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
	finalize(q, d, "finalizing a tensor");
	return d;
}

static cudnnBackendDescriptor_t image(struct question *q, enum kind kind)
{
	return tensor(q, q->dims, kind == VIRTUAL ? CUDNN_DATA_FLOAT : q->type, kind);
}

static cudnnBackendDescriptor_t channels(struct question *q)
{
	return tensor(q, (int64_t[4]){1, q->dims[1], 1, 1}, CUDNN_DATA_FLOAT, STORED);
}

static cudnnBackendDescriptor_t scalar(struct question *q)
{
	return tensor(q, (int64_t[4]){1, 1, 1, 1}, CUDNN_DATA_FLOAT, BY_VALUE);
}

static void add_op(struct question *q, cudnnBackendDescriptor_t op)
{
	finalize(q, op, "finalizing an operation");
	CT_ASSERT(q->n_ops < MAX_OPS);
	q->ops[q->n_ops++] = op;
}

/* y = x + b; y = max(x, 0) with b = NULL; or y = x where b > 0, for the gradient of a ReLU. */
static void add_pointwise(struct question *q, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
			  cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t part = make(q, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
				 op = make(q, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	const bool backward = mode == CUDNN_POINTWISE_RELU_BWD;

	set(q, part, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set(q, part, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	finalize(q, part, "finalizing a pointwise mode");
	refer(q, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
	refer(q, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		refer(q, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_XDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	refer(q, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_op(q, op);
}

/* y = norm(x), which updates the running statistics. */
static void add_norm(struct question *q, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t op = make(q, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
	const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
	const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
	static const cudnnBackendAttributeName_t vectors[] = {
		CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
		CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
	};

	set(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
	set(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, image(q, STORED));
	for (size_t i = 0; i < CT_ARRAY_LEN(vectors); i++)
		refer(q, op, vectors[i], channels(q));
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, scalar(q));
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, scalar(q));
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
	add_op(q, op);
}

static void add_norm_backward(struct question *q, cudnnBackendDescriptor_t dy)
{
	cudnnBackendDescriptor_t op = make(q, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
	const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
	static const cudnnBackendAttributeName_t vectors[] = {
		CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,  CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
		CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
		CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC,
	};

	set(q, op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, image(q, STORED));
	for (size_t i = 0; i < CT_ARRAY_LEN(vectors); i++)
		refer(q, op, vectors[i], channels(q));
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
	refer(q, op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, image(q, STORED));
	add_op(q, op);
}

/* A 3x3 convolution that keeps the size. */
static void add_conv_backward(struct question *q, cudnnBackendDescriptor_t dx)
{
	cudnnBackendDescriptor_t part = make(q, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),
				 op = make(q, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
	const int64_t n_dims = 2, ones[2] = {1, 1}, c = q->dims[1];
	const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const float one = 1, zero = 0;

	set(q, part, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	set(q, part, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set(q, part, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_dims);
	set(q, part, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
	set(q, part, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
	set(q, part, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
	set(q, part, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
	finalize(q, part, "finalizing a convolution");
	set(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
	set(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
	refer(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part);
	refer(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, image(q, STORED));
	refer(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, tensor(q, (int64_t[4]){c, c, 3, 3}, q->type, STORED));
	refer(q, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx);
	add_op(q, op);
}

static void ask_norm(struct question *q)
{
	add_norm(q, image(q, STORED));
}

static void ask_norm_relu(struct question *q)
{
	cudnnBackendDescriptor_t y = image(q, VIRTUAL);

	add_norm(q, y);
	add_pointwise(q, CUDNN_POINTWISE_RELU_FWD, y, NULL, image(q, STORED));
}

static void ask_norm_add_relu(struct question *q)
{
	cudnnBackendDescriptor_t y = image(q, VIRTUAL), sum = image(q, VIRTUAL);

	add_norm(q, y);
	add_pointwise(q, CUDNN_POINTWISE_ADD, y, image(q, STORED), sum);
	add_pointwise(q, CUDNN_POINTWISE_RELU_FWD, sum, NULL, image(q, STORED));
}

static void ask_backward(struct question *q)
{
	add_norm_backward(q, image(q, STORED));
}

static void ask_relu_backward(struct question *q)
{
	cudnnBackendDescriptor_t d = image(q, VIRTUAL);

	add_pointwise(q, CUDNN_POINTWISE_RELU_BWD, image(q, STORED), image(q, STORED), d);
	add_norm_backward(q, d);
}

static void ask_conv_add(struct question *q)
{
	cudnnBackendDescriptor_t dx = image(q, VIRTUAL);

	add_conv_backward(q, dx);
	add_pointwise(q, CUDNN_POINTWISE_ADD, dx, image(q, STORED), image(q, STORED));
}

static void ask_conv(struct question *q) /* for comparison: the engine uses it */
{
	add_conv_backward(q, image(q, STORED));
}

static const struct {
	const char *name;
	void (*ask)(struct question *);
} questions[] = {
	{"norm", ask_norm},
	{"norm, ReLU", ask_norm_relu},
	{"norm, sum, ReLU", ask_norm_add_relu},
	{"gradient of norm", ask_backward},
	{"gradient of ReLU, norm", ask_relu_backward},
	{"gradient of 3x3 conv", ask_conv},
	{"gradient of 3x3 conv, sum", ask_conv_add},
};

/* ---- Answers ---- */

/* *is_new: no configuration before this one has the engine. */
static enum ct_status read_engine(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine, struct answer *a,
				  bool *is_new)
{
	cudnnBackendBehaviorNote_t notes[MAX_NOTES];
	int64_t n = 0, index = -1;
	char name[32];

	CT_TRY(ct__cudnn_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine,
			     "reading an engine"));
	CT_TRY(ct__cudnn_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index,
			     "reading the index of an engine"));
	CT_TRY(ct__cudnn_get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES, &n, notes,
			     "reading the notes of an engine"));
	snprintf(name, sizeof(name), " %lld,", (long long)index);
	*is_new = !strstr(ct_str_text(&a->engines), name);
	if (!*is_new)
		return CT_OK;
	ct_str_add(&a->engines, name);
	for (int64_t i = 0; i < n && i < MAX_NOTES; i++)
		a->compiled += notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
	return CT_OK;
}

static enum ct_status make_plan(cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t config,
				cudnnBackendDescriptor_t device, struct answer *a)
{
	CT_TRY(ct__cudnn_set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
	CT_TRY(ct__cudnn_set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device));
	if (ct__cudnn_finalize(plan, "finalizing a plan") == CT_OK)
		a->finalized++;
	else
		snprintf(a->reason, sizeof(a->reason), "%s", ct_error_message());
	ct_error_clear();
	return CT_OK;
}

static enum ct_status add_config(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t device, struct answer *a)
{
	cudnnBackendDescriptor_t engine = NULL, plan = NULL;
	bool is_new = false;
	enum ct_status st = ct__cudnn_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);

	if (st == CT_OK)
		st = read_engine(config, engine, a, &is_new);
	if (st == CT_OK && is_new)
		st = ct__cudnn_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
	if (st == CT_OK && is_new)
		st = make_plan(plan, config, device, a);
	ct__cudnn_destroy(plan);
	ct__cudnn_destroy(engine);
	return st;
}

static void run_heuristics(struct question *q, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
			   cudnnBackendHeurMode_t mode, struct answer *a)
{
	cudnnBackendDescriptor_t configs[MAX_CONFIGS] = {NULL}, h = make(q, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t n = 0;

	refer(q, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	set(q, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	refer(q, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
	finalize(q, h, "running the heuristics");
	for (int i = 0; i < MAX_CONFIGS && q->status == CT_OK; i++)
		q->status = ct__cudnn_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
	if (q->status == CT_OK)
		q->status = ct__cudnn_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS,
					  &n, configs, "reading the results of the heuristics");
	for (int64_t i = 0; i < n && i < MAX_CONFIGS && q->status == CT_OK; i++)
		q->status = add_config(configs[i], device, a);
	a->proposed += n;
	for (int i = 0; i < MAX_CONFIGS; i++)
		ct__cudnn_destroy(configs[i]);
}

static void answer(struct question *q, const char *json, struct answer *a)
{
	static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	cudnnBackendDescriptor_t device = make(q, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR),
				 graph = make(q, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

	set(q, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
	finalize(q, device, "reading the properties of the device");
	set(q, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, q->n_ops, q->ops);
	finalize(q, graph, "finalizing the graph");
	for (size_t i = 0; i < CT_ARRAY_LEN(modes); i++) {
		const bool valid = q->status == CT_OK;

		run_heuristics(q, graph, device, modes[i], a);
		if (!valid || q->status == CT_OK)
			continue;
		snprintf(a->reason, sizeof(a->reason), "%s", ct_error_message());
		ct_error_clear();
		q->status = CT_OK; /* the other heuristics may have more to say */
	}
	if (q->status < 0)
		snprintf(a->reason, sizeof(a->reason), "%s", ct_error_message());
	ct_error_clear();
}

static void print(const char *name, const struct question *q, const struct answer *a)
{
	printf("%s\t%s\t%lld\t%s\t%lld\t%lld\t%s\n", name,
	       q->type == CUDNN_DATA_FLOAT  ? "fp32"
	       : q->type == CUDNN_DATA_HALF ? "fp16"
					    : "bf16",
	       (long long)a->proposed, ct_str_text(&a->engines) + (a->engines.len > 0), (long long)a->compiled,
	       (long long)a->finalized, a->reason);
}

static void ask_all(const char *json)
{
	static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
	const size_t v = cudnnGetVersion();

	printf("# cuDNN %zu.%zu.%zu; x is [256,64,56,56]\ngraph\ttype\tproposed\tengines\tcompiled\tfinalized\treason\n",
	       v / 10000, v % 10000 / 100, v % 100);
	for (size_t i = 0; i < CT_ARRAY_LEN(questions); i++) {
		for (size_t t = 0; t < CT_ARRAY_LEN(types); t++) {
			struct question q = {.type = types[t], .dims = {256, 64, 56, 56}};
			struct answer a = {0};

			questions[i].ask(&q);
			answer(&q, json, &a);
			print(questions[i].name, &q, &a);
			ct_str_release(&a.engines);
			while (q.n_parts > 0)
				ct__cudnn_destroy(q.parts[--q.n_parts]);
		}
	}
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "tests/nn/cuda/devices/h200.json";
	char *json;
	cudnnHandle_t handle;
	size_t n;

	(void)cudnnCreate(&handle);            /* initializes the GPU, if there is one: plans can be loaded only then */
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* the gate reads the lines as they come */
	if (ct_file_read(path, 1 << 16, &json, &n) < 0) {
		fprintf(stderr, "cudnn_norms: %s\n", ct_error_message());
		return 1;
	}
	ask_all(json);
	ct_free(json);
	return 0;
}
