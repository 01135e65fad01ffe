/* When the stand-in consults the real cuDNN, its results are those of the real cuDNN used alone. This test needs
 * neither a GPU nor a driver. usage: SOFT_CUDNN_REAL=path of libcudnn.so.9 test_soft_cudnn_consult DEVICE.json */
#include <math.h>

#include "tests/soft_gpu/cudnn/device_tensor.h"
#include "tests/soft_gpu/cudnn/graphs.h"
#include "tests/soft_gpu/cudnn/misuse.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

/* The leak sanitizer, where there is one: the real library never frees all it has. */
void __lsan_disable(void) __attribute__((weak));

static struct library real_library;
static char device_json[1 << 14];
static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
static const cudnnBackendHeurMode_t heuristics[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

/* All that a program can ask about a graph: statuses, numbers, and each plan. */
struct answers {
	cudnnStatus_t status;
	int64_t n[2], n_final[2];
	struct plan plans[2][MAX_CONFIGS];
	cudnnStatus_t plan_status[2][MAX_CONFIGS];
	char reason[256];
};

static void ask(const struct library *lib, const char *json, const struct graph_case *g, cudnnDataType_t t,
		struct answers *out)
{
	static struct builder b;
	cudnnBackendDescriptor_t configs[MAX_CONFIGS], graph, device;

	memset(out, 0, sizeof(*out));
	builder_begin(&b, lib);
	graph = g->build(&b, t);
	device = make_device(&b, json);
	for (int h = 0; h < 2 && !b.status; h++) {
		out->n[h] = propose(&b, graph, device, heuristics[h], configs);
		for (int64_t i = 0; i < out->n[h]; i++) {
			out->plan_status[h][i] = make_plan(&b, configs[i], device, &out->plans[h][i]);
			out->plans[h][i].descriptor = NULL;
			out->n_final[h] += out->plan_status[h][i] == CUDNN_STATUS_SUCCESS;
		}
	}
	out->status = b.status;
	if (b.status)
		lib->last_error(out->reason, sizeof(out->reason));
	builder_end(&b);
}

static void test_same_answers(void **state)
{
	static struct answers mine, theirs;
	int n_plans = 0, n_refused = 0;

	(void)state;
	for (int i = 0; i < n_graph_cases; i++) {
		for (int t = 0; t < (i % 3 == 0 ? 3 : 2); t++) { /* bf16 for some: it is as fp16 */
			ask(&real_library, device_json, &graph_cases[i], types[t], &theirs);
			/* The software GPU's device, which SOFT_CUDNN_DEVICE describes. */
			ask(&linked_library, NULL, &graph_cases[i], types[t], &mine);
			if (memcmp(&mine, &theirs, sizeof(mine)) != 0)
				fail_msg("%s, type %d: status %d, %d + %d plans; cuDNN: status %d, %d + %d plans",
					 graph_cases[i].name, (int)types[t], (int)mine.status, (int)mine.n[0],
					 (int)mine.n[1], (int)theirs.status, (int)theirs.n[0], (int)theirs.n[1]);
			if ((mine.n_final[0] + mine.n_final[1] > 0) != graph_cases[i].supported[t])
				fail_msg("%s, type %d: %d plans", graph_cases[i].name, (int)types[t],
					 (int)(mine.n_final[0] + mine.n_final[1]));
			n_plans += (int)(mine.n_final[0] + mine.n_final[1]);
			n_refused += mine.n[0] + mine.n[1] == 0;
		}
	}
	printf("%d plans; %d graphs without any\n", n_plans, n_refused);
	assert_true(n_plans > 500 && n_refused > 0);
	assert_int_equal(cudnnGetVersion(), real_library.version());
	assert_int_equal(soft_cudnn_live(), 0);
}

/* The statuses in the lists are those of the real library. */
static void check_misuses(const struct misuses *m)
{
	static struct builder b;
	int n_bad = 0;

	for (int i = 0; i < m->n; i++) {
		if (m->all[i].message) /* it may crash */
			continue;
		builder_begin(&b, &real_library);
		m->all[i].run(&b);
		if (b.status != m->all[i].status) {
			printf("%s: status %d instead of %d\n", m->all[i].name, (int)b.status, (int)m->all[i].status);
			n_bad++;
		}
		builder_end(&b);
	}
	assert_int_equal(n_bad, 0);
}

static void test_misuses(void **state)
{
	(void)state;
	misuse_device = device_json;
	check_misuses(&misused_descriptors);
	check_misuses(&misused_operations);
	check_misuses(&misused_graphs);
}

/* A plan of the real library is executed by the stand-in; what its engine notes say is done. */
static void test_execution(void **state)
{
	static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};
	static struct builder b;
	struct device_tensor x, w, y, *all[3] = {&x, &w, &y};
	double *results[2];
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t op, graph, device;

	(void)state;
	builder_begin(&b, &linked_library);
	cudnn_ok(cudnnCreate(&handle));
	x = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 32, 6, 6, 0, false);
	w = new_tensor(&b, CUDNN_DATA_FLOAT, 16, 32, 3, 3, 0, false);
	y = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 16, 6, 6, 0, false);
	fill(&x);
	fill(&w);
	op = make_conv(&b, FORWARD, x.descriptor, w.descriptor, y.descriptor, &same);
	graph = make_graph(&b, 1, &op);
	device = make_device(&b, NULL);
	for (int exact = 0; exact < 2; exact++) {
		const unsigned tensor_core = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
		struct plan p = find_plan(&b, graph, device, CUDNN_HEUR_MODE_A, exact ? 0 : tensor_core,
					  exact ? tensor_core : 0);
		void *workspace = NULL;

		cudnn_ok(b.status);
		assert_non_null(p.descriptor);
		if (p.workspace)
			ok(cudaMalloc(&workspace, (size_t)p.workspace));
		execute(&b, handle, &p, 3, all, workspace);
		ok(cudaDeviceSynchronize());
		download(&y);
		results[exact] = malloc(sizeof(double) * (size_t)y.n);
		memcpy(results[exact], y.values, sizeof(double) * (size_t)y.n);
		if (workspace)
			ok(cudaFree(workspace));
	}
	assert_memory_not_equal(results[0], results[1], sizeof(double) * (size_t)y.n);
	for (int64_t i = 0; i < y.n; i++)
		assert_true(fabs(results[0][i] - results[1][i]) < 0.05);
	free(results[0]);
	free(results[1]);
	for (int i = 0; i < 3; i++)
		free_tensor(all[i]);
	cudnn_ok(cudnnDestroy(handle));
	builder_end(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_answers), cmocka_unit_test(test_misuses),
					   cmocka_unit_test(test_execution)};
	const char *path = getenv("SOFT_CUDNN_REAL"), *why;
	FILE *f;

	if (__lsan_disable)
		__lsan_disable();
	if (argc != 2 || !path || !(f = fopen(argv[1], "r"))) {
		fprintf(stderr, "usage: SOFT_CUDNN_REAL=libcudnn.so.9 %s DEVICE.json\n", argv[0]);
		return 2;
	}
	if (fread(device_json, 1, sizeof(device_json) - 1, f) == 0)
		return 2;
	fclose(f);
	setenv("SOFT_CUDNN_DEVICE", argv[1], 1);
	why = load_library(path, &real_library);
	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	if (real_library.version() != CUDNN_VERSION) {
		printf("skipped: cuDNN %zu, while the lists are those of %d\n", real_library.version(), CUDNN_VERSION);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
