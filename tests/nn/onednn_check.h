/* Helpers for the tests of the oneDNN engine: a net that trains on synthetic data, and its comparison with ref. */
#ifndef CT_TESTS_NN_ONEDNN_CHECK_H
#define CT_TESTS_NN_ONEDNN_CHECK_H

#include <math.h>

#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"

struct job {
	const char *engine, *layers;
	struct ct_shape input;
	int threads, batch; /* of the net */
	int n;              /* of the program */
	enum ct_input_kind kind;
	int steps;
	const struct ct_net_plan *plan; /* NULL: the one that the engine chooses */
};

/* A running net with its data. */
struct bench {
	struct rig r;
	ct_optim *optim;
	float *floats;
	uint8_t *bytes;
	int32_t *labels;
	struct ct_metrics metrics;
};

struct ct_batch batch_of(const struct bench *b, const struct job *j);
void bench_open(struct bench *b, const struct job *j);
void bench_close(struct bench *b);
/* Runs forward, backward and an SGD update. */
void step(struct bench *b, const struct job *j, bool accumulate);
/* Calls bench_open and runs all steps. */
void run(struct bench *b, const struct job *j);
/* Returns the largest |x|, or the largest |x - minus| if minus is not NULL. */
double largest(const float *x, const float *minus, size_t n);
/* Runs the same job on ref and compares parameters, gradients, loss and running statistics after its steps. */
void assert_equals_ref(const struct job *j, double tolerance);

/* Models that cover every fused path of the engine and every operation that has a kernel in ctrain. */
extern const struct job convnet, mixed;

/* For main: limits the process as limit_isa does. Returns 77 if this build or machine has no oneDNN engine, or not the
 * instruction set, 0 otherwise. */
int skip_without_onednn(int argc, char **argv);

/* Skips the test on processors for which ctrain has no kernels of norms. */
void skip_without_norm_kernels(void);

#endif
