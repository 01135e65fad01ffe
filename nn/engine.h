/* Engines compile a graph for a device and a batch size, and run it.
 *
 *   engine   a back end, opened on a device with a number of compute threads: "onednn", or "ref" (plain loops, the reference)
 *   net      one model on one engine: flat arenas of parameters, gradients and buffers, in the engine's own layout
 *   program  a net compiled for a batch size N and a mode (training or evaluation); the programs of a net share its arenas
 *
 * Work is posted. Each function that runs a program or changes an arena posts its work to the engine's stream and
 * returns. The stream runs the work in order (base/device/device.h). On the CPU device, the work is done when the
 * function returns. Results stay on the device until they are taken: ct_net_take_metrics waits for them,
 * ct_net_post_loss does not wait. If posted work fails, the next wait returns the error.
 *
 * Arenas. Parameter i occupies the slice [offset, offset+n) of the parameter arena, and the same slice of the
 * gradient arena and of every optimizer-state arena. n may exceed the number of logical elements, because blocked
 * layouts are padded with zeros. Every optimizer leaves the padding zero. Slices are aligned to 64 bytes, in the
 * order in which the backward pass completes them (the last layer first). Therefore a reduce bucket is a contiguous
 * range of the gradient arena. The net chooses the layout for opts.batch, and all programs of the net use it. Arenas
 * are device memory: host code reads and writes them through mirrors (base/device/arena.h), ct_net_export and
 * ct_net_import. For the CPU engines, arena elements are fp32.
 *
 * The programs of a net also share the memory of their activations. When another program runs or is created, the
 * values that a forward pass keeps for the backward pass and for ct_program_read are lost. After that, backward fails
 * with CT_BUG and ct_program_read with CT_UNSUPPORTED.
 *
 * A training step posts the step arguments (ct_net_post_step_args), then the forward pass of a batch, then the
 * backward pass. During the backward pass, grad_ready is called for each slice of gradients as it becomes final in
 * the order of the stream. The gradients are those of (scale * sum of the losses of all rows). With scale = 1 /
 * (global batch size), the sum of the gradients over ranks is the gradient of the mean loss. A step allocates no
 * memory. An object may be used by one thread only. */
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
/* PYTORCH: weights and biases are uniform in (-1/sqrt(fan_in), +1/sqrt(fan_in)). KAIMING: weights of convolutions are
 * normal with variance 2/fan_out, and their biases are 0; linear layers are initialized as with PYTORCH. torchvision
 * initializes its ResNets like this. */
enum ct_init { CT_INIT_PYTORCH, CT_INIT_KAIMING };
/* BF16: activations, their gradients and the inputs of convolutions are bfloat16. Parameters, gradients of
 * parameters, optimizer states, batch-norm statistics and logits stay fp32, and sums are computed in fp32.
 * Convolutions that use Winograd filtering compute in fp32, with bfloat16 inputs and outputs. FP16: the same in IEEE
 * half precision, with a scaled loss. TF32: fp32, but the inputs of matrix products are rounded to a mantissa of 10
 * bits. FP16 and TF32 are for GPUs; the CPU engines refuse them. */
#define CT_PRECISIONS(X)             \
	X(CT_PRECISION_FP32, "fp32") \
	X(CT_PRECISION_BF16, "bf16") \
	X(CT_PRECISION_FP16, "fp16") \
	X(CT_PRECISION_TF32, "tf32")
enum ct_precision { CT_PRECISIONS(CT_CHOICE_ID) };
/* Activation checkpointing: which values the backward pass recomputes instead of keeping them (Chen et al., "Training
 * deep nets with sublinear memory cost", 2016). NORMS: norms between two layers, and the ReLUs after these norms.
 * They are recomputed from the output of the first layer, which is kept anyway. BLOCKS: all values inside residual
 * blocks. Results are bit-identical. The engine "ref" keeps all values. */
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
	/* For synchronized batch norm: posts the sum of v[0..n) over all ranks to the stream, in the same order on
	 * each rank. Posted work may access v. It is called in the forward and backward pass in TRAIN mode. If it is
	 * NULL, each rank uses the statistics of its own rows. */
	enum ct_status (*sync)(void *user, double *v, size_t n, ct_stream *s);
	void *sync_user;
};

