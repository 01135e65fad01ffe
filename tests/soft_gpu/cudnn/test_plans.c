/* Plans of the stand-in: the proposals of heuristics, the differences between engines, variant packs, and captured
 * graphs. */
#include <math.h>

#include "tests/soft_gpu/cudnn/device_tensor.h"
#include "tests/soft_gpu/cudnn/graphs.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

#define NOTE(n) (1u << CUDNN_NUMERICAL_NOTE_##n)
static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};

/* A convolution of a fixed shape, with its tensors. */
struct conv {
	struct builder b;
	struct device_tensor x, w, y, *all[3], *out;
	cudnnBackendDescriptor_t graph, device;
	cudnnHandle_t handle;
	cudaStream_t stream;
};

static void begin(struct conv *c, enum direction way, cudnnDataType_t type)
{
	cudnnBackendDescriptor_t op;

	builder_begin(&c->b, &linked_library);
	c->x = new_tensor(&c->b, type, 3, 40, 6, 5, 0, false);
	c->w = new_tensor(&c->b, type, 24, 40, 3, 3, 0, false);
	c->y = new_tensor(&c->b, type, 3, 24, 6, 5, 0, false);
	c->all[0] = &c->x;
	c->all[1] = &c->w;
	c->all[2] = &c->y;
	c->out = way == FORWARD ? &c->y : way == DATA ? &c->x : &c->w;
	for (int i = 0; i < 3; i++)
		fill(c->all[i]);
	op = make_conv(&c->b, way, c->x.descriptor, c->w.descriptor, c->y.descriptor, &same);
	c->graph = make_graph(&c->b, 1, &op);
	c->device = make_device(&c->b, NULL);
	cudnn_ok(c->b.status);
	c->stream = new_stream();
	cudnn_ok(cudnnCreate(&c->handle));
	cudnn_ok(cudnnSetStream(c->handle, c->stream));
	ok(cudaDeviceSynchronize());
}

static void end(struct conv *c)
{
	for (int i = 0; i < 3; i++)
		free_tensor(c->all[i]);
	cudnn_ok(cudnnDestroy(c->handle));
	ok(cudaStreamDestroy(c->stream));
	builder_end(&c->b);
	assert_int_equal(soft_cudnn_live(), 0);
	assert_int_equal(soft_gpu_live(), 0);
}

/* The result of the plan; the caller frees it. */
static double *run(struct conv *c, const struct plan *p)
{
	void *workspace = NULL;
	double *copy;

	if (p->workspace)
		ok(cudaMalloc(&workspace, (size_t)p->workspace));
	execute(&c->b, c->handle, p, 3, c->all, workspace);
	ok(cudaStreamSynchronize(c->stream));
	download(c->out);
	if (workspace)
		ok(cudaFree(workspace));
	copy = malloc(sizeof(double) * (size_t)c->out->n);
	memcpy(copy, c->out->values, sizeof(double) * (size_t)c->out->n);
	return copy;
}

static bool differ(const struct conv *c, const double *a, const double *b)
{
	return memcmp(a, b, sizeof(double) * (size_t)c->out->n) != 0;
}

/* Filters find something to allow and something to refuse. */
static void test_candidates(void **state)
{
	static struct conv c;
	cudnnBackendDescriptor_t configs[MAX_CONFIGS];
	struct plan p;

	(void)state;
	for (int t = 0; t < 2; t++) {
		int64_t least = INT64_MAX, most = 0;
		unsigned seen = 0;

		begin(&c, FILTER, t ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT);
		int64_t n = propose(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, configs);
		for (int64_t i = 0; i < n; i++) {
			cudnn_ok(make_plan(&c.b, configs[i], c.device, &p));
			seen |= p.numerical;
			least = p.workspace < least ? p.workspace : least;
			most = p.workspace > most ? p.workspace : most;
		}
		assert_true(seen & NOTE(TENSOR_CORE) && seen & NOTE(NONDETERMINISTIC));
		assert_true(seen & (t ? NOTE(REDUCED_PRECISION_REDUCTION) : NOTE(DOWN_CONVERT_INPUTS)));
		assert_true(least == 0 && most > 4096);
		/* True fp32, and deterministic. */
		p = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, 0,
			      NOTE(TENSOR_CORE) | NOTE(NONDETERMINISTIC));
		assert_non_null(p.descriptor);
		p = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_FALLBACK, NOTE(TENSOR_CORE), 0);
		assert_null(p.descriptor);
		assert_true(p.n_proposed > 0 && p.n_proposed < n);
		end(&c);
	}
}

