/* Helpers for tests of the CUDA engine beside those of nn_check.h: device and engine, and a net with a batch. */
#ifndef CT_TESTS_NN_CUDA_CUDA_CHECK_H
#define CT_TESTS_NN_CUDA_CUDA_CHECK_H

#include "nn/engine_impl.h"
#include "tests/nn/nn_check.h"

/* Opens CUDA device 0 and its engine, or the CPU and the engine ref. The caller closes both. */
void open_engine(bool cuda, ct_device **device, ct_engine **engine);

struct cuda_rig {
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *train, *eval; /* destroyed by cuda_rig_close; NULL until the test creates them */
	void *x, *labels;
};
/* Creates a net for images [3,size,size], and `rows` images with labels. */
void cuda_rig_open(struct cuda_rig *r, const char *layers, int size, int classes, int rows,
		   const struct ct_net_opts *opts);
void cuda_rig_close(struct cuda_rig *r);
/* The first n images. */
struct ct_batch cuda_rig_batch(const struct cuda_rig *r, int n);

#endif