struct ct_batch {
	int n; /* valid rows; n == N for TRAIN programs, 0 <= n <= N for EVAL programs */
	/* uint8 [n,H,W,C] or float [n,C,H,W]. This array and those below are borrowed until the posted forward and
	 * backward pass are done. Before using the memory again, record an event after them and wait for it. */
	const void *x;
	const int32_t *labels;   /* [n], for softmax cross-entropy; the data set has checked that they are in range */
	const float *targets;    /* [n,C], for MSE */
	const int32_t *labels_b; /* [n] second label of mixed rows (mixup, cutmix), or NULL */
	const float *mix;        /* [n] weight of `labels` in the loss of a row; that of labels_b is 1 - mix */
	uint64_t first;          /* position of row 0 in the global batch; dropout masks depend on it and on the step */
};

/* The values that change from step to step. They are stored in device memory, where posted work reads them, so that
 * work can be recorded once and posted again for other steps (ct_recording, base/device/device.h). Everything else is
 * an argument of the posted work and must be equal in these steps: the program, n, first, scale, accumulate, and the
 * addresses of the batch. For a given rank, they are equal in all full steps with the same number of micro-batches. A
 * remainder step has other row counts, so it is posted without a recording. */
struct ct_step_args {
	uint64_t step;   /* optimizer step of the run; dropout masks depend on it */
	uint64_t update; /* number of the update, from 1; ct_optim_begin sets it and lr */
	double lr;
	uint64_t unused[5];
};
_Static_assert(sizeof(struct ct_step_args) == 64, "the arguments of a step are 64 bytes");

/* Sums over rows. To get means, add them over batches and ranks and divide by count. */
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
	bool accumulate; /* add to the existing gradients instead of replacing them */
	/* Called for each slice, in slice order, when the work that makes the gradient of slice i final has been
	 * posted. Work that is posted later sees the final gradient. May be NULL. If it fails, backward stops and
	 * returns its error. */
	enum ct_status (*grad_ready)(void *user, int slice);
	void *user;
};

struct ct_net_memory { /* bytes */
	size_t params, grads, buffers, activations, workspace, activations_unplanned;
};

/* "auto" selects the first engine of onednn and ref that is available. Fails with CT_UNSUPPORTED if the engine is
 * unknown or unavailable; the message gives the reason, and the hint lists the available engines. */
enum ct_status ct_engine_open(const char *name, ct_device *device, int threads, ct_engine **out) CT_MUST_CHECK;
void ct_engine_close(ct_engine *e);
ct_stream *ct_engine_stream(const ct_engine *e);    /* owned by the engine */
const char *ct_engine_version(const ct_engine *e);  /* "oneDNN 2.6.3 avx512_core_bf16" */
const char *ct_precision_name(enum ct_precision p); /* "fp32" ... */
/* Fails with CT_UNSUPPORTED if the engine cannot compute in p. The message gives the reason ("this CPU has no
 * bfloat16 instructions (avx512_bf16)"), and the hint what to use instead. */
enum ct_status ct_engine_check_precision(const ct_engine *e, enum ct_precision p) CT_MUST_CHECK;
/* Returns engine i of the registry, for `ctrain info`. Returns false past the end. why is "" if the engine is
 * available. */
bool ct_engine_at(size_t i, const char **name, bool *available, char *why, size_t why_len);

/* Borrows the engine and the graph, which must outlive the net. */
enum ct_status ct_net_create(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts,
			     ct_net **out) CT_MUST_CHECK;
void ct_net_destroy(ct_net *net);
const ct_graph *ct_net_graph(const ct_net *net);
ct_engine *ct_net_engine(const ct_net *net);
/* Replaces the gradient arena with an arena of the caller, for example in the shared memory of a communicator.
 * `grads` is borrowed and must outlive the net. It must be a zeroed CT_F32 arena of ct_net_arena_elems elements,
 * aligned to 256 bytes. Call this before the first program is created. */
enum ct_status ct_net_bind_grads(ct_net *net, ct_arena *grads) CT_MUST_CHECK;

size_t ct_net_arena_elems(const ct_net *net);
ct_arena *ct_net_params(ct_net *net);
ct_arena *ct_net_grads(ct_net *net); /* NULL if opts.train is false */
int ct_net_n_slices(const ct_net *net);
const struct ct_slice *ct_net_slice(const ct_net *net, int i); /* in backward completion order */
/* The running statistics in the logical layout, in the order of the graph's buffers: [sum of ct_graph_buffer(i)->n]. */
ct_arena *ct_net_buffers(ct_net *net);
size_t ct_net_buffers_elems(const ct_net *net);

