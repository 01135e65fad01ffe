/* Engines compile a graph for a device and a batch size, and run it.
 *
 *   engine   a back end, opened on a device with a given number of compute threads: "onednn", or "ref" (the reference,
 *            written as plain loops)
 *   net      one model on one engine: flat arenas of parameters, gradients and buffers, in the engine's own layout
 *   program  a net compiled for a batch size N and a mode (training or evaluation); the programs of a net share its
 *            arenas
 *
 * Work is posted. Each function that runs a program or changes an arena posts its work to the engine's stream and
 * returns. The stream runs the work in order (base/device/device.h). On the CPU device, the work is done when the
 * function returns. Results stay on the device until the caller requests them: ct_net_take_metrics waits for them,
 * whereas ct_net_post_loss does not wait. If posted work fails, the next wait returns the error.
 *
 * Arenas. Parameter i occupies the slice [offset, offset+n) of the parameter arena, and the same slice of the gradient
 * arena and of every optimizer-state arena. n may exceed the number of logical elements, because blocked layouts are
 * padded with zeros. Every optimizer keeps the padding zero. Slices are aligned to 64 bytes. They are stored in the
 * order in which the backward pass completes their gradients (the last layer first), so that a reduce bucket is a
 * contiguous range of the gradient arena. If opts.reduce_type is a 16-bit type, the slices of the weights of linear and
 * convolution layers are stored first, in this order, and those of biases and batch norms after them. The slices of
 * nodes without trainable parameters (ct_graph_freeze) are stored last, and the gradient arena ends before them. The
 * net chooses the layout for opts.batch, and all programs of the net use it. Arenas are device memory: host code reads
 * and writes them through mirrors (base/device/arena.h), ct_net_export and ct_net_import. For the CPU engines, arena
 * elements are fp32.
 *
 * The programs of a net also share the memory of their activations. When another program runs or is created, the values
 * that a forward pass has kept for the backward pass and for ct_program_read are lost. From then on,
 * ct_program_backward fails with CT_BUG, and ct_program_read fails with CT_UNSUPPORTED. A net with several contexts
 * (opts.contexts) has such a memory for each context, and a program belongs to one context. A stage of a pipeline uses
 * one context for each micro-batch whose backward pass has not run yet.
 *
 * A training step posts the step arguments (ct_net_post_step_args), then the forward pass of a batch, then the backward
 * pass. During the backward pass, grad_ready is called for each slice of gradients as soon as all work that contributes
 * to the slice has been posted. The pass computes the gradients of scale * (sum of the row losses). With scale = 1 /
 * (global batch size), the sum of the gradients over ranks is the gradient of the mean loss. A step allocates no
 * memory. An object may be used by one thread only. */
#ifndef CT_NN_ENGINE_H
#define CT_NN_ENGINE_H

#include "base/choice.h"
#include "base/device/arena.h"
#include "base/image_row.h"
#include "nn/graph/graph.h"
#include "nn/net_plan.h"

typedef struct ct_engine ct_engine;
typedef struct ct_net ct_net;
typedef struct ct_program ct_program;

enum ct_mode { CT_TRAIN, CT_EVAL };
enum ct_input_kind { CT_INPUT_U8_NHWC, CT_INPUT_F32_NCHW };
/* PYTORCH: weights and biases are uniform in (-1/sqrt(fan_in), +1/sqrt(fan_in)). KAIMING: weights of convolutions are
 * normal with variance 2/fan_out, and their biases are 0; linear layers are initialized as with PYTORCH. KAIMING is the
 * initialization of torchvision's ResNets. */
enum ct_init { CT_INIT_PYTORCH, CT_INIT_KAIMING };
/* BF16: activations, their gradients and the inputs of convolutions are bfloat16. Parameters and their gradients,
 * optimizer states, batch-norm statistics and logits stay fp32, and sums are computed in fp32. Convolutions that use
 * Winograd filtering compute in fp32, with bfloat16 inputs and outputs. FP16: as BF16, but in IEEE half precision and
 * with a scaled loss. TF32: fp32, but the inputs of matrix products are rounded to a mantissa of 10 bits. FP16 and TF32
 * are for GPUs; the CPU engines reject them. AUTO: the caller must replace it by one of the others. */
