/* How much memory a training step of ResNet-50 with 256 images needs and moves, counted from the tasks that the engine
 * would post. Nothing is executed: these are bytes, not times. Training of this model is limited by the memory of a
 * GPU, so the bytes predict its time. */
#include "nn/cuda/compile/compile.h"
#include "nn/memory_plan.h"
#include "tests/nn/cuda/cuda_check.h"

enum { N = 256, N_KINDS = CUDA_SLICE_DONE + 1 };

struct step {
	double bytes[N_KINDS], total; /* read and written */
	int tasks[N_KINDS];
	struct ct_memory_plan memory;
};

static const char *const names[N_KINDS] = {
	[CUDA_INPUT] = "input",
	[CUDA_PLAN] = "convolutions, linear layers",
	[CUDA_MAP] = "element-wise operations",
	[CUDA_CONVERT] = "conversions",
	[CUDA_LOSS_SCALE] = "gradient of the loss",
	[CUDA_BIAS] = "bias",
	[CUDA_BIAS_BACKWARD] = "gradients of biases",
	[CUDA_NORM_SUMS] = "norm: statistics",
	[CUDA_NORM_APPLY] = "norm: forward",
	[CUDA_NORM_BACKWARD_SUMS] = "norm: sums of gradients",
	[CUDA_NORM_BACKWARD_DATA] = "norm: gradients of data",
	[CUDA_POOL] = "pools",
	[CUDA_POOL_BACKWARD] = "gradients of pools",
};

/* Each buffer that is an argument of a task is read or written once. */
static double bytes_of(const struct cuda_program *p, int task)
{
	const struct cuda_task *t = &p->tasks[task];
	double bytes = 0;

	if (t->kind == CUDA_PLAN) {
		const ct__cudnn_graph *g = t->plan.choice->graph;

		for (int i = 1; i <= ct__cudnn_graph_n_tensors(g); i++)
			bytes += ct__cudnn_graph_is_virtual(g, i) ? 0 : (double)ct__cudnn_graph_bytes(g, i);
		return bytes;
	}
	for (size_t i = 0; i < p->n_references; i++) {
		const struct cuda_reference *r = &p->references[i];

		if (r->task != task)
			continue;
		if (r->buffer != CUDA_NONE)
			bytes += (double)p->buffers[r->buffer].bytes;
		else
			bytes += (double)p->base.net->elems[r->param] * sizeof(float);
	}
	return bytes;
}

static void count(const char *level, enum ct_precision precision, struct step *out)
{
	const struct ct_model_spec spec = {
		.name = "resnet50", .input = {3, 224, 224}, .n_outputs = 1000, .loss = CT_LOSS_CROSS_ENTROPY};
	const struct ct_net_opts opts = {
		.batch = N, .input = CT_INPUT_U8_NHWC, .std = {1, 1, 1, 1}, .train = true, .precision = precision};
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;

	assert_int_equal(setenv("CTRAIN_CUDA_LEVEL", level, 1), 0);
	open_engine(true, &device, &engine);
	assert_ok(ct_model_build(&spec, &graph));
	assert_ok(ct_net_create(engine, graph, &opts, &net));
	struct cuda_program p = {.base = {.net = net, .graph = graph, .n = N, .mode = CT_TRAIN}};
	assert_ok(ct__cuda_compile_tasks(&p));
	*out = (struct step){0};
	for (size_t i = 0; i < p.n_tasks; i++) {
		const double bytes = p.tasks[i].kind == CUDA_COPY_IN ? 0 : bytes_of(&p, (int)i);

		out->tasks[p.tasks[i].kind]++;
		out->bytes[p.tasks[i].kind] += bytes;
		out->total += bytes;
	}
	assert_ok(ct_memory_plan(p.buffers, p.n_buffers, CUDA_ALIGN, &out->memory));
	ct__cuda_release_tasks(&p);
	ct_net_destroy(net);
	ct_graph_destroy(graph);
	ct_engine_close(engine);
	ct_device_close(device);
}

static void print(const char *name, const struct step *a, const struct step *b)
{
	printf("ResNet-50, %s, %d images, MB per image (tasks): level 0, level 1\n", name, N);
	for (int i = 0; i < N_KINDS; i++) {
		if (names[i] && a->tasks[i] + b->tasks[i] > 0)
			printf("%-28s %6.1f (%3d) %6.1f (%3d)\n", names[i], a->bytes[i] * 1e-6 / N, a->tasks[i],
			       b->bytes[i] * 1e-6 / N, b->tasks[i]);
	}
	printf("%-28s %6.1f       %6.1f\n", "total, without the update", a->total * 1e-6 / N, b->total * 1e-6 / N);
	printf("memory for values            %6.1f       %6.1f (without sharing %.1f, %.1f)\n",
	       (double)a->memory.bytes * 1e-6 / N, (double)b->memory.bytes * 1e-6 / N,
	       (double)a->memory.unplanned_bytes * 1e-6 / N, (double)b->memory.unplanned_bytes * 1e-6 / N);
}

static void test_resnet50(void **state)
{
	static const enum ct_precision precisions[] = {CT_PRECISION_BF16, CT_PRECISION_FP16};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(precisions); i++) {
		struct step unfused, fused;

		count("0", precisions[i], &unfused);
		count("1", precisions[i], &fused);
		print(ct_precision_name(precisions[i]), &unfused, &fused);
		assert_true(fused.total < 0.74 * unfused.total);
		assert_true(fused.total > 352e6 * N && fused.total < 353e6 * N); /* docs/GPU.md */
		assert_true(fused.memory.bytes < unfused.memory.bytes);
		assert_true((double)fused.memory.bytes < 43e6 * N);
		assert_true((double)fused.memory.bytes < 0.55 * (double)fused.memory.unplanned_bytes);
		assert_int_equal(fused.tasks[CUDA_MAP], 1); /* the gradients of the first pool */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_resnet50)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
