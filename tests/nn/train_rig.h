/* A net with everything that a training step needs: optimizer, EMA weights, and a batch and the step arguments in
 * pinned memory. */
#ifndef CT_TESTS_NN_TRAIN_RIG_H
#define CT_TESTS_NN_TRAIN_RIG_H

#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"

struct train_rig {
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *program;
	ct_optim *optim;
	ct_ema *ema;
	struct ct_step_args *args;
	void *x, *labels; /* a batch */
	int rows;
};

static inline void *train_rig_pinned(struct train_rig *r, size_t bytes)
{
	void *p;

	assert_ok(ct_device_host_alloc(r->device, bytes, &p));
	memset(p, 0, bytes);
	return p;
}

/* Creates everything else for the device, the engine and the graph, which r already has and now owns. */
static inline void train_rig_create(struct train_rig *r, const struct ct_net_opts *opts,
				    const struct ct_optim_opts *optim, double ema_decay)
{
	const size_t n = (size_t)opts->batch * shape_elems(ct_graph_node(r->graph, 0)->shape);
	const struct ct_node *loss = ct_graph_node(r->graph, ct_graph_loss(r->graph));

	r->rows = opts->batch;
	assert_ok(ct_net_create(r->engine, r->graph, opts, &r->net));
	assert_ok(ct_optim_create(r->net, optim, &r->optim));
	assert_ok(ct_net_init(r->net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_ema_create(r->net, ema_decay, &r->ema));
	assert_ok(ct_program_create(r->net, r->rows, CT_TRAIN, &r->program));
	r->x = train_rig_pinned(r, n * sizeof(float));
	r->labels = train_rig_pinned(r, (size_t)r->rows * sizeof(int32_t));
	r->args = train_rig_pinned(r, sizeof(*r->args));
	fill_floats(1, r->x, n);
	fill_labels(2, r->labels, (size_t)r->rows, ct_graph_node(r->graph, loss->in[0])->shape.c);
}

static inline void train_rig_destroy(struct train_rig *r)
{
	ct_device_host_free(r->device, r->args);
	ct_device_host_free(r->device, r->labels);
	ct_device_host_free(r->device, r->x);
	ct_program_destroy(r->program);
	ct_ema_destroy(r->ema);
	ct_optim_destroy(r->optim);
	ct_net_destroy(r->net);
	ct_engine_close(r->engine);
	ct_device_close(r->device);
	ct_graph_destroy(r->graph);
}

static inline struct ct_batch train_rig_batch(const struct train_rig *r)
{
	return (struct ct_batch){.n = r->rows, .x = r->x, .labels = r->labels};
}

/* Posts the arguments of the next update. */
static inline void train_rig_begin(struct train_rig *r, double lr)
{
	ct_optim_begin(r->optim, lr, r->args);
	assert_ok(ct_net_post_step_args(r->net, r->args));
}

#endif