#define CT_PRECISIONS(X)             \
	X(CT_PRECISION_FP32, "fp32") \
	X(CT_PRECISION_BF16, "bf16") \
	X(CT_PRECISION_FP16, "fp16") \
	X(CT_PRECISION_TF32, "tf32") \
	X(CT_PRECISION_AUTO, "auto")
enum ct_precision { CT_PRECISIONS(CT_CHOICE_ID) };
/* Activation checkpointing: the values that are recomputed in the backward pass instead of being kept (Chen et al.,
 * "Training deep nets with sublinear memory cost", 2016). NORMS: norms between two layers, and the ReLUs after these
 * norms. They are recomputed from the output of the first layer, which is kept anyway. BLOCKS: all values inside
 * residual blocks. Results are bit-identical. The engine "ref" keeps all values. */
#define CT_RECOMPUTES(X) X(CT_RECOMPUTE_NONE, "none") X(CT_RECOMPUTE_NORMS, "norms") X(CT_RECOMPUTE_BLOCKS, "blocks")
enum ct_recompute { CT_RECOMPUTES(CT_CHOICE_ID) };

/* How an engine chooses among several implementations of an operation. OFF: as its library suggests. ON: by measuring
 * their time on the device. AUTO: as ON, if the choice can be kept for the next run. CACHED: without measuring, but
 * with the choices that other runs have kept. The CPU engines ignore it; their plans are chosen before nets are created
 * (nn/tune_plan.h). */
#define CT_AUTOTUNES(X)           \
	X(CT_AUTOTUNE_OFF, "off") \
	X(CT_AUTOTUNE_CACHED, "cached") X(CT_AUTOTUNE_AUTO, "auto") X(CT_AUTOTUNE_ON, "on")
enum ct_autotune { CT_AUTOTUNES(CT_CHOICE_ID) };

struct ct_net_opts {
	int batch; /* rows on each rank in a full micro-batch */
	enum ct_input_kind input;
	float mean[4], std[4]; /* per channel: x = (u8/255 - mean)/std; U8 input only */
	uint64_t seed;         /* dropout masks */
	/* [n_class_weights] or NULL: factors of the losses of the classes in TRAIN programs with softmax cross-entropy,
	 * which then has this number of classes. Copied. */
	const float *class_weights;
	int n_class_weights;
	bool train;          /* false: no gradient arena, evaluation programs only */
	int contexts;        /* 0: one */
	bool input_gradient; /* backward passes also compute the gradient of the input */
	enum ct_precision precision;
	/* The element type in which the gradients of the weights of linear and convolution layers are summed over
	 * ranks: CT_F32, CT_BF16 or CT_F16. Other gradients are summed in fp32. */
	enum ct_dtype reduce_type;
	enum ct_recompute recompute;
	enum ct_autotune autotune;
	/* Called while operations are measured, first with 0 and last with done == total. May be NULL. */
	void (*tuning)(void *user, size_t done, size_t total);
	void *tuning_user;
	/* The results of plans that are not ctrain's own are compared with direct sums before they are used. Programs
	 * fail with CT_DEVICE if they differ. Only the engine cuda has such plans. */
	bool self_check;
	/* How convolutions are computed. NULL: ct_engine_plan decides. Copied. */
	const struct ct_net_plan *plan;
	bool nondeterministic; /* sums may be computed in an order that changes from run to run, if that is faster */
	/* Callback for synchronized batch norm: posts an all-reduce (sum) of v[0..n) over all ranks to the stream. All
	 * ranks post these sums in the same order. The posted work may access v. The callback is called in the forward
	 * and the backward pass in TRAIN mode. If it is NULL, each rank uses the statistics of its own rows. */
	enum ct_status (*sync)(void *user, double *v, size_t n, ct_stream *s);
	void *sync_user;
};

