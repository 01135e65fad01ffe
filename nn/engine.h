/* Engines compile a graph for one device and batch size, and run it.
 *
 *   engine   a back end opened on a device with a number of compute threads: "ref" (plain loops, the reference), "onednn"
 *   net      one model on one engine: flat arenas of parameters, gradients and buffers in the engine's own layout
 *   program  the net compiled for a batch size N and a mode (training or evaluation); programs share the arenas
 *
 * Work is posted. Each function that runs a program or changes an arena posts its work to the engine's stream and returns; the work
 * happens in the order of the stream (base/device/device.h). On the CPU posting is doing. Results stay on the device until they are
 * taken: ct_net_take_metrics waits, ct_net_post_loss does not. Errors of posted work come out of the next wait.
 *
 * Arenas. Parameter i occupies the slice [offset, offset+n) of the parameter arena, and the same slice of the gradient
 * arena and of every optimizer-state arena. n may exceed the logical count (blocked layouts pad with zeros; padding
 * stays zero under every optimizer). Slices are ordered by backward completion (the last layer's first) and start on
 * 64-byte bounds, so a reduce bucket is a contiguous range of the gradient arena. The layout is chosen by the first
 * batch size (opts.batch) and kept by all programs of the net. Arenas are device memory: host code reads and writes them through
 * mirrors (base/device/arena.h), ct_net_export and ct_net_import. Arena elements are fp32 for the CPU engines.
 *
 * Programs of a net share the memory of their values as well: the values that a forward pass keeps for backward and for
 * ct_program_read are lost (CT_BUG, CT_UNSUPPORTED) when another program has run or been created.
 *
 * A step:  forward(batch);  backward(scale), which calls grad_ready for each slice as its gradient becomes final in stream order.
 * Gradients are of (scale * sum over rows of the row's loss): with scale = 1/global batch, the sum over ranks is the
 * gradient of the mean. A step allocates nothing. Objects belong to one thread. */
#ifndef CT_NN_ENGINE_H
#define CT_NN_ENGINE_H

#include "base/choice.h"
#include "base/device/arena.h"
#include "nn/graph/graph.h"

typedef struct ct_engine ct_engine;
typedef struct ct_net ct_net;
typedef struct ct_program ct_program;

enum ct_mode { CT_TRAIN, CT_EVAL };
enum ct_input_kind { CT_INPUT_U8_NHWC, CT_INPUT_F32_NCHW };
/* PyTorch: U(-1/sqrt(fan_in), +1/sqrt(fan_in)) for weight and bias. Kaiming: convolutions normal with variance
 * 2/fan_out and bias 0, linear layers as PyTorch's (torchvision's ResNets). */
enum ct_init { CT_INIT_PYTORCH, CT_INIT_KAIMING };
/* BF16: values, their gradients and convolution inputs in bfloat16; parameters, gradients of parameters, optimizer,
 * batch-norm statistics and logits stay fp32, and sums are fp32. Where a convolution is faster by Winograd's filtering, it
 * computes in fp32 between bfloat16 images. FP16: the same in IEEE half precision, with a scaled loss. TF32: fp32, but the
 * inputs of matrix products are rounded to a mantissa of 10 bits. FP16 and TF32 are for GPUs; the CPU engines refuse them. */
#define CT_PRECISIONS(X)             \
	X(CT_PRECISION_FP32, "fp32") \
	X(CT_PRECISION_BF16, "bf16") \
	X(CT_PRECISION_FP16, "fp16") \
	X(CT_PRECISION_TF32, "tf32")
enum ct_precision { CT_PRECISIONS(CT_CHOICE_ID) };
/* What is computed again in the backward pass instead of being kept (Chen et al., "Training deep nets with sublinear memory
 * cost", 2016). NORMS: norms and their ReLUs between two layers, from the first layer's output, which is kept anyway.
 * BLOCKS: all values inside residual blocks. Results are the same to the bit. The engine "ref" keeps all. */
#define CT_RECOMPUTES(X) X(CT_RECOMPUTE_NONE, "none") X(CT_RECOMPUTE_NORMS, "norms") X(CT_RECOMPUTE_BLOCKS, "blocks")
enum ct_recompute { CT_RECOMPUTES(CT_CHOICE_ID) };

