/* Each function of the stand-in can be made to fail, at each of its calls. A program that checks for errors then
 * releases everything that it has created. */
#include "tests/soft_gpu/cudnn/device_tensor.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};

/* The first error of the program, and how it is called. */
struct outcome {
	cudnnStatus_t status;
	char reason[256];
};

static void post(struct builder *b, cudnnHandle_t handle, cudaStream_t stream, struct outcome *o)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, CUDNN_DATA_FLOAT),
				 w = simple_tensor(b, 8, 8, 3, 3, CUDNN_DATA_FLOAT),
				 y = simple_tensor(b, 2, 8, 5, 5, CUDNN_DATA_FLOAT),
				 op = make_conv(b, FORWARD, x, w, y, &same), graph = make_graph(b, 1, &op),
				 device = make_device(b, NULL);
	cudnnBackendDescriptor_t configs[MAX_CONFIGS], pack;
	const int64_t uids[3] = {1, 2, 3};
	void *memory[3], *workspace;
	struct plan p = {0};
	cudaStream_t same_stream;

	propose(b, graph, device, CUDNN_HEUR_MODE_A, configs);
	if (!b->status)
		b->status = make_plan(b, configs[0], device, &p);
	ok(cudaMalloc(&workspace, 1 << 16));
	for (int i = 0; i < 3; i++)
		ok(cudaMalloc(&memory[i], 8 * 8 * 9 * 4));
	pack = make_pack(b, 3, uids, memory, workspace);
	if (!b->status)
		b->status = cudnnSetStream(handle, stream);
	if (!b->status)
		b->status = cudnnGetStream(handle, &same_stream);
	if (!b->status)
		b->status = cudnnGraphVersionCheck();
	if (!b->status)
		b->status = cudnnBackendExecute(handle, p.descriptor, pack);
	o->status = b->status;
	if (b->status)
		cudnnGetLastErrorString(o->reason, sizeof(o->reason));
	ok(cudaStreamSynchronize(stream));
	for (int i = 0; i < 3; i++)
		ok(cudaFree(memory[i]));
	ok(cudaFree(workspace));
}

static struct outcome program(void)
{
	static struct builder b;
	struct outcome o = {0};
	cudaStream_t stream = new_stream();
	cudnnHandle_t handle;

	o.status = cudnnCreate(&handle);
	if (o.status) {
		cudnnGetLastErrorString(o.reason, sizeof(o.reason));
	} else {
		builder_begin(&b, &linked_library);
		post(&b, handle, stream, &o);
		builder_end(&b);
		cudnn_ok(cudnnDestroy(handle));
	}
	ok(cudaStreamDestroy(stream));
	return o;
}

static void test_each_call_fails(void **state)
{
	static const char *const functions[] = {"cudnnCreate",
						"cudnnSetStream",
						"cudnnGetStream",
						"cudnnGraphVersionCheck",
						"cudnnBackendCreateDescriptor",
						"cudnnBackendSetAttribute",
						"cudnnBackendGetAttribute",
						"cudnnBackendFinalize",
						"cudnnBackendExecute"};
	struct outcome o;

	(void)state;
	for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++) {
		soft_gpu_set_faults(NULL);
		o = program();
		assert_int_equal(o.status, CUDNN_STATUS_SUCCESS);
		const int n = soft_gpu_calls(functions[f]);
		assert_true(n > 0);
		for (int i = 1; i <= n; i++) {
			char fault[96];

			/* A missing note of an engine is no error. */
			if (strcmp(functions[f], "cudnnBackendGetAttribute") == 0 && (i == 4 || i == 5))
				continue;
			snprintf(fault, sizeof(fault), "%s:%d:%d", functions[f], i, CUDNN_STATUS_INTERNAL_ERROR);
			soft_gpu_set_faults(fault);
			o = program();
			if (o.status != CUDNN_STATUS_INTERNAL_ERROR || !strstr(o.reason, "SOFT_GPU_FAULT"))
				fail_msg("%s: status %d, %s", fault, (int)o.status, o.reason);
			assert_int_equal(soft_cudnn_live(), 0);
			assert_int_equal(soft_gpu_live(), 0);
		}
	}
	soft_gpu_set_faults(NULL);
}

/* The call succeeds, and the device's error comes when the plan runs. */
static void fail_when_it_runs(void *arg)
{
	static struct builder b;
	struct device_tensor x, y, *all[2] = {&x, &y};
	cudnnBackendDescriptor_t op, graph, device;
	cudnnHandle_t handle;
	void *workspace;

	(void)arg;
	builder_begin(&b, &linked_library);
	cudnn_ok(cudnnCreate(&handle));
	x = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 8, 2, 2, 0, false);
	y = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 8, 2, 2, 0, false);
	op = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, x.descriptor, NULL, NULL, y.descriptor);
	graph = make_graph(&b, 1, &op);
	device = make_device(&b, NULL);
	struct plan p = find_plan(&b, graph, device, CUDNN_HEUR_MODE_A, 0, 0);
	ok(cudaMalloc(&workspace, (size_t)p.workspace));
	soft_gpu_set_faults("cudnnBackendExecute@1:700");
	execute(&b, handle, &p, 2, all, workspace);
	expect_error(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

static void test_work_fails(void **state)
{
	struct child c = run_child(fail_when_it_runs, NULL);

	(void)state;
	expect_success(&c);
}

static void test_no_device(void **state)
{
	cudnnHandle_t handle;

	(void)state;
	soft_gpu_set_faults("cudaSetDevice:1:100");
	assert_int_equal(cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
	soft_gpu_set_faults(NULL);
	assert_int_equal(soft_cudnn_live(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_call_fails), cmocka_unit_test(test_work_fails),
					   cmocka_unit_test(test_no_device)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
