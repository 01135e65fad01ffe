/* What the tests of the oneDNN engine share: a net that trains on made-up data, and its comparison with ref. */
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
};

/* A net with data that runs. */
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
/* Forward, backward, SGD. */
void step(struct bench *b, const struct job *j, bool accumulate);
/* bench_open and all steps. */
void run(struct bench *b, const struct job *j);
/* The largest |x|, or |x - minus| when that is given. */
double largest(const float *x, const float *minus, size_t n);
/* The same job on ref: parameters, gradients, loss and running statistics after its steps. */
void assert_equals_ref(const struct job *j, double tolerance);
/* The blocked layouts and the fused kernels that some tests are about. */
bool has_wide_vectors(const struct bench *b);

/* Every fused path of the engine; every operation that has a kernel of our own. */
extern const struct job convnet, mixed;

/* For main: 77 when this build or machine has no oneDNN engine, 0 otherwise. */
int skip_without_onednn(void);

#endif