struct ct_batch {
	int n; /* valid rows; n == N for TRAIN programs, 0 <= n <= N for EVAL programs */
	/* uint8 [n,H,W,C] or float [n,C,H,W]. This array and those below are borrowed until the posted forward and
	 * backward passes are done. Before reusing the memory, record an event after both passes and wait for it. */
	const void *x;
	/* [n] or NULL. If it is not NULL, x and the labels below are NULL: the device computes them from the data of
	 * ct_net_bind_data and from these rows. */
	const struct ct_image_row *rows;
	const int32_t *labels;   /* [n], for softmax cross-entropy; the data set has checked that they are in range */
	const float *targets;    /* [n,C], for MSE */
	const int32_t *labels_b; /* [n] second label of mixed rows (mixup, cutmix), or NULL */
	const float *mix;        /* [n] weight of `labels` in the loss of a row; that of labels_b is 1 - mix */
	float *y; /* [n,C,H,W] host memory, if the graph ends with CT_OP_OUTPUT: posted work writes the output there */
	uint64_t first; /* position of row 0 in the global batch; dropout masks depend on it and on the step */
	/* The arrays are in device memory and were checked (ct_program_check_batch) before they were copied to it. If
	 * false, they are in memory that the host can read. */
	bool on_device;
};

/* Images in device memory, from which programs compute the rows of a batch. */
struct ct_net_data {
	const void *samples; /* uint8 [n,H,W,C], borrowed until the net is destroyed */
	uint32_t n;
	uint8_t fill[4]; /* value of erased pixels, per channel */
};

/* The values that change from step to step. They are stored in device memory, where posted work reads them, so that
 * work can be recorded once and posted again for other steps (ct_recording, base/device/device.h). Everything else is
 * an argument of the posted work and must be the same in all steps that use a recording: the program, n, first, scale,
 * accumulate, and the addresses of the batch. On a given rank, these arguments are the same in all full steps with the
 * same number of micro-batches. A remainder step has different row counts, so it is posted without a recording. */
struct ct_step_args {
	uint64_t step;   /* optimizer step of the run; dropout masks depend on it */
	uint64_t update; /* number of the update, from 1; ct_optim_begin sets it and lr */
	double lr;
	uint64_t norms; /* 1: the update computes the norms of the gradient and of the weights, too (CT_UPDATE_NORM) */
	uint64_t unused[4];
};
_Static_assert(sizeof(struct ct_step_args) == 64, "the arguments of a step are 64 bytes");

/* Sums over rows. To get means, add the sums of all batches and ranks, and divide by the total count. */
struct ct_metrics {
	double loss;
	int64_t count, top1, top5;
};

struct ct_slice {
	size_t offset, n;    /* in elements of the arena */
	int param;           /* id of the parameter in the graph */
	enum ct_dtype dtype; /* in which the gradient is summed over ranks */
};

struct ct_backward_opts {
	float scale;
	bool accumulate; /* add to the existing gradients instead of replacing them */
	/* [n,C,H,W], with all n rows of the program. If the graph ends with CT_OP_OUTPUT, the pass begins with dy, the
	 * gradient of the output, and `scale` has no effect. If opts.input_gradient was set, the gradient of the input
	 * is written to dx. Both are host memory (ct_device_host_alloc), which posted work uses. */
	const float *dy;
	float *dx;
	/* Called for each slice, when the work that makes the gradient of slice i final has been posted. Slices of the
	 * same dtype are final in slice order. Work that is posted later sees the final gradient. May be NULL. If the
	 * callback fails, the backward pass stops and returns the error. */
	enum ct_status (*grad_ready)(void *user, int slice);
	void *user;
};

struct ct_net_memory { /* bytes */
	size_t params, grads, buffers, activations, workspace, activations_unplanned;
};

/* "auto" selects the first engine that is available and supports the device. Fails with CT_UNSUPPORTED if the engine is
 * unknown or unavailable, but with CT_DEVICE if the device is a GPU; the message gives the reason, and the hint lists
 * the available engines. */
enum ct_status ct_engine_open(const char *name, ct_device *device, int threads, ct_engine **out) CT_MUST_CHECK;
void ct_engine_close(ct_engine *e);
ct_stream *ct_engine_stream(const ct_engine *e);    /* owned by the engine */
const char *ct_engine_version(const ct_engine *e);  /* "oneDNN 2.6.3 avx512_core_bf16" */
const char *ct_precision_name(enum ct_precision p); /* "fp32" ... */
/* Fails with CT_UNSUPPORTED if the engine cannot compute in p. The message gives the reason ("this CPU has no bfloat16
 * instructions (avx512_bf16)"), and the hint names an alternative. */
