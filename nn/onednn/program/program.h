/* A compiled program of the oneDNN engine. A compilation builds it in the following passes.
 *
 *   fuse     (compile/fuse.h)     decides which nodes of the graph are computed together; fills value.fusion and
 *                                 value.fold
 *   lower    (compile/compile.h)  lets primitives choose layouts and appends tasks; fills the rest of value
 *   memory   (nn/memory_plan.h)   assigns every buffer a place in the arena; fills buffer.offset and memory
 *   bind     (program/bind.h)     turns buffers and parameters of tasks into addresses; fills task.ptr, task.call and
 *                                 binding
 *   run      (run/run.h)          executes the tasks; uses pass
 *
 * A program is a list of tasks, first those of the forward pass, then those of the backward pass. Tasks refer to
 * buffers by number. A buffer is live from the first to the last task that has it as an argument. docs/ONEDNN.md has an
 * overview. */
#ifndef CT_NN_ONEDNN_PROGRAM_PROGRAM_H
#define CT_NN_ONEDNN_PROGRAM_PROGRAM_H

#include "nn/engine_impl.h"
#include "nn/memory_plan.h"
#include "nn/onednn/dnnl/shim.h"

/* Used instead of the number of a node or buffer that does not exist. */
enum { ONEDNN_NONE = -1 };

/* Alignment of the arena and of the buffers in it, in bytes. */
enum { ONEDNN_ALIGN = 64 };

/* The memory for the values of all programs of a context. Because only one program runs at a time, this memory is only
 * as large as the largest program needs. */
struct onednn_memory {
	char *arena;
	size_t bytes;
	/* The programs that are bound to the arena. */
	struct onednn_program *programs;
};

/* The data that a net of this engine has in addition to struct ct_net. */
struct onednn_net {
	/* [n_params] The layout of each parameter in the arenas. NULL until the first program has chosen it. */
	const ct_dnnl_desc **layout;
	struct onednn_memory *memory; /* [contexts] */
};

/* The kinds of memory in which an argument of a task may be. */
enum onednn_where {
	ONEDNN_BUFFER,  /* a buffer of the program */
	ONEDNN_PARAM,   /* a parameter */
	ONEDNN_GRAD,    /* the gradient of a parameter */
	ONEDNN_RUNNING, /* running statistics: a buffer of the graph */
	ONEDNN_NOTHING  /* the argument is absent and its pointer is NULL */
};

struct onednn_ref {
	enum onednn_where where;
	int id; /* index of the program's buffer, of the parameter, or of the graph's buffer */
};

#define ONEDNN_BUF(i) ((struct onednn_ref){ONEDNN_BUFFER, (i)})

/* What a task does. The arguments of each kind are in brackets, in order. */
enum onednn_kind {
	ONEDNN_CALL,          /* runs a primitive of oneDNN */
	ONEDNN_INPUT,         /* converts and normalizes the batch [out] */
	ONEDNN_DROPOUT_MASK,  /* draws the mask of a dropout node as plain fp32 [out]; `n`: elements of a row */
	ONEDNN_MULTIPLY,      /* [out, a, b] out = a * b */
	ONEDNN_ROW_FACTORS,   /* draws one factor for each row, for a drop path node [out] */
	ONEDNN_SCALE_ROWS,    /* [out, in, factors] multiplies each row by its factor; `n`: elements of a row */
	ONEDNN_RUNNING_STATS, /* [running mean, running variance, batch mean, batch variance] updates the running ones
			       */
	ONEDNN_NORM, /* batch norm by ctrain's kernels: enum onednn_norm_arg; `n` is 1 if the statistics already
		      * exist */
	ONEDNN_NORM_BACKWARD,       /* enum onednn_norm_arg */
	ONEDNN_NORM_PLAIN,          /* batch norm by the loops of the reference engine: enum onednn_norm_arg */
	ONEDNN_NORM_PLAIN_BACKWARD, /* enum onednn_norm_arg */
	ONEDNN_NORM_POOL,           /* batch norm, ReLU and max pool by ctrain's kernels: enum onednn_pool_arg */
	ONEDNN_NORM_POOL_BACKWARD,  /* enum onednn_pool_arg */
	ONEDNN_WINOGRAD,            /* `n`: enum ct_conv_pass; arguments are looked up by enum ct_dnnl_arg */
	ONEDNN_WEIGHTS_GEMM,        /* [out, x, dy, scratch] gradient of weights by kernels/weights_gemm.h */
	ONEDNN_FOLD_CHECK, /* decides whether folded weights are still valid: the first 6 of enum onednn_fold_arg */
	ONEDNN_FOLD,       /* computes folded weights: enum onednn_fold_arg */
	ONEDNN_LOSS,       /* [logits, gradient of the sum of the row losses (in training)] */
	ONEDNN_LOSS_SCALE, /* [out, in] out = in * the scale of the backward pass */
	ONEDNN_OUTPUT,     /* [in] copies the output of a stage to the caller; `n`: elements of a row */
	ONEDNN_OUTPUT_GRADIENT, /* [out] copies the gradient of the output from the caller; `n`: elements of the batch
				 */
	ONEDNN_INPUT_GRADIENT,  /* [in] copies the gradient of the input to the caller; `n`: elements of the batch */
	ONEDNN_SLICE_DONE       /* the gradient of parameter `n` is final */
};

