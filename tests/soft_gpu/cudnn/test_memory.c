/* Deliberate mistakes of a program that uses cuDNN, one at a time. The software GPU must detect each mistake, which
 * ends a child process. */
#include "tests/soft_gpu/cudnn/device_tensor.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

static const struct conv_spec same = {{1, 1}, {1, 1}, {1, 1}};

/* out = conv(in, w) */
struct layer {
	struct device_tensor w;
	struct device_tensor *all[3];
	struct plan plan;
	cudaStream_t stream;
	cudnnHandle_t handle;
	void *workspace;
};

/* Two layers, on two streams: the second reads what the first writes, or (beside) both read x. */
struct net {
	struct builder b;
	struct device_tensor x, y, z;
	struct layer layers[2];
	cudaEvent_t done;
};
static struct net net;

static void make_layer(struct layer *l, struct device_tensor *in, struct device_tensor *out,
		       cudnnBackendDescriptor_t device)
{
	struct builder *b = &net.b;
	cudnnBackendDescriptor_t op, graph;

	l->w = new_tensor(b, CUDNN_DATA_FLOAT, out->dims[1], in->dims[1], 3, 3, 0, false);
	fill(&l->w);
	l->all[0] = in;
	l->all[1] = &l->w;
	l->all[2] = out;
	op = make_conv(b, FORWARD, in->descriptor, l->w.descriptor, out->descriptor, &same);
	graph = make_graph(b, 1, &op);
	l->plan = find_plan(b, graph, device, CUDNN_HEUR_MODE_A, 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0);
	cudnn_ok(b->status);
	ok(cudaMalloc(&l->workspace, (size_t)l->plan.workspace));
	l->stream = new_stream();
	cudnn_ok(cudnnCreate(&l->handle));
	cudnn_ok(cudnnSetStream(l->handle, l->stream));
}

/* long_rows: x is described with rows that are longer than its memory */
static void begin(bool beside, bool long_rows)
{
	const int64_t strides[4] = {6 * 5 * 64, 1, 5 * 64, 64};
	cudnnBackendDescriptor_t device;

	builder_begin(&net.b, &linked_library);
	device = make_device(&net.b, NULL);
	net.x = new_tensor(&net.b, CUDNN_DATA_FLOAT, 2, 40, 6, 5, 0, false);
	net.y = new_tensor(&net.b, CUDNN_DATA_FLOAT, 2, 24, 6, 5, 0, false);
	net.z = new_tensor(&net.b, CUDNN_DATA_FLOAT, 2, 8, 6, 5, 0, false);
	fill(&net.x);
	if (long_rows)
		net.x.descriptor = make_tensor(
			&net.b, &(struct tensor_spec){.dims = {2, 40, 6, 5}, .uid = net.x.uid, .strides = strides});
	make_layer(&net.layers[0], &net.x, &net.y, device);
	make_layer(&net.layers[1], beside ? &net.x : &net.y, &net.z, device);
	net.done = new_event();
	ok(cudaDeviceSynchronize());
}

static void post(struct layer *l)
{
	execute(&net.b, l->handle, &l->plan, 3, l->all, l->workspace);
}

static void order(void)
{
	ok(cudaEventRecord(net.done, net.layers[0].stream));
	ok(cudaStreamWaitEvent(net.layers[1].stream, net.done, 0));
}

static void post_both(bool ordered)
{
	post(&net.layers[0]);
	if (ordered)
		order();
	post(&net.layers[1]);
	ok(cudaDeviceSynchronize());
}

static void good(void *arg)
{
	(void)arg;
	begin(false, false);
	post_both(true);
	download(&net.z);
	for (int64_t i = 0; i < net.z.n; i++) {
		if (!isfinite(net.z.values[i]))
			_exit(3);
	}
}

static void wrong_stride(void *arg)
{
	(void)arg;
	begin(false, true);
	post_both(true);
}

static void small_workspace(void *arg)
{
	(void)arg;
	begin(false, false);
	ok(cudaFree(net.layers[0].workspace));
	ok(cudaMalloc(&net.layers[0].workspace, (size_t)net.layers[0].plan.workspace - 1));
	post_both(true);
}

static void no_event(void *arg)
{
	(void)arg;
	begin(false, false);
	post_both(false);
}

/* The plans share only their workspace. */
static void shared_workspace(void *arg)
{
	begin(true, false);
	net.layers[1].workspace = net.layers[0].workspace;
	post_both(arg != NULL);
}