enum ct_status ct_engine_check_precision(const ct_engine *e, enum ct_precision p) CT_MUST_CHECK;
/* Fails with CT_UNSUPPORTED if the engine cannot compute a node of g in this precision. The message names the node and
 * the operation, and the hint what can compute it. ct_net_create calls it. */
enum ct_status ct_engine_check_graph(const ct_engine *e, const ct_graph *g, enum ct_precision p) CT_MUST_CHECK;
/* Does the same without opening the engine `name` ("auto" for the first one that supports devices of this kind), and
 * checks the precision as well. */
enum ct_status ct_engine_check_model(const char *name, ct_device *device, const ct_graph *g,
				     enum ct_precision p) CT_MUST_CHECK;
/* Returns whether the engine can compute batches from images in device memory. */
bool ct_engine_gathers(const ct_engine *e);
/* Gets engine i of the registry, for `ctrain info`. Returns false if there is no engine i. `why` is set to the reason
 * why the engine is not available, or to its version if it is available. For the version, an engine may look at the
 * processor, so limit the instructions (base/cpu/features.h) before. */
bool ct_engine_at(size_t i, const char **name, bool *available, char *why, size_t why_len);

/* Plans (nn/net_plan.h). Only engines that compute nets by plans have them; others ignore opts.plan.
 *
 * ct_engine_plan chooses a plan for a net with these options, without measuring the net: from the instructions that the
 * processor has and, where these do not decide, from a short measurement of their speed. ct_engine_plan_in does the
 * same in a given layout. Both need an engine that has plans. *out is owned by the caller. */
bool ct_engine_has_plans(const ct_engine *e);
enum ct_status ct_engine_plan(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts,
			      struct ct_net_plan *out) CT_MUST_CHECK;
enum ct_status ct_engine_plan_in(ct_engine *e, enum ct_plan_layout layout, const ct_graph *g,
				 const struct ct_net_opts *opts, struct ct_net_plan *out) CT_MUST_CHECK;
/* Fails with CT_UNSUPPORTED if the engine cannot compute the net by this plan: if the graph does not have a convolution
 * of the plan, or this processor cannot compute it with the method of the plan. */
enum ct_status ct_engine_check_plan(const ct_engine *e, const struct ct_net_plan *p, const ct_graph *g,
				    const struct ct_net_opts *opts) CT_MUST_CHECK;

/* Returns whether the engine, which has plans, can compute a pass of the convolution `node` with a method. */
bool ct_engine_can_compute(const ct_engine *e, const ct_graph *g, int node, const struct ct_net_opts *opts,
			   enum ct_plan_layout layout, enum ct_conv_pass pass, enum ct_conv_method method);

/* Borrows the engine and the graph, which must outlive the net. */
enum ct_status ct_net_create(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts,
			     ct_net **out) CT_MUST_CHECK;
void ct_net_destroy(ct_net *net);
const ct_graph *ct_net_graph(const ct_net *net);
ct_engine *ct_net_engine(const ct_net *net);
/* Replaces the gradient arena with an arena that the caller provides, for example in the shared memory of a
 * communicator. `grads` is borrowed and must outlive the net. It must be a zeroed CT_F32 arena of ct_net_grad_elems
 * elements, aligned to 256 bytes. Call this before the first program is created. */
enum ct_status ct_net_bind_grads(ct_net *net, ct_arena *grads) CT_MUST_CHECK;

/* Lets the backward pass write the gradients of slices of opts.reduce_type, a 16-bit type, to `half` instead of to the
 * gradient arena, at the same offsets, if the engine computes them in this type. *writes is set to whether it does.
 * half is borrowed, must outlive the net, and has elements for all these slices. If *writes is true, backward passes
 * cannot accumulate (CT_BUG). Call this before the first program is created. */