enum onednn_norm_arg {
	ONEDNN_NORM_X,
	ONEDNN_NORM_GAMMA,
	ONEDNN_NORM_BETA,
	/* The means, followed by the number of values on all ranks as a double. NORM_PLAIN: all statistics. */
	ONEDNN_NORM_MEAN,
	ONEDNN_NORM_VARIANCE,
	ONEDNN_NORM_PARTIALS,
	ONEDNN_NORM_MASK,
	ONEDNN_NORM_FACTOR,
	ONEDNN_NORM_Y, /* backward: dy */
	/* Forward */
	ONEDNN_NORM_RESIDUAL,
	ONEDNN_NORM_RUNNING_MEAN,
	ONEDNN_NORM_RUNNING_VARIANCE,
	/* Backward */
	ONEDNN_NORM_DX = ONEDNN_NORM_RESIDUAL,
	ONEDNN_NORM_DRESIDUAL,
	ONEDNN_NORM_DY2,
	ONEDNN_NORM_DGAMMA,
	ONEDNN_NORM_DBETA
};

enum onednn_pool_arg {
	ONEDNN_POOL_X,
	ONEDNN_POOL_GAMMA,
	ONEDNN_POOL_BETA,
	ONEDNN_POOL_MEAN,
	ONEDNN_POOL_VARIANCE,
	ONEDNN_POOL_PICKED,
	ONEDNN_POOL_TAPS,
	ONEDNN_POOL_PARTIALS,
	ONEDNN_POOL_Y, /* backward: dy */
	/* Backward */
	ONEDNN_POOL_DX,
	ONEDNN_POOL_DGAMMA,
	ONEDNN_POOL_DBETA
};

enum onednn_fold_arg {
	ONEDNN_FOLD_WEIGHTS,
	ONEDNN_FOLD_BIAS,
	ONEDNN_FOLD_GAMMA,
	ONEDNN_FOLD_BETA,
	ONEDNN_FOLD_MEAN,
	ONEDNN_FOLD_VARIANCE,
	/* ONEDNN_FOLD only */
	ONEDNN_FOLD_WEIGHTS_OUT,
	ONEDNN_FOLD_BIAS_OUT
};

struct onednn_arg {
	enum ct_dnnl_arg arg; /* for primitives and ONEDNN_WINOGRAD; other tasks use the order of the arguments */
	struct onednn_ref ref;
};

struct onednn_task {
	enum onednn_kind kind;
	int node; /* the node of the graph to which the task belongs */
	/* Lowering */
	const ct_dnnl_prim *prim; /* of ONEDNN_CALL */
	struct onednn_arg args[CT_DNNL_MAX_ARGS];
	int n_args;
	size_t n;        /* A number whose meaning depends on the kind. */
	bool when_stale; /* The task runs only if the node's folded weights must be computed. */
	/* Binding */
	ct_dnnl_call *call;           /* of ONEDNN_CALL */
	float *ptr[CT_DNNL_MAX_ARGS]; /* kinds other than ONEDNN_CALL: addresses of the arguments, in the order of
				       * args */
};

/* The nodes that are computed together with this one. The initial choice depends only on the graph; lowering may undo a
 * fusion that no implementation supports. */
struct onednn_fusion {
	int user; /* The only node that reads this value; NONE if there are several. */
	int relu; /* Layer, norm or sum: the ReLU that is applied in the same pass. */
	int pool; /* Norm in training: the max pool that is computed in the same pass as the norm and its ReLU. */
	int join; /* Norm in training: the sum that is computed in the same pass as the norm. The norm then runs at the
		   * position of the sum. */
	int norm; /* Sum: the norm that is computed in the same pass. */
	int path; /* Sum: the drop path between this norm and the sum. */
};

/* Where the value of a node is stored. */
struct onednn_layout {
	/* The node in whose memory the value is stored: this node itself, or another one if they share memory (flatten,
	 * dropout in evaluation). NONE if the value is never stored because the node is fused into its user. */
	int root;
	/* The layout of a root, and of a node that is fused into its user. */
	const ct_dnnl_desc *desc;
	/* The buffer of a root. */
	int buffer;
	/* Evaluation: a later convolution adds its result to this value in place. */
	bool overwritten;
	/* The backward pass writes the value's own gradient over it. */
	bool gone;
};

/* The implementation of a norm: oneDNN, kernels/norm_kernels.h, or the loops of the reference engine (nn/host). */
enum onednn_norm { ONEDNN_NORM_LIBRARY, ONEDNN_NORM_OWN, ONEDNN_NORM_REFERENCE };