static void shared_in_graph(void *arg)
{
	cudaStream_t origin = net.layers[0].stream;
	cudaEvent_t fork;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	begin(true, false);
	if (!arg)
		net.layers[1].workspace = net.layers[0].workspace;
	origin = net.layers[0].stream;
	fork = new_event();
	ok(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
	ok(cudaEventRecord(fork, origin));
	ok(cudaStreamWaitEvent(net.layers[1].stream, fork, 0));
	post(&net.layers[0]);
	post(&net.layers[1]);
	ok(cudaEventRecord(net.done, net.layers[1].stream));
	ok(cudaStreamWaitEvent(origin, net.done, 0));
	ok(cudaStreamEndCapture(origin, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphLaunch(exec, origin));
	ok(cudaDeviceSynchronize());
}

static void freed(void *arg)
{
	(void)arg;
	begin(false, false);
	ok(cudaFree(net.layers[0].w.memory));
	post_both(true);
}

static void host_pointer(void *arg)
{
	static _Alignas(16) float host[24 * 40 * 9];

	(void)arg;
	begin(false, false);
	net.layers[0].w.memory = host;
	post_both(true);
}

static void overlapping_output(void *arg)
{
	(void)arg;
	begin(false, false);
	net.y.memory = (char *)net.x.memory + 64;
	post_both(true);
}

static void workspace_in_input(void *arg)
{
	(void)arg;
	begin(false, false);
	net.layers[0].workspace = net.x.memory;
	post_both(true);
}

static void pack_with(int64_t uid)
{
	struct layer *l = &net.layers[0];
	const int64_t uids[4] = {net.x.uid, l->w.uid, net.y.uid, uid};
	void *const memory[4] = {net.x.memory, l->w.memory, net.y.memory, net.z.memory};

	cudnn_ok(cudnnBackendExecute(l->handle, l->plan.descriptor, make_pack(&net.b, 4, uids, memory, l->workspace)));
}

static void extra_tensor(void *arg)
{
	(void)arg;
	begin(false, false);
	pack_with(net.z.uid);
}

/* y = relu(v), v = x + x, and the pack has v */
static void virtual_tensor_in_pack(void *arg)
{
	cudnnBackendDescriptor_t ops[2], device;
	struct device_tensor v;

	(void)arg;
	begin(false, false);
	v = new_tensor(&net.b, CUDNN_DATA_FLOAT, 2, 24, 6, 5, 0, true);
	ops[0] = make_conv(&net.b, FORWARD, net.x.descriptor, net.layers[0].w.descriptor, v.descriptor, &same);
	ops[1] = make_pointwise(&net.b, CUDNN_POINTWISE_RELU_FWD, v.descriptor, NULL, NULL, net.y.descriptor);
	device = make_device(&net.b, NULL);
	net.layers[0].plan = find_plan(&net.b, make_graph(&net.b, 2, ops), device, CUDNN_HEUR_MODE_A, 0, 0);
	pack_with(v.uid);
}

static void destroyed_plan(void *arg)
{
	(void)arg;
	begin(false, false);
	cudnn_ok(cudnnBackendDestroyDescriptor(net.layers[0].plan.descriptor));
	post(&net.layers[0]);
}

static void destroyed_handle(void *arg)
{
	(void)arg;
	begin(false, false);
	cudnn_ok(cudnnDestroy(net.layers[0].handle));
	net.layers[0].handle = NULL;
	post(&net.layers[0]);
}

/* The workspace of an engine is one with values of the program behind it: it is really written. */
static void workspace_is_written(void *arg)
{
	unsigned char bytes[4096];

	(void)arg;
	begin(false, false);
	const size_t n = (size_t)net.layers[0].plan.workspace;
	ok(cudaMemset(net.layers[0].workspace, 1, n));
	ok(cudaDeviceSynchronize());
	post_both(true);
	ok(cudaMemcpy(bytes, net.layers[0].workspace, n, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] == 1)
			_exit(3);
	}
}

static const struct {
	const char *name;
	void (*run)(void *arg);
	void *arg;
	const char *message; /* NULL: a correct program */
} programs[] = {
	{"correct", good, NULL, NULL},
	{"workspace is written", workspace_is_written, NULL, NULL},
	{"wrong stride", wrong_stride, NULL, "soft gpu: "},
	{"workspace too small", small_workspace, NULL, "allocation"},
	{"no event between two plans", no_event, NULL, "nothing orders them"},
	{"shared workspace", shared_workspace, NULL, "nothing orders them"},
	{"shared workspace, ordered", shared_workspace, &net, NULL},
	{"shared workspace in a graph", shared_in_graph, NULL, "orders"},
	{"own workspaces in a graph", shared_in_graph, &net, NULL},
	{"freed memory", freed, NULL, "allocation"},
	{"host pointer", host_pointer, NULL, "allocation"},
	{"output overlaps input", overlapping_output, NULL, "overlaps"},
	{"workspace overlaps input", workspace_in_input, NULL, "overlaps"},
	{"extra tensor", extra_tensor, NULL, "which is not in the plan"},
	{"virtual tensor", virtual_tensor_in_pack, NULL, "virtual tensor"},
	{"destroyed plan", destroyed_plan, NULL, "not a descriptor"},
	{"destroyed handle", destroyed_handle, NULL, "not a handle"},
};

static void test_programs(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		struct child c = run_child(programs[i].run, programs[i].arg);

		printf("%s: %s", programs[i].name, c.output[0] ? c.output : "\n");
		if (programs[i].message)
			expect_message(&c, programs[i].message);
		else
			expect_success(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