enum ct_status ct_net_bind_half(ct_net *net, ct_arena *half, bool *writes) CT_MUST_CHECK;

/* Gives the programs of a mode the images that ct_batch.rows refers to. Copies *data. Fails with CT_UNSUPPORTED unless
 * ct_engine_gathers returns true. */
enum ct_status ct_net_bind_data(ct_net *net, enum ct_mode mode, const struct ct_net_data *data) CT_MUST_CHECK;

size_t ct_net_arena_elems(const ct_net *net);
ct_arena *ct_net_params(ct_net *net);
ct_arena *ct_net_grads(ct_net *net); /* NULL if opts.train is false */
int ct_net_n_slices(const ct_net *net);
/* The first slices, whose gradients are computed, and the elements of the gradient arena. */
int ct_net_n_trained(const ct_net *net);
size_t ct_net_grad_elems(const ct_net *net);
const struct ct_slice *ct_net_slice(const ct_net *net, int i); /* in backward completion order */
/* The running statistics in the logical layout, in the order of the graph's buffers: [sum of ct_graph_buffer(i)->n]. */
ct_arena *ct_net_buffers(ct_net *net);

/* Sets initial values. They depend only on the seed and the name of the parameter, so they are the same for every
 * engine and world size. Running means are set to 0, and running variances to 1. Waits until all values are set. */
enum ct_status ct_net_init(ct_net *net, enum ct_init init, uint64_t seed) CT_MUST_CHECK;
/* Convert parameter `param` between the logical fp32 layout and the mirror of an arena that has the layout of the
 * parameter arena (parameters, gradients or an optimizer state). One other thread may call ct_net_export while the net
 * computes. */
enum ct_status ct_net_export(const ct_net *net, const struct ct_mirror *arena, int param, float *logical) CT_MUST_CHECK;
enum ct_status ct_net_import(const ct_net *net, struct ct_mirror *arena, int param, const float *logical) CT_MUST_CHECK;
/* Waits for the posted work, gets the metrics of all forward passes since the last call of this function or of
 * ct_net_post_loss, and resets the metrics. */
enum ct_status ct_net_take_metrics(ct_net *net, struct ct_metrics *out) CT_MUST_CHECK;
/* Posts work that stores the total loss in element i of `scalars` (CT_F32) and resets the metrics. The total covers all
 * forward passes since the last call of this function or of ct_net_take_metrics. */
enum ct_status ct_net_post_loss(ct_net *net, ct_arena *scalars, size_t i) CT_MUST_CHECK;
/* Computes the hexadecimal SHA-256 of the logical bytes of all parameters, in the order of their names (weights_digest
 * in metrics.jsonl). Waits for the posted work. */
enum ct_status ct_net_digest(const ct_net *net, char hex[65]) CT_MUST_CHECK;
/* Computes the same from the values of all parameters in the logical layout, in the order of the graph. */
enum ct_status ct_values_digest(const ct_graph *g, const float *values, char hex[65]) CT_MUST_CHECK;
/* Computes a hexadecimal digest of the slices and the layout. Arenas can be summed over ranks only if all ranks have
 * the same digest. */
void ct_net_layout_digest(const ct_net *net, char hex[65]);
/* activations is the size of the memory that all programs share; it is the size that the largest program compiled so
 * far needs. activations_unplanned is the size that all programs that exist would need together if no memory were
 * shared. The programs of the engine "ref" share no memory, so activations and workspace are the sums of those that
 * exist. */
void ct_net_memory(const ct_net *net, struct ct_net_memory *out);

/* n elements of one type, and where to store them in another type. At least one of the types is CT_F32. */
struct ct_conversion {
	void *to;
	const void *from;
	size_t n;
	enum ct_dtype to_type, from_type; /* CT_F32, CT_BF16 or CT_F16 */
};
/* Posts a conversion to s, a stream of the engine's device. The elements are device memory and must not overlap.
 * Rounds to nearest, ties to even; values out of range become infinite. */
enum ct_status ct_net_post_conversion(const ct_net *net, const struct ct_conversion *c, ct_stream *s) CT_MUST_CHECK;