/* Sets initial values. They depend only on the seed and the name of the parameter, so they are the same for every
 * engine and world size. Running means are set to 0, running variances to 1. Waits. */
enum ct_status ct_net_init(ct_net *net, enum ct_init init, uint64_t seed) CT_MUST_CHECK;
/* Convert parameter `param` between the logical fp32 layout and the mirror of an arena with the layout of the
 * parameters (parameters, gradients or optimizer state). One other thread may call ct_net_export while the net
 * computes. */
enum ct_status ct_net_export(const ct_net *net, const struct ct_mirror *arena, int param, float *logical) CT_MUST_CHECK;
enum ct_status ct_net_import(const ct_net *net, struct ct_mirror *arena, int param, const float *logical) CT_MUST_CHECK;
/* Waits, returns the metrics of all forward passes since the last call of this function or of ct_net_post_loss, and
 * resets them. */
enum ct_status ct_net_take_metrics(ct_net *net, struct ct_metrics *out) CT_MUST_CHECK;
/* Posts work that stores a sum in element i of `scalars` (CT_F32) and resets the metrics. The sum is the loss of all
 * forward passes since the last call of this function or of ct_net_take_metrics. */
enum ct_status ct_net_post_loss(ct_net *net, ct_arena *scalars, size_t i) CT_MUST_CHECK;
/* Computes the hexadecimal SHA-256 of the logical bytes of all parameters, in the order of their names
 * (weights_digest in metrics.jsonl). Waits. */
enum ct_status ct_net_digest(const ct_net *net, char hex[65]) CT_MUST_CHECK;
/* Computes a hexadecimal digest of slices and layout. The arenas of ranks can be summed only if the digest is equal
 * on all of them. */
void ct_net_layout_digest(const ct_net *net, char hex[65]);
/* activations is the size of the memory that all programs share, which is what the largest program compiled so far
 * needs. activations_unplanned is the size that they would need without sharing. The engine "ref" does not share
 * memory between programs. */
void ct_net_memory(const ct_net *net, struct ct_net_memory *out);

/* Posts the arguments of a step. Work that is posted from now until the next call belongs to this step. args is
 * pinned host memory of the device, and is borrowed until the copy is done. Before the first call, all arguments are
 * 0. */
enum ct_status ct_net_post_step_args(ct_net *net, const struct ct_step_args *args) CT_MUST_CHECK;

enum ct_status ct_program_create(ct_net *net, int n, enum ct_mode mode, ct_program **out) CT_MUST_CHECK;
/* Does the same for another graph whose parameters and buffers have the same names and sizes, for example for another
 * image size. The graph is borrowed until the program is destroyed. Fails with CT_BUG if the parameters or buffers
 * differ. */
enum ct_status ct_program_create_for(ct_net *net, const ct_graph *g, int n, enum ct_mode mode,
				     ct_program **out) CT_MUST_CHECK;
void ct_program_destroy(ct_program *p);
/* Returns how many values and gradients of values a step copies from one layout to another. A good choice of layouts
 * needs few copies. */
int ct_program_reorders(const ct_program *p);
/* Both post their work. forward adds the metrics of the rows to those of the net. In TRAIN mode, it also updates the
 * running statistics. */
enum ct_status ct_program_forward(ct_program *p, const struct ct_batch *b) CT_MUST_CHECK;
enum ct_status ct_program_backward(ct_program *p, const struct ct_backward_opts *opts) CT_MUST_CHECK;
/* Waits, and reads the value of a node from the last forward pass or, if `gradient` is set, its gradient from the
 * last backward pass, as logical fp32 [N,C,H,W]. For tests and tools. Fails with CT_UNSUPPORTED if the value was
 * fused into another operation or its memory has been reused. The logits (in[0] of the loss) can always be read. */
enum ct_status ct_program_read(ct_program *p, int node, bool gradient, float *out) CT_MUST_CHECK;
/* ct_program_profile turns profiling on or off and resets the times. ct_program_times returns the seconds that the
 * forward and backward pass of a node have taken since then. It fails with CT_BUG if profiling is off. */
void ct_program_profile(ct_program *p, bool on);
enum ct_status ct_program_times(const ct_program *p, int node, double *forward_s, double *backward_s) CT_MUST_CHECK;

#endif