struct ct_net_opts {
	int batch; /* rows per rank of a full micro-batch */
	enum ct_input_kind input;
	float mean[4], std[4]; /* per channel: x = (u8/255 - mean)/std; U8 input only */
	uint64_t seed;         /* dropout masks */
	bool train;            /* false: no gradient arena, evaluation programs only */
	enum ct_precision precision;
	enum ct_recompute recompute;
	/* Synchronized batch norm: posts the sum of v[0..n) over all ranks to the stream, in the same order on each rank; NULL:
	 * statistics of the rank's own rows. v is memory that work of the stream may use. Called in TRAIN forward and backward. */
	enum ct_status (*sync)(void *user, double *v, size_t n, ct_stream *s);
	void *sync_user;
};

struct ct_batch {
	int n; /* valid rows; TRAIN programs need n == their N, EVAL programs take 0 <= n <= N */
	/* uint8 [n,H,W,C] or float [n,C,H,W]. This and the arrays below are borrowed until the posted forward and backward are
	 * done: record an event after them and wait for it before the memory is used again. */
	const void *x;
	const int32_t *labels;   /* [n], softmax cross-entropy; in range (checked by the data set) */
	const float *targets;    /* [n,C], MSE */
	const int32_t *labels_b; /* [n] second label of mixed rows (mixup, cutmix), or NULL */
	const float *mix;        /* [n] weight of `labels`, 1 - mix that of labels_b; the loss is their weighted sum */
	uint64_t step;           /* optimizer step and */
	uint64_t first;          /* position of row 0 in the global batch: they key the dropout masks */
};

/* Sums over rows; add them over batches and ranks, divide at the end. */
struct ct_metrics {
	double loss;
	int64_t count, top1, top5;
};

struct ct_slice {
	size_t offset, n;    /* elements of an arena */
	int param;           /* id in the graph */
	enum ct_dtype dtype; /* of the gradient */
};

struct ct_backward_opts {
	float scale;
	bool accumulate; /* add to the gradients that are there instead of replacing them */
	/* Called in slice order when the work that makes slice i final has been posted: it is final in stream order (may be NULL). A
	 * failure ends backward and is returned. */
	enum ct_status (*grad_ready)(void *user, int slice);
	void *user;
};

struct ct_net_memory { /* bytes */
	size_t params, grads, buffers, activations, workspace, activations_unplanned;
};

/* "auto" takes the first available: onednn, ref. Unknown or absent: CT_UNSUPPORTED with the reason and what there is.
 * */
enum ct_status ct_engine_open(const char *name, ct_device *device, int threads, ct_engine **out) CT_MUST_CHECK;
void ct_engine_close(ct_engine *e);
const char *ct_engine_name(const ct_engine *e);
ct_device *ct_engine_device(const ct_engine *e);
ct_stream *ct_engine_stream(const ct_engine *e);                  /* owned by the engine */
const char *ct_engine_version(const ct_engine *e);                /* "oneDNN 2.6.3 avx512_core_bf16" */
const char *ct_precision_name(enum ct_precision p);               /* "fp32" ... */
bool ct_precision_find(const char *name, enum ct_precision *out); /* false: there is none of that name */
/* CT_UNSUPPORTED with the reason and what there is instead ("this CPU has no bfloat16 instructions (avx512_bf16)"). */
enum ct_status ct_engine_check_precision(const ct_engine *e, enum ct_precision p) CT_MUST_CHECK;
/* Registry walk for `ctrain info`: false past the end; why is "" when available. */
bool ct_engine_at(size_t i, const char **name, bool *available, char *why, size_t why_len);

/* Borrows engine and graph (they outlive the net). */
enum ct_status ct_net_create(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts,
			     ct_net **out) CT_MUST_CHECK;
void ct_net_destroy(ct_net *net);
const ct_graph *ct_net_graph(const ct_net *net);
ct_engine *ct_net_engine(const ct_net *net);
/* Replaces the gradient arena by one of the caller's (for example in a communicator's shared memory): CT_F32, zeroed,
 * ct_net_arena_elems elements, 256-byte aligned, outlives the net. Call it before the first program. */