/* What the forward pass of a node keeps for its backward pass. */
struct onednn_kept {
	const ct_dnnl_prim *prim;     /* The primitive of the forward pass. */
	const ct_dnnl_desc *src_desc; /* The layout in which the node reads its input. */
	int src;                      /* The buffer of this input. */
	enum onednn_norm norm;        /* Norm: its implementation. */
	bool nhwc;                    /* Norm by ctrain's kernels: the layout of its input. */
	int mean, variance;           /* Norm in training: buffers of the batch statistics. */
	int workspace; /* Max pool, and norm with ReLU: oneDNN's workspace. Norm in a sum: one bit per element, which is
			* set if the ReLU keeps the element. */
	int mask;      /* Dropout: factors in the layout of the value. Drop path: one factor for each row. */
	int picked;    /* Norm with pool: the inputs at the maxima. */
	int taps;      /* Norm with pool: the positions of the maxima in their kernels. */
};

/* The gradient of a value, in the layout of the value. Only root nodes have a gradient, which is the sum of the
 * gradients from all users. */
struct onednn_gradient {
	bool needed;        /* This node or a node that it depends on has a parameter. */
	int buffer;         /* NONE until the first user has passed its gradient. */
	bool shared;        /* The buffer is also the gradient of another value and must not be written in place. */
	int second;         /* A second gradient. The norm that reads both adds it to the first one. */
	bool second_shared; /* Like `shared`, for the second gradient. */
	bool gone;          /* The gradient of the node's input overwrites it. */
};

/* Evaluation: a batch norm that is folded into the weights of the convolution before it. All fields except `absorbed`
 * belong to the convolution. */
struct onednn_folding {
	int norm;      /* The norm that is folded into the weights. */
	int sum;       /* The sum that the convolution computes in place. */
	int residual;  /* The other addend of the sum. */
	int last;      /* The sum, or else the norm: the node whose value the convolution computes. */
	bool absorbed; /* Norm or sum: a convolution computes this node. */
	/* Running */
	bool stale;               /* The folded weights do not match the parameters, or do not exist yet. */
	bool made;                /* Folded weights exist in the arena. */
	uint64_t params, buffers; /* Generations of the arenas from which the folded weights were computed. */
};

struct onednn_value {
	struct onednn_fusion fusion;
	struct onednn_layout layout;
	struct onednn_kept kept;
	struct onednn_gradient gradient;
	struct onednn_folding fold;
};

/* The memory to which the tasks are bound. */
struct onednn_binding {
	const void *input_at;        /* The memory from which the users of the input read. */
	const ct_arena *grads_at;    /* The gradient arena that backward tasks write. */
	struct onednn_program *next; /* The next program in the net's list. */
};

/* The current or the last forward and backward pass. */
struct onednn_pass {
	const struct ct_batch *batch;
	struct ct_batch last; /* A copy of the batch, because the backward pass may draw masks again. */
	struct ct_metrics *metrics;
	const struct ct_backward_opts *opts;
	bool not_finite; /* A norm has found NaN or infinity. */
	int tasks_done;  /* The number of tasks that the last pass has run. It determines which values can be read. */
};

struct onednn_program {
	ct_program base;
	ct_dnnl *dnnl;
	struct onednn_value *values; /* [n_nodes] */
	struct ct_plan_buffer *buffers;
	int n_buffers, cap_buffers;
	struct onednn_task *tasks;
	int n_tasks, cap_tasks;
	int n_forward;    /* The number of tasks of the forward pass. */
	int input;        /* The buffer of the input. */
	int dlogits;      /* The buffer of the gradient of the logits. */
	bool recomputing; /* Lowering appends forward tasks a second time, so the statistics of norms already exist. */
	struct ct_memory_plan memory;
	struct onednn_binding binding;
	struct onednn_pass pass;
};

/* Append a buffer or a task. The caller must fill in the task through *out before the next call. */
enum ct_status ct__onednn_buffer(struct onednn_program *p, size_t bytes, int *out) CT_MUST_CHECK;
enum ct_status ct__onednn_task(struct onednn_program *p, enum onednn_kind kind, int node,
			       struct onednn_task **out) CT_MUST_CHECK;
/* Appends an argument to the task and extends the lifetime of its buffer to include the task. */
void ct__onednn_arg(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, struct onednn_ref ref);
void ct__onednn_arg_buffer(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, int buffer);

struct onednn_net *ct__onednn_net(const struct onednn_program *p);
struct onednn_memory *ct__onednn_memory(const struct onednn_program *p);
const struct ct_node *ct__onednn_node(const struct onednn_program *p, int id);
/* Returns the element type of values and their gradients. Logits are always fp32. */
enum ct_dnnl_type ct__onednn_type(const struct onednn_program *p);
/* Gets the dimensions [N,C,H,W] of a node. */
void ct__onednn_dims(const struct onednn_program *p, int id, int dims[4]);
/* ct__onednn_owner returns the node that owns the result of `id`: the last of the nodes that are computed with it.
 * ct__onednn_result returns the buffer of this result. */
int ct__onednn_owner(const struct onednn_program *p, int id);
int ct__onednn_result(const struct onednn_program *p, int id);

#endif