/* Posts the arguments of a step. Work that is posted after this call and before the next one belongs to this step. args
 * must be in pinned host memory of the device. It is borrowed until it has been copied. Before the first call, all
 * arguments are 0. */
enum ct_status ct_net_post_step_args(ct_net *net, const struct ct_step_args *args) CT_MUST_CHECK;

enum ct_status ct_program_create(ct_net *net, int n, enum ct_mode mode, ct_program **out) CT_MUST_CHECK;
/* Like ct_program_create, but for another graph whose parameters and buffers have the same names and sizes, for example
 * for another image size. The graph is borrowed until the program is destroyed. Fails with CT_BUG if the parameters or
 * buffers differ. */
enum ct_status ct_program_create_for(ct_net *net, const ct_graph *g, int n, enum ct_mode mode,
				     ct_program **out) CT_MUST_CHECK;
/* Like ct_program_create_for, but in the given context. */
enum ct_status ct_program_create_in(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
				    ct_program **out) CT_MUST_CHECK;
void ct_program_destroy(ct_program *p);
/* Both functions post their work. ct_program_forward adds the metrics of the rows to those of the net. In TRAIN mode,
 * it also updates the running statistics. */
enum ct_status ct_program_forward(ct_program *p, const struct ct_batch *b) CT_MUST_CHECK;
enum ct_status ct_program_backward(ct_program *p, const struct ct_backward_opts *opts) CT_MUST_CHECK;
/* Checks the batch as ct_program_forward does: the number of rows, the labels and the weights of mixed rows. */
enum ct_status ct_program_check_batch(const ct_program *p, const struct ct_batch *b) CT_MUST_CHECK;
/* Call this when a recording of a forward and a backward pass is posted again. Does what the two functions do besides
 * posting work: marks arenas as changed, for example. */
void ct_program_posted_again(ct_program *p);
/* Returns the number of programs that have been created. Recordings that were made before a program was created must
 * not be posted any more, because the memory that programs share may have moved. */
uint64_t ct_net_programs_made(const ct_net *net);
/* Waits for the posted work, and reads the value of a node from the last forward pass or, if `gradient` is set, its
 * gradient from the last backward pass, as logical fp32 [N,C,H,W]. For tests and tools. Fails with CT_UNSUPPORTED if
 * the value was fused into another operation or its memory has been reused. The logits (in[0] of the loss) can always
 * be read. */
enum ct_status ct_program_read(ct_program *p, int node, bool gradient, float *out) CT_MUST_CHECK;
/* Read the logits without waiting. ct_program_post_logits posts a copy of the logits of the last forward pass to
 * `host`, memory of ct_program_logits_bytes from ct_device_host_alloc. When the posted work has finished,
 * ct_program_take_logits converts the copy of a pass over `rows` rows to fp32 [rows,C,H,W]. ct_program_logits_bytes
 * returns 0 if the engine cannot do this. */
size_t ct_program_logits_bytes(const ct_program *p);
enum ct_status ct_program_post_logits(ct_program *p, void *host) CT_MUST_CHECK;
void ct_program_take_logits(const ct_program *p, int rows, const void *host, float *out);
/* ct_program_profile turns profiling on or off and resets the times. ct_program_times gets the total seconds that the
 * forward and the backward pass of a node have taken since the last reset. It fails with CT_BUG if profiling is off. On
 * an asynchronous device, it waits for the posted work. While profiling is on, passes must not be recorded. */
void ct_program_profile(ct_program *p, bool on);
/* A part of a pass, in the time of ct_now_ns. */
struct ct_program_span {
	int node;
	bool backward;
	int64_t begin_ns, end_ns;
};
/* While profiling is on, passes each part of a pass to fn, in order: on the CPU when it has run, and on an asynchronous
 * device in the next call of ct_program_times or ct_program_forward. There, a pass is taken to begin when it is posted,
 * so wait for a pass before you post the next one. NULL: none. */
void ct_program_trace(ct_program *p, void (*fn)(void *user, const struct ct_program_span *span), void *user);
bool ct_program_is_profiled(const ct_program *p);
enum ct_status ct_program_times(ct_program *p, int node, double *forward_s, double *backward_s) CT_MUST_CHECK;

#endif