/* fp32, tf32 and inputs in fp16 give different results; the same engine always the same one, except where it has the
 * note. */
static void test_arithmetic(void **state)
{
	static struct conv c;

	(void)state;
	begin(&c, FILTER, CUDNN_DATA_FLOAT);
	const struct plan exact = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, 0,
					    NOTE(TENSOR_CORE) | NOTE(NONDETERMINISTIC)),
			  tf32 = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, NOTE(TENSOR_CORE),
					   NOTE(DOWN_CONVERT_INPUTS) | NOTE(NONDETERMINISTIC)),
			  half = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, NOTE(DOWN_CONVERT_INPUTS), 0),
			  any_order = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, NOTE(NONDETERMINISTIC),
						NOTE(TENSOR_CORE));
	double *r[8] = {run(&c, &exact), run(&c, &exact), run(&c, &tf32),      run(&c, &tf32),
			run(&c, &half),  run(&c, &half),  run(&c, &any_order), run(&c, &any_order)};
	assert_false(differ(&c, r[0], r[1]));
	assert_false(differ(&c, r[2], r[3]));
	assert_false(differ(&c, r[4], r[5]));
	assert_true(differ(&c, r[6], r[7]));
	assert_true(differ(&c, r[0], r[2]));
	assert_true(differ(&c, r[0], r[4]));
	for (int i = 0; i < 8; i++)
		free(r[i]);
	end(&c);
}

/* tf32 has 10 bits of mantissa, and ties go away from zero. */
static void test_tf32(void **state)
{
	static const float in[] = {1 + 0x1p-10f, 1 + 0x1p-11f, 1 + 0x1.8p-10f, -1 - 0x1p-11f, 1 + 0x1.ffp-12f, 3e38f};
	static const double expected[] = {1 + 0x1p-10, 1 + 0x1p-10, 1 + 0x1p-9, -1 - 0x1p-10, 1, 0};
	static struct builder b;
	struct device_tensor x, w, y, *all[3] = {&x, &w, &y};
	cudnnBackendDescriptor_t op, graph, device;
	cudnnHandle_t handle;
	void *workspace;
	const float one = 1;

	(void)state;
	builder_begin(&b, &linked_library);
	x = new_tensor(&b, CUDNN_DATA_FLOAT, 6, 1, 1, 1, 0, false);
	w = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 1, 1, 1, 0, false);
	y = new_tensor(&b, CUDNN_DATA_FLOAT, 6, 1, 1, 1, 0, false);
	ok(cudaMemcpy(x.memory, in, sizeof(in), cudaMemcpyHostToDevice));
	ok(cudaMemcpy(w.memory, &one, sizeof(one), cudaMemcpyHostToDevice));
	op = make_conv(&b, FORWARD, x.descriptor, w.descriptor, y.descriptor,
		       &(struct conv_spec){{1, 1}, {0, 0}, {1, 1}});
	graph = make_graph(&b, 1, &op);
	device = make_device(&b, NULL);
	struct plan p = find_plan(&b, graph, device, CUDNN_HEUR_MODE_A, NOTE(TENSOR_CORE), NOTE(DOWN_CONVERT_INPUTS));
	ok(cudaMalloc(&workspace, (size_t)p.workspace));
	cudnn_ok(cudnnCreate(&handle));
	execute(&b, handle, &p, 3, all, workspace);
	ok(cudaDeviceSynchronize());
	download(&y);
	for (int i = 0; i < 5; i++)
		assert_true(y.values[i] == expected[i]);
	assert_true(isfinite(y.values[5]));
	ok(cudaFree(workspace));
	for (int i = 0; i < 3; i++)
		free_tensor(all[i]);
	cudnn_ok(cudnnDestroy(handle));
	builder_end(&b);
}