enum ct_status ct_net_bind_grads(ct_net *net, ct_arena *grads) CT_MUST_CHECK;

size_t ct_net_arena_elems(const ct_net *net);
ct_arena *ct_net_params(ct_net *net);
ct_arena *ct_net_grads(ct_net *net); /* NULL for evaluation only */
int ct_net_n_slices(const ct_net *net);
const struct ct_slice *ct_net_slice(const ct_net *net, int i); /* in backward completion order */
/* Running statistics in the logical layout, one after the other: [sum of ct_graph_buffer(i)->n]. */
ct_arena *ct_net_buffers(ct_net *net);
size_t ct_net_buffers_elems(const ct_net *net);

/* Initial values, keyed by (seed, parameter name): the same for every engine and world size. Running mean 0, variance
 * 1. Waits. */
enum ct_status ct_net_init(ct_net *net, enum ct_init init, uint64_t seed) CT_MUST_CHECK;
/* Between the mirror of an arena with the parameters' layout (parameters, gradients or optimizer state) and the logical fp32 layout
 * of parameter `param`. ct_net_export may be called by one other thread while the net computes. */
enum ct_status ct_net_export(const ct_net *net, const struct ct_mirror *arena, int param, float *logical) CT_MUST_CHECK;
enum ct_status ct_net_import(const ct_net *net, struct ct_mirror *arena, int param, const float *logical) CT_MUST_CHECK;
/* The metrics of all forward passes since the last take or ct_net_post_loss; waits for them and starts from zero. */
enum ct_status ct_net_take_metrics(ct_net *net, struct ct_metrics *out) CT_MUST_CHECK;
/* Posts: element i of `scalars` (CT_F32) becomes the loss of all forward passes since the last call; the metrics start from zero. */
enum ct_status ct_net_post_loss(ct_net *net, ct_arena *scalars, size_t i) CT_MUST_CHECK;
/* Hex SHA-256 over the logical bytes of all parameters in name order (weights_digest of metrics.jsonl). Waits. */
enum ct_status ct_net_digest(const ct_net *net, char hex[65]) CT_MUST_CHECK;
/* Hex digest of slices and layout: equal on all ranks or their arenas can't be summed. */
void ct_net_layout_digest(const ct_net *net, char hex[65]);
/* activations: the most that all programs compiled so far had in common; without the plan: their sum. The engine "ref" shares
 * nothing. */
void ct_net_memory(const ct_net *net, struct ct_net_memory *out);

enum ct_status ct_program_create(ct_net *net, int n, enum ct_mode mode, ct_program **out) CT_MUST_CHECK;
/* The same for another graph of the same parameters and buffers (names and sizes), as for another image size; borrowed
 * until the program is destroyed. CT_BUG when they differ. */
enum ct_status ct_program_create_for(ct_net *net, const ct_graph *g, int n, enum ct_mode mode,
				     ct_program **out) CT_MUST_CHECK;
void ct_program_destroy(ct_program *p);
int ct_program_batch(const ct_program *p);
/* Copies of values and of their gradients from one layout to another in a step: what a good choice of layouts avoids. */
int ct_program_reorders(const ct_program *p);
/* Post. The metrics of the rows are added to the net's. A TRAIN forward updates running statistics. */
enum ct_status ct_program_forward(ct_program *p, const struct ct_batch *b) CT_MUST_CHECK;
enum ct_status ct_program_backward(ct_program *p, const struct ct_backward_opts *opts) CT_MUST_CHECK;
/* Value of a node of the last forward / its gradient of the last backward, logical fp32 [N,C,H,W]. Tests and tools;
 * values fused away or overwritten by the memory plan are CT_UNSUPPORTED. The logits (in[0] of the loss) can always
 * be read. Waits. */
enum ct_status ct_program_read(ct_program *p, int node, bool gradient, float *out) CT_MUST_CHECK;
/* Seconds spent by node since the last reset, forward and backward (profiling on: ct_program_profile). */
void ct_program_profile(ct_program *p, bool on);
enum ct_status ct_program_times(const ct_program *p, int node, double *forward_s, double *backward_s) CT_MUST_CHECK;

#endif
