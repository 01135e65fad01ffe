/* Inside of the oneDNN engine. For engine_onednn*.c only.
 *
 * A program is a list of tasks, forward then backward, over buffers known by number. Compiling walks the graph once
 * (engine_onednn_forward.c), lets the primitives choose layouts, and appends tasks; then backwards
 * (engine_onednn_backward.c). A buffer lives from its first to its last task; the plan (engine_onednn_plan.c) lays all
 * of them into an arena so that living buffers never overlap, and binds tasks to addresses. Running is a loop over the
 * tasks. All programs of a net have one arena, as large as the largest of them needs: one runs at a time.
 *
 * Values. A node's value lies at its root: itself, or the node whose memory it shares (flatten, dropout in evaluation).
 * A node whose only user is a ReLU computed in the same pass has no value of its own (fused). Gradients lie at roots,
 * in the layout of the value, and several users' gradients are summed there. */
#ifndef CT_NN_ONEDNN_ONEDNN_IMPL_H
#define CT_NN_ONEDNN_ONEDNN_IMPL_H

#include "nn/engine_impl.h"
#include "nn/onednn/dnnl_shim.h"
#include "nn/onednn/kernels.h"
#include "nn/onednn/norm_pool.h"

struct onednn_engine {
	ct_engine base;
	ct_dnnl *dnnl;
};

struct onednn_net {
	const ct_dnnl_desc **layout; /* [n_params]; NULL until the first program has chosen */
	char *arena;
	size_t arena_bytes;
	struct onednn_program *programs; /* bound to the arena */
};

/* Where the bytes of a task's argument are. */
enum onednn_where { ONEDNN_BUFFER, ONEDNN_PARAM, ONEDNN_GRAD, ONEDNN_RUNNING, ONEDNN_NOTHING };
struct onednn_ref {
	enum onednn_where where;
	int id; /* buffer of the program, parameter, parameter, buffer of the graph */
};

#define ONEDNN_BUF(i) ((struct onednn_ref){ONEDNN_BUFFER, (i)})

struct onednn_buffer {
	size_t bytes, offset;
	int first, last; /* tasks */
	int lost;        /* the first task that overwrites it after its last use, INT32_MAX: none */
};

enum onednn_kind {
	ONEDNN_CALL,          /* a primitive */
	ONEDNN_INPUT,         /* [0] out: the batch as plain fp32 */
	ONEDNN_DROPOUT_MASK,  /* [0] out: mask of the task's node, plain */
	ONEDNN_MULTIPLY,      /* [0] out = [1] * [2] */
	ONEDNN_ROW_FACTORS,   /* [0] out: the factor of each row, for the drop path node */
	ONEDNN_SCALE_ROWS,    /* [0] out = [1] * the row's factor [2]; `n`: elements of a row */
	ONEDNN_RUNNING_STATS, /* [0] running mean, [1] running variance, [2] batch mean, [3] batch variance */
	ONEDNN_NORM,          /* our kernels: enum onednn_norm_arg; `n`: 1 when the statistics are there already */
	ONEDNN_NORM_BACKWARD,
	ONEDNN_NORM_PLAIN, /* the reference kernels, where statistics of all ranks meet a layout that ours do not know */
	ONEDNN_NORM_PLAIN_BACKWARD,
	ONEDNN_NORM_POOL, /* norm, ReLU, max pool: enum onednn_norm_pool_arg */
	ONEDNN_NORM_POOL_BACKWARD,
	ONEDNN_WINOGRAD,   /* `n`: enum ct_winograd_pass; arguments by name */
	ONEDNN_FOLD_CHECK, /* engine_onednn_fold.c */
	ONEDNN_FOLD,
	ONEDNN_LOSS,       /* [0] logits, [1] gradient of the sum of the row losses (training) */
	ONEDNN_LOSS_SCALE, /* [0] out = [1] * scale */
	ONEDNN_SLICE_DONE  /* parameter `n` has its gradient */
};

enum onednn_norm_pool_arg {
	NORM_POOL_X,
	NORM_POOL_GAMMA,
	NORM_POOL_BETA,
	NORM_POOL_MEAN,
	NORM_POOL_VARIANCE,
	NORM_POOL_PICKED,
	NORM_POOL_TAPS,
	NORM_POOL_PARTIALS,
	NORM_POOL_Y, /* backward: dy */
	NORM_POOL_DX,
	NORM_POOL_DGAMMA,
	NORM_POOL_DBETA
};