/* An engine that is compiled at run time needs a driver. */
static void test_run_time_compiled(void **state)
{
	static struct builder b;
	cudnnBackendDescriptor_t configs[MAX_CONFIGS];
	struct plan p;

	(void)state;
	builder_begin(&b, &linked_library);
	cudnnBackendDescriptor_t x = simple_tensor(&b, 2, 8, 4, 4, CUDNN_DATA_HALF),
				 y = simple_tensor(&b, 2, 8, 4, 4, CUDNN_DATA_HALF),
				 op = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y),
				 graph = make_graph(&b, 1, &op), device = make_device(&b, NULL),
				 described = make_device(&b, "{\"deviceVer\":900}");
	assert_int_equal(propose(&b, graph, device, CUDNN_HEUR_MODE_A, configs), 1);
	cudnn_ok(make_plan(&b, configs[0], device, &p));
	assert_true(p.behavior >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1);
	assert_int_equal(propose(&b, graph, described, CUDNN_HEUR_MODE_A, configs), 1);
	assert_int_equal(make_plan(&b, configs[0], described, &p),
			 CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
	cudnn_ok(b.status);
	builder_end(&b);
}

/* Without the real library, the same graphs have precompiled plans as with it. */
static void test_support(void **state)
{
	static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
	static struct builder b;

	(void)state;
	for (int i = 0; i < n_graph_cases; i++) {
		for (int t = 0; t < 3; t++) {
			builder_begin(&b, &linked_library);
			cudnnBackendDescriptor_t graph = graph_cases[i].build(&b, types[t]),
						 device = make_device(&b, "{\"deviceVer\":900}");
			int64_t n = find_plan(&b, graph, device, CUDNN_HEUR_MODE_A, 0, 0).n_final +
				    find_plan(&b, graph, device, CUDNN_HEUR_MODE_FALLBACK, 0, 0).n_final;

			cudnn_ok(b.status);
			if ((n > 0) != graph_cases[i].supported[t])
				fail_msg("%s, type %d: %d plans", graph_cases[i].name, (int)types[t], (int)n);
			builder_end(&b);
		}
	}
}

/* A graph that no engine computes has no configurations, as in cuDNN. */
static void test_unsupported(void **state)
{
	static struct builder b;
	cudnnBackendDescriptor_t configs[MAX_CONFIGS], op[5], graph, device;
	char reason[256];

	(void)state;
	builder_begin(&b, &linked_library);
	device = make_device(&b, NULL);
	cudnnBackendDescriptor_t x = simple_tensor(&b, 2, 8, 4, 4, CUDNN_DATA_HALF),
				 w = simple_tensor(&b, 8, 8, 3, 3, CUDNN_DATA_FLOAT),
				 y = simple_tensor(&b, 2, 8, 4, 4, CUDNN_DATA_HALF),
				 wide = simple_tensor(&b, 2, 8, 4, 5, CUDNN_DATA_HALF),
				 v = virtual_tensor(&b, 2, 8, 4, 4, CUDNN_DATA_HALF);
	op[0] = make_conv(&b, FORWARD, x, w, y, &same);
	op[1] = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, wide);
	op[2] = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, v, NULL, NULL, y);
	/* The last graph is two operations that have no tensor in common. */
	op[3] = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);
	op[4] = make_pointwise(&b, CUDNN_POINTWISE_NEG, simple_tensor(&b, 1, 8, 4, 4, CUDNN_DATA_HALF), NULL, NULL,
			       simple_tensor(&b, 1, 8, 4, 4, CUDNN_DATA_HALF));
	for (int i = 0; i < 4; i++) {
		graph = make_graph(&b, i == 3 ? 2 : 1, &op[i]);
		assert_int_equal(propose(&b, graph, device, CUDNN_HEUR_MODE_A, configs), 0);
		cudnn_ok(b.status);
		cudnnGetLastErrorString(reason, sizeof(reason));
		assert_non_null(strstr(reason, "no engine"));
	}
	builder_end(&b);
}

