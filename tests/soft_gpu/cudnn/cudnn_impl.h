/* Internals of the stand-in libcudnn.so.9 (soft_cudnn.h). Private to tests/soft_gpu/cudnn. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_CUDNN_IMPL_H
#define CT_TESTS_SOFT_GPU_CUDNN_CUDNN_IMPL_H

#include <cudnn_graph.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/soft_gpu/soft_gpu.h"

enum { SOFT__MAX_OPS = 16, SOFT__MAX_TENSORS = 64, SOFT__MAX_VALUES = 16, SOFT__MAX_KNOBS = 64, SOFT__DIMS = 4 };

/* ---- What descriptors describe ---------------------------------------------------------------------- */

struct soft__tensor {
	int64_t uid, dims[SOFT__DIMS], strides[SOFT__DIMS], alignment;
	int n_dims; /* dimensions beyond n_dims are 1 */
	cudnnDataType_t type;
	bool is_virtual;
};

struct soft__window { /* the window of a convolution, over H and W */
	int64_t stride[2], pad[2], pad_end[2], dilation[2];
	bool flipped; /* true convolution instead of cross-correlation */
};

struct soft__pointwise {
	cudnnPointwiseMode_t mode;
	double lower, upper, slope; /* parameters of a ReLU */
	float alpha1, alpha2;
};

/* An operation. Its tensors are, for a convolution, x, w and y in this order, whichever of them is the result; for a
 * pointwise operation, the inputs x, b or dy, and t, and the output y; for statistics, the input x and the outputs sum
 * and square sum. */
struct soft__op {
	cudnnBackendDescriptorType_t kind;
	int n_in, n_out;
	struct soft__tensor in[3], out[2];
	int in_at[3], out_at[2]; /* indexes into the graph's tensors, set when the graph is finalized */
	struct soft__window window;
	struct soft__pointwise pointwise;
	float alpha, beta;
};

struct soft__graph { /* immutable */
	atomic_int refs;
	int n_ops, n_tensors;
	struct soft__op ops[SOFT__MAX_OPS]; /* each operation follows those whose results it reads */
	struct soft__tensor tensors[SOFT__MAX_TENSORS];
	bool is_written[SOFT__MAX_TENSORS];
	const char *unsupported; /* reason why no engine can compute the graph, or NULL */
};

struct soft__knob {
	cudnnBackendKnobType_t type;
	int64_t value;
};

struct soft__engine {
	int64_t index, workspace_bytes;
	unsigned numerical, behavior; /* bit n is set if the engine has note n */
	int n_knobs;                  /* 0 or 1 */
	struct soft__knob knob;
};

struct soft__device {
	bool by_json;
	int id;
};

/* ---- descriptor.c ----------------------------------------------------------------------------------- */

struct soft__value {
	cudnnBackendAttributeType_t type;
	int64_t n;
	void *data;     /* NULL: not set; descriptors in it are referenced */
	bool was_final; /* the descriptors in the value were already finalized when it was set */
};

struct soft__descriptor {
	cudnnBackendDescriptor_t handle; /* the handle that the program has */
	struct soft__descriptor *next;   /* next live descriptor with the same hash */
	atomic_int refs;
	cudnnBackendDescriptorType_t kind;
	bool is_final;
	struct soft__value values[SOFT__MAX_VALUES]; /* indexed by the position of the attribute's rule among the rules
						      * of the kind */
	/* Valid after finalization; which member is used depends on the kind. */
	struct soft__tensor tensor;
	struct soft__window window;
	struct soft__pointwise pointwise;
	struct soft__op op;
	struct soft__graph *graph; /* also set for engines, configurations and plans */
	struct soft__engine engine;
	struct soft__knob knob;
	struct soft__device device;
	bool has_handle;               /* of plans */
	cudnnBackendDescriptor_t real; /* the descriptor in the real library (consult.c), or NULL */
};