/* What is not there is ONEDNN_NOTHING. */
enum onednn_norm_arg {
	NORM_X,
	NORM_GAMMA,
	NORM_BETA,
	NORM_MEAN, /* and behind the means, as a double, the number of values of all ranks; plain: all statistics */
	NORM_VARIANCE,
	NORM_PARTIALS,
	NORM_MASK,
	NORM_FACTOR,
	NORM_Y, /* backward: dy */
	NORM_RESIDUAL,
	NORM_RUNNING_MEAN,
	NORM_RUNNING_VARIANCE,
	NORM_DX = NORM_RESIDUAL,
	NORM_DRESIDUAL,
	NORM_DY2,
	NORM_DGAMMA,
	NORM_DBETA
};

/* Which implementation a norm has. */
enum onednn_norm { NORM_LIBRARY, NORM_OWN, NORM_REFERENCE };

struct onednn_arg {
	enum ct_dnnl_arg arg;
	struct onednn_ref ref;
};

struct onednn_task {
	enum onednn_kind kind;
	int node;
	const ct_dnnl_prim *prim;
	ct_dnnl_call *call;
	struct onednn_arg args[CT_DNNL_MAX_ARGS];
	int n_args;
	float *ptr[CT_DNNL_MAX_ARGS]; /* of our own kernels, in the order of args */
	size_t n;
	bool when_stale; /* only when the node's folded weights have to be made */
};

struct onednn_value {
	int root;       /* -1: fused into its user */
	int fused_relu; /* the ReLU computed with this node, -1 */
	int fused_pool; /* the max pool computed with this node and its ReLU, -1 */
	int fused_add;  /* norm: the sum computed with this norm, -1 */
	int fused_norm; /* sum: that norm, -1, */
	int fused_path; /* and the drop path between the two, -1 */
	enum onednn_norm norm;
	int user;                 /* the only node that reads it, -1: several */
	bool needs_grad;          /* a parameter lies at or before it */
	const ct_dnnl_desc *desc; /* layout of a root or fused node */
	int buffer;               /* of a root */
	int grad;                 /* buffer; -1 while there is none */
	bool grad_shared;         /* the gradient of another value, too: not to be written in place */
	int grad2;                /* a second gradient, to be added by the norm that reads both; -1 */
	bool grad2_shared;
	bool value_gone;              /* overwritten in place by its own gradient */
	bool grad_gone;               /* overwritten in place by the gradient of its input */
	const ct_dnnl_prim *prim;     /* forward */
	const ct_dnnl_desc *src_desc; /* what it reads, */
	int src;                      /* and where, for backward */
	int workspace;                /* of max pool and of norm with ReLU; the bits of a join's ReLU; -1 */
	int mean, variance;           /* norm in training */
	int mask;                     /* dropout: in the layout of the value; drop path: one of each row */
	int picked, taps;             /* norm with pool */
	int folded_norm;              /* evaluation, convolution: the norm in its weights, -1, */
	int sum, residual;            /* the sum computed with it and the other addend, -1, */
	int fused_into;               /* and the last of these, -1 */
	bool absorbed;                /* computed by such a convolution */
	bool overwritten;             /* by such a sum */
	bool stale, fold_made;        /* folded weights, and of what they were made */
	uint64_t fold_hash;
};

struct onednn_program {
	ct_program base;
	ct_dnnl *dnnl;
	struct onednn_value *values; /* [n_nodes] */
	struct onednn_buffer *buffers;
	int n_buffers, cap_buffers;
	struct onednn_task *tasks;
	int n_tasks, cap_tasks;
	int n_forward;  /* tasks of the forward pass */
	int tasks_done; /* of the last passes: for what `read` may see */
	int input;      /* buffer of the input, and what its users are bound to now */
	const void *input_at;
	int dlogits;
	float *grads_at;                     /* the arena the backward tasks are bound to */
	struct onednn_program *next;         /* of the net's */
	size_t arena_bytes, unplanned_bytes; /* what it needs, with the plan and without */
	const struct ct_batch *batch;        /* of the pass that runs */
	struct ct_batch last;                /* its copy: the backward pass may draw masks again */
	struct ct_metrics *metrics;
	bool not_finite;  /* a norm has met NaN or infinity */
	bool recomputing; /* compiles forward tasks a second time: norms have their statistics */
	const struct ct_backward_opts *opts;
};