/* ---- Variant packs ---------------------------------------------------------------------------------- */

static void test_pack_errors(void **state)
{
	static struct conv c;
	void *workspace, *memory[3];
	int64_t uids[3];

	(void)state;
	begin(&c, FORWARD, CUDNN_DATA_FLOAT);
	struct plan p = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, NOTE(TENSOR_CORE), 0);
	ok(cudaMalloc(&workspace, (size_t)p.workspace));
	for (int i = 0; i < 3; i++) {
		uids[i] = c.all[i]->uid;
		memory[i] = c.all[i]->memory;
	}
	const struct {
		int n;
		void *first, *workspace;
		cudnnStatus_t status;
	} cases[] = {
		{3, memory[0], workspace, CUDNN_STATUS_SUCCESS},
		{2, memory[0], workspace, CUDNN_STATUS_BAD_PARAM},
		{3, NULL, workspace, CUDNN_STATUS_BAD_PARAM_NULL_POINTER},
		{3, (char *)memory[0] + 4, workspace, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER},
		{3, memory[0], NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		void *pointers[3] = {cases[i].first, memory[1], memory[2]};
		cudnnBackendDescriptor_t pack = make_pack(&c.b, cases[i].n, uids, pointers, cases[i].workspace);

		cudnn_ok(c.b.status);
		assert_int_equal(cudnnBackendExecute(c.handle, p.descriptor, pack), cases[i].status);
	}
	cudnnBackendDescriptor_t not_final = make(&c.b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	assert_int_equal(cudnnBackendExecute(c.handle, p.descriptor, not_final), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
	assert_int_equal(cudnnBackendExecute(c.handle, NULL, not_final), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
	ok(cudaStreamSynchronize(c.stream));
	ok(cudaFree(workspace));
	end(&c);
}

/* Plans and variant packs may be destroyed when the work is posted, also when it was recorded. */
static void test_recorded(void **state)
{
	static struct conv c;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	(void)state;
	begin(&c, FORWARD, CUDNN_DATA_FLOAT);
	const struct plan p = find_plan(&c.b, c.graph, c.device, CUDNN_HEUR_MODE_A, 0, NOTE(TENSOR_CORE));
	double *plain;
	void *workspace;
	ok(cudaMalloc(&workspace, (size_t)p.workspace + 1));
	plain = run(&c, &p);
	ok(cudaMemsetAsync(c.y.memory, 0xff, c.y.bytes, c.stream));
	ok(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
	execute(&c.b, c.handle, &p, 3, c.all, workspace);
	ok(cudaStreamEndCapture(c.stream, &graph));
	builder_end(&c.b);
	assert_int_equal(soft_cudnn_live(), 1); /* the handle */
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphDestroy(graph));
	ok(cudaGraphLaunch(exec, c.stream));
	ok(cudaGraphExecDestroy(exec));
	ok(cudaStreamSynchronize(c.stream));
	download(&c.y);
	assert_false(differ(&c, plain, c.y.values));
	free(plain);
	ok(cudaFree(workspace));
	end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_candidates),  cmocka_unit_test(test_arithmetic),
		cmocka_unit_test(test_tf32),        cmocka_unit_test(test_run_time_compiled),
		cmocka_unit_test(test_support),     cmocka_unit_test(test_unsupported),
		cmocka_unit_test(test_pack_errors), cmocka_unit_test(test_recorded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