/* Sets the calling thread's error message and returns the status st. */
cudnnStatus_t soft__refuse(cudnnStatus_t st, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the descriptor of a handle. Ends the process unless the descriptor was created and has not been destroyed. */
struct soft__descriptor *soft__live(cudnnBackendDescriptor_t d, const char *function);
struct soft__descriptor *soft__descriptor_create(cudnnBackendDescriptorType_t kind);
/* Called when the program destroys the descriptor. Its memory is freed when nothing refers to it any more. */
void soft__descriptor_destroy(struct soft__descriptor *d);
void soft__descriptor_drop(struct soft__descriptor *d);
int soft__descriptors(void);

void soft__graph_keep(struct soft__descriptor *d, struct soft__graph *g);
void soft__graph_drop(struct soft__graph *g);

/* ---- attribute.c ------------------------------------------------------------------------------------ */

size_t soft__attribute_bytes(cudnnBackendAttributeType_t t);
cudnnStatus_t soft__set(struct soft__descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			int64_t n, const void *values);
cudnnStatus_t soft__get(struct soft__descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			int64_t room, int64_t *n, void *values);
/* Returns the value of an attribute, or NULL if it is not set. */
const struct soft__value *soft__find(const struct soft__descriptor *d, cudnnBackendAttributeName_t name);
struct soft__descriptor *soft__ref(const struct soft__descriptor *d, cudnnBackendAttributeName_t name);
int64_t soft__integer(const struct soft__descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise);
double soft__real(const struct soft__descriptor *d, cudnnBackendAttributeName_t name, double otherwise);

/* ---- tensor.c, operation.c, graph.c: finalization --------------------------------------------------- */

cudnnStatus_t soft__finalize(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_tensor(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_window(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_pointwise(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_conv_op(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_pointwise_op(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_statistics_op(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_graph(struct soft__descriptor *d);
int soft__pointwise_inputs(cudnnPointwiseMode_t mode);
bool soft__is_backward(cudnnPointwiseMode_t mode);
bool soft__is_conv(cudnnBackendDescriptorType_t kind);
int64_t soft__count(const struct soft__tensor *t);
/* Returns the number of bytes from the beginning of the first to the end of the last element. */
size_t soft__span_bytes(const struct soft__tensor *t);

/* ---- engine.c --------------------------------------------------------------------------------------- */

enum { SOFT__MAX_ENGINES = 16 };
/* Writes the engines that can compute the graph to `out`, best first, and returns their number. */
int soft__heuristic(const struct soft__graph *g, cudnnBackendHeurMode_t mode, struct soft__engine *out);
cudnnStatus_t soft__finalize_device(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_heuristic(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_engine(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_knob(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_config(struct soft__descriptor *d);
cudnnStatus_t soft__finalize_plan(struct soft__descriptor *d);
cudnnStatus_t soft__results(struct soft__descriptor *heuristic, int64_t room, int64_t *n,
			    cudnnBackendDescriptor_t *configs);
cudnnStatus_t soft__config_engine(struct soft__descriptor *config, cudnnBackendDescriptor_t engine);
cudnnStatus_t soft__config_knobs(struct soft__descriptor *config, int64_t room, int64_t *n,
				 cudnnBackendDescriptor_t *knobs);

/* ---- execute.c, interpret.c ------------------------------------------------------------------------- */

cudnnStatus_t soft__finalize_pack(struct soft__descriptor *d);
cudnnStatus_t soft__execute(cudaStream_t stream, const struct soft__descriptor *plan,
			    const struct soft__descriptor *pack);
struct soft__run {
	struct soft__graph *graph;
	struct soft__engine engine;
	void *memory[SOFT__MAX_TENSORS]; /* [i] is NULL if tensor i is virtual */
	void *workspace;
};
/* Computes the graph on tensors in device memory. */
void soft__interpret(const struct soft__run *r);

/* Load and store the values of a tensor as fp32 with channels last: [dims[0], dims[2], dims[3], dims[1]]. */
void soft__load(const struct soft__tensor *t, const void *memory, float *values);
void soft__store(const struct soft__tensor *t, void *memory, const float *values);
/* Rounds the values to the type. */
void soft__round(cudnnDataType_t type, float *values, int64_t n);
void soft__round_tf32(float *values, int64_t n);

/* How an engine computes sums. */
struct soft__arithmetic {
	bool tf32, down_convert, reduced; /* inputs are rounded to tf32; inputs are rounded to fp16; partial sums are
					   * rounded to fp16 */
	bool wrong;                       /* the last product of a sum is missing */
	unsigned shift;                   /* position at which sums begin; it differs between executions of a
					   * nondeterministic engine */
};
/* `values` are those of x, w and y. The one that is the operation's result is overwritten. */
void soft__conv(const struct soft__op *op, const struct soft__arithmetic *a, float *const values[3]);
void soft__pointwise_run(const struct soft__op *op, float *const in[3], float *out);
void soft__statistics_run(const struct soft__op *op, const float *x, float *sum, float *square_sum);
/* c[m][n] += a[m][k] b[k][n], with each sum computed in the order of k. a_row and a_column are the distances between
 * the rows and between the columns of a; b_row and c_row are the distances between the rows of b and of c. */
void soft__gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
		int64_t b_row, float *c, int64_t c_row);

/* ---- consult.c: the real library -------------------------------------------------------------------- */

/* Returns whether SOFT_CUDNN_REAL requests the real library. The first call opens the library. */
bool soft__consults(void);
size_t soft__consult_version(void);
cudnnStatus_t soft__consult_create(struct soft__descriptor *d);
void soft__consult_destroy(struct soft__descriptor *d);
cudnnStatus_t soft__consult_set(struct soft__descriptor *d, cudnnBackendAttributeName_t name,
				cudnnBackendAttributeType_t type, int64_t n, const void *values);
cudnnStatus_t soft__consult_finalize(struct soft__descriptor *d);
/* Writes configurations of the real library to `configs`, with the known properties of their engines. */
cudnnStatus_t soft__consult_results(struct soft__descriptor *heuristic, int64_t room, int64_t *n,
				    cudnnBackendDescriptor_t *configs);
/* Writes the knobs of a configuration to `knobs`. */
cudnnStatus_t soft__consult_knobs(struct soft__descriptor *config, int64_t room, int64_t *n,
				  cudnnBackendDescriptor_t *knobs);
cudnnStatus_t soft__consult_engine(struct soft__descriptor *config, struct soft__descriptor *engine);
cudnnStatus_t soft__consult_workspace(struct soft__descriptor *plan, int64_t *bytes);
/* Reads the index and the notes of a finalized engine. */
cudnnStatus_t soft__consult_notes(struct soft__descriptor *engine);

/* execute.c: fails if the engine was broken by soft_cudnn_set_broken. */
cudnnStatus_t soft__check_broken(int64_t engine, int stage);
bool soft__is_wrong(int64_t engine);
/* Around the making of a plan. */
void soft__begin_finalizing(int64_t engine);
void soft__end_finalizing(void);

#endif