/* engine_onednn_plan.c: building blocks of compilation */
enum ct_status ct__onednn_buffer(struct onednn_program *p, size_t bytes, int *out) CT_MUST_CHECK;
/* Appends a task; the caller fills it through *out before the next call. */
enum ct_status ct__onednn_task(struct onednn_program *p, enum onednn_kind kind, int node,
			       struct onednn_task **out) CT_MUST_CHECK;
void ct__onednn_arg(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, struct onednn_ref ref);
void ct__onednn_arg_buffer(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, int buffer);
/* Appends a call of `prim` and gives it a scratchpad when it wants one. */
enum ct_status ct__onednn_call(struct onednn_program *p, int node, const ct_dnnl_prim *prim,
			       struct onednn_task **out) CT_MUST_CHECK;
/* The same bytes when the layouts are equal, else a reorder into a new buffer. */
enum ct_status ct__onednn_relayout(struct onednn_program *p, int node, struct onednn_ref from,
				   const ct_dnnl_desc *from_desc, const ct_dnnl_desc *to_desc,
				   struct onednn_ref *out) CT_MUST_CHECK;
/* A prim, or CT_UNSUPPORTED naming the node. */
enum ct_status ct__onednn_prim(struct onednn_program *p, int node, const struct ct_dnnl_spec *spec,
			       const ct_dnnl_prim **out) CT_MUST_CHECK;
/* The prim of the spec with the best implementation, the earliest of equals. */
enum ct_status ct__onednn_choose(struct onednn_program *p, int node, const struct ct_dnnl_spec *specs, int n,
				 const ct_dnnl_prim **out) CT_MUST_CHECK;
/* ct__onednn_relayout to what `prim` wants as `arg`. */
enum ct_status ct__onednn_fit(struct onednn_program *p, int node, const ct_dnnl_prim *prim, enum ct_dnnl_arg arg,
			      struct onednn_ref from, const ct_dnnl_desc *from_desc,
			      struct onednn_ref *out) CT_MUST_CHECK;
/* The value of a root seen with these dimensions: its own bytes when possible, else made plain first. */
enum ct_status ct__onednn_view(struct onednn_program *p, int node, int root, int ndims, const int *dims,
			       const ct_dnnl_desc **desc, int *buffer) CT_MUST_CHECK;
/* Lays out the arena, makes the net's large enough and binds all tasks. What other programs had there is lost. */
enum ct_status ct__onednn_bind(struct onednn_program *p) CT_MUST_CHECK;
void ct__onednn_unbind(struct onednn_program *p);
/* Before a forward pass: what is in the arena is this program's from now on. */
enum ct_status ct__onednn_take_arena(struct onednn_program *p) CT_MUST_CHECK;
/* Points backward tasks at another gradient arena, the users of the input at other bytes. */
enum ct_status ct__onednn_bind_grads(struct onednn_program *p, float *grads) CT_MUST_CHECK;
enum ct_status ct__onednn_bind_input(struct onednn_program *p, const void *x) CT_MUST_CHECK;
void *ct__onednn_at(const struct onednn_program *p, struct onednn_ref ref);

/* engine_onednn_forward.c, engine_onednn_backward.c */
enum ct_status ct__onednn_compile_forward(struct onednn_program *p) CT_MUST_CHECK;
enum ct_status ct__onednn_compile_backward(struct onednn_program *p) CT_MUST_CHECK;
enum ct_status ct__onednn_compile_node(struct onednn_program *p, int id) CT_MUST_CHECK; /* forward */
/* engine_onednn_fold.c */
void ct__onednn_plan_folding(struct onednn_program *p);
/* *best is NULL, and the norm not folded, where there is no prim with a bias. */
enum ct_status ct__onednn_choose_folded(struct onednn_program *p, int conv, const struct ct_dnnl_spec *wanted,
					const ct_dnnl_desc *any_src, const ct_dnnl_desc *any_weights,
					const ct_dnnl_prim **best) CT_MUST_CHECK;
