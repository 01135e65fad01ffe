#include "tests/nn/cuda/cuda_check.h"

extern const struct ct_device_ops ct__device_cuda_ops;
extern const struct ct_engine_ops ct__engine_ops_cuda;

void open_engine(bool cuda, ct_device **device, ct_engine **engine)
{
	if (cuda) {
		assert_ok(ct__device_cuda_ops.open(0, device));
		assert_ok(ct__engine_open_with(&ct__engine_ops_cuda, *device, 1, engine));
	} else {
		assert_ok(ct_device_open("cpu", 0, device));
		assert_ok(ct_engine_open("ref", *device, 1, engine));
	}
}

void cuda_rig_open(struct cuda_rig *r, const char *layers, int size, int classes, int rows,
		   const struct ct_net_opts *opts)
{
	const size_t n = (size_t)rows * 3 * (size_t)size * (size_t)size;

	*r = (struct cuda_rig){0};
	open_engine(true, &r->device, &r->engine);
	r->graph = graph_make((struct ct_shape){3, size, size}, layers, classes, CT_LOSS_CROSS_ENTROPY, 0);
	assert_ok(ct_net_create(r->engine, r->graph, opts, &r->net));
	assert_ok(ct_net_init(r->net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_device_host_alloc(r->device, n * sizeof(float), &r->x));
	assert_ok(ct_device_host_alloc(r->device, (size_t)rows * sizeof(int32_t), &r->labels));
	fill_floats(1, r->x, n);
	fill_labels(2, r->labels, (size_t)rows, classes);
}

void cuda_rig_close(struct cuda_rig *r)
{
	ct_program_destroy(r->eval);
	ct_program_destroy(r->train);
	ct_device_host_free(r->device, r->labels);
	ct_device_host_free(r->device, r->x);
	ct_net_destroy(r->net);
	ct_graph_destroy(r->graph);
	ct_engine_close(r->engine);
	ct_device_close(r->device);
}

struct ct_batch cuda_rig_batch(const struct cuda_rig *r, int n)
{
	return (struct ct_batch){.n = n, .x = r->x, .labels = r->labels};
}
