/* Helpers for the tests of nn: graphs from strings, and a test setup with device, engine, graph, net and program. */
#ifndef CT_TESTS_NN_NN_CHECK_H
#define CT_TESTS_NN_NN_CHECK_H

#include "tests/base/check.h"

#include "base/cpu/features.h"
#include "base/rng.h"
#include "nn/engine.h"
#include "nn/models/model.h"
#include "tests/nn/on_host.h"

#define MAX_LAYERS 64

/* Builds a model from layer strings joined by ';'. Returns the status of the builder. */
enum ct_status graph_try(struct ct_shape input, const char *layers, int n_outputs, enum ct_loss loss, float smoothing,
			 ct_graph **out);
ct_graph *graph_make(struct ct_shape input, const char *layers, int n_outputs, enum ct_loss loss, float smoothing);

struct rig {
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph; /* owned */
	ct_net *net;
	ct_program *program; /* training */
};
/* Opens the device and the engine, and creates the net and the program for opts.batch rows, with parameters initialized
 * as in PyTorch from seed 1. */
void rig_open(struct rig *r, const char *engine, ct_graph *graph, const struct ct_net_opts *opts);
void rig_close(struct rig *r);
/* Changes the scales and shifts of batch norms from 1 and 0 to other values, which are the same on every engine. */
void vary_norms(ct_net *net);

/* Calls test(engine) for every engine that is available in this build and on this machine. */
void each_engine(void (*test)(const char *engine));
/* Returns whether the engine supports the precision. If it does not, prints the reason. */
bool has_precision(const char *engine, enum ct_precision precision);

/* For main: limits the process to the instruction set that the first argument names, if there is one. Returns 77 if
 * this processor does not have it, 0 otherwise. */
int limit_isa(int argc, char **argv);

/* Generate n pseudo-random numbers from stream `stream`: uniform in [-1, 1) or in [0, 1), bytes, or labels below k. */
void fill_floats(uint32_t stream, float *x, size_t n);
void fill_shares(uint32_t stream, float *x, size_t n);
void fill_bytes(uint32_t stream, uint8_t *x, size_t n);
void fill_labels(uint32_t stream, int32_t *labels, size_t n, int k);

/* Returns the values of parameter `param` in the logical layout. Free them with ct_free. */
float *export_param(ct_net *net, const float *arena, int param);
int param_named(const ct_graph *g, const char *name);
int node_named(const ct_graph *g, const char *name);
size_t shape_elems(struct ct_shape s);

#endif