/* Norm, sum and ReLU become part of the convolution; the last of them owns the result. */
void ct__onednn_absorb(struct onednn_program *p, int conv);
enum ct_status ct__onednn_own_folded(struct onednn_program *p, int conv, const ct_dnnl_desc *desc) CT_MUST_CHECK;
/* Tasks that make weights in the layout `want` and bias. */
enum ct_status ct__onednn_fold(struct onednn_program *p, int conv, const ct_dnnl_desc *arena, const ct_dnnl_desc *want,
			       struct onednn_ref *weights, struct onednn_ref *bias) CT_MUST_CHECK;
void ct__onednn_fold_run(struct onednn_program *p, const struct onednn_task *t);
/* engine_onednn_recompute.c: before the backward pass of node `id`, what is to be there once more for it. */
enum ct_status ct__onednn_recompute(struct onednn_program *p, int id) CT_MUST_CHECK;
/* engine_onednn_forward_ops.c, engine_onednn_backward_ops.c: operations other than convolution and linear */
/* Of values and of their gradients; fp32 for the logits in any case. */
enum ct_dnnl_type ct__onednn_type(const struct onednn_program *p);
const struct ct_node *ct__onednn_node(const struct onednn_program *p, int id);
/* Stride, padding and dilation of a convolution; nothing of a linear layer. */
struct ct_dnnl_spec ct__onednn_layer_spec(const struct onednn_program *p, int id);
void ct__onednn_dims(const struct onednn_program *p, int id, int dims[4]); /* [N,C,H,W] */
/* Gives the node's result a buffer in the layout of its prim; what is fused into the node owns it then. */
enum ct_status ct__onednn_own_result(struct onednn_program *p, int id, const ct_dnnl_desc *desc) CT_MUST_CHECK;
int ct__onednn_result(const struct onednn_program *p, int id);
int ct__onednn_owner(const struct onednn_program *p, int id);
/* The value of `id` as [N,C,H,W], or as [N,C] when that is what it is or when it has been flattened. */
enum ct_status ct__onednn_view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc,
				       int *buffer) CT_MUST_CHECK;
enum ct_status ct__onednn_forward_op(struct onednn_program *p, int id) CT_MUST_CHECK;
/* A gradient of input `in` of `node` lies in `buffer`: brings it into the layout of the input's root and adds it there.
 * shared: somebody else's gradient is in the same buffer. */
enum ct_status ct__onednn_give_grad(struct onednn_program *p, int node, int in, int buffer, const ct_dnnl_desc *desc,
				    bool shared) CT_MUST_CHECK;
/* Where a gradient of the same layout as the value `v` may go: over v's own gradient unless others read it. */
enum ct_status ct__onednn_in_place(struct onednn_program *p, struct onednn_value *v, int *out) CT_MUST_CHECK;
enum ct_status ct__onednn_slice_done(struct onednn_program *p, int id, int param) CT_MUST_CHECK;
enum ct_status ct__onednn_backward_op(struct onednn_program *p, int id) CT_MUST_CHECK;

/* engine_onednn_fusion.c: which nodes are computed together, as far as the graph tells; layouts may undo it. A fresh state
 * for every value. */
void ct__onednn_plan_fusion(struct onednn_program *p);

/* engine_onednn_norm.c */
enum ct_status ct__onednn_norm_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* The sum `id` with the norm fused into it. */
enum ct_status ct__onednn_join_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Whether the backward pass of the root reads two gradients at once. */
bool ct__onednn_norm_adds(const struct onednn_program *p, int root);
enum ct_status ct__onednn_norm_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_join_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* engine_onednn_norm_library.c: norms by oneDNN's primitives, and those with ReLU and max pool by our kernels */
enum ct_status ct__onednn_norm_library_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_library_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* done: false when layout or processor do not suit it. */
enum ct_status ct__onednn_norm_pool_forward(struct onednn_program *p, int id, bool *done) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_pool_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
struct ct_norm_pool_shape ct__onednn_norm_pool_shape(const struct onednn_program *p, int id);
/* engine_onednn_drop_path.c */
enum ct_status ct__onednn_drop_path_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_drop_path_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* engine_onednn_norm_run.c */
enum ct_status ct__onednn_norm_run(struct onednn_program *p, const struct onednn_task *t) CT_MUST_CHECK;

/* engine_onednn_winograd.c: both passes of a convolution; the choice follows from shape, processor and the layout that the
 * weights have */
bool ct__onednn_winograd_fits(const struct onednn_program *p, int id);
enum ct_status ct__onednn_winograd_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
void ct__onednn_winograd_run(const struct onednn_program *p, const struct onednn_task *t);

#endif
