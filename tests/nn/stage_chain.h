/* A chain of stages, each with a separate net, that is compared with the complete net: loss, gradients, running
 * statistics and evaluation, with two micro-batches in flight. */
#ifndef CT_TESTS_NN_STAGE_CHAIN_H
#define CT_TESTS_NN_STAGE_CHAIN_H

#include "tests/nn/nn_check.h"

enum { CHAIN_ROWS = 3, CHAIN_MICROS = 3, CHAIN_CLASSES = 5, CHAIN_CONTEXTS = 2, CHAIN_MOST_STAGES = 4 };

/* Residual blocks with two kinds of shortcut, stochastic depth, and a dropout. */
#define CHAIN_BLOCKS                                                                                                \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu name=a;"                                           \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu;conv2d 16 kernel=3 padding=1 bias=false;"          \
	"batch_norm;drop_path 0.3;add from=a;relu name=b;"                                                          \
	"conv2d 32 kernel=3 stride=2 padding=1 bias=false;batch_norm;relu;conv2d 32 kernel=3 padding=1 bias=false;" \
	"batch_norm name=c;conv2d 32 kernel=1 stride=2 bias=false from=b;batch_norm;add from=c;relu;"               \
	"global_avg_pool;dropout 0.2;linear 5"
#define CHAIN_PLAIN "flatten;linear 24;relu;dropout 0.3;linear 20;linear 16;relu;linear 5"
#define CHAIN_CONVS "conv2d 8 kernel=3 padding=1;max_pool 2;relu;conv2d 16 kernel=3 padding=1;flatten;linear 5"

/* How an engine is opened, and the largest relative error of the stages. */
struct chain_engine {
	const char *name;
	enum ct_precision precision;
	double loss, gradients, evaluation; /* tolerances; evaluation: absolute */
	void (*open)(const char *name, ct_device **device, ct_engine **engine);
};

struct chain {
	int n;
	int first[CHAIN_MOST_STAGES + 1];
	struct rig rig[CHAIN_MOST_STAGES];
	ct_program *program[CHAIN_MOST_STAGES][CHAIN_CONTEXTS];
	/* Memory of ct_device_host_alloc. */
	float *y[CHAIN_MOST_STAGES][CHAIN_CONTEXTS]; /* outputs */
	float *dx[CHAIN_MOST_STAGES];                /* gradients of the inputs */
	struct ct_step_args *args[CHAIN_MOST_STAGES];
};

struct chain_data {
	float *x;
	int32_t *labels;
	size_t elems;
};

void chain_open(struct chain *c, const struct chain_engine *e, const ct_graph *whole, int n);
void chain_close(struct chain *c);
void chain_data_fill(struct chain_data *d, ct_device *device, const ct_graph *g);
void chain_data_release(struct chain_data *d, ct_device *device);
/* Compares n stages with the complete net. */
void check_chain(const struct chain_engine *e, const char *layers, struct ct_shape input, int n);

#endif
