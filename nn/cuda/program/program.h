/* A compiled program of the CUDA engine: a list of tasks, first those of the forward pass, then those of the backward
 * pass.
 *
 * A task is a kernel with its arguments, an execution plan of cuDNN, or a copy. The passes of a compilation are, in
 * order:
 *
 *     compile/           appends tasks. Arguments that point to memory of the program are references to buffers.
 *     nn/memory_plan.h   assigns a place in memory to each buffer, which is live from the first to the last task that
 *                        uses it
 *     program/bind.c     writes addresses into the arguments of tasks
 *     run/               posts the tasks to the engine's stream
 *
 * Activations are NHWC with the channels padded to a multiple of 16 bytes (kernels/kernels.h). The padding of
 * activations, parameters and gradients is zero. A flattened value keeps its spatial layout: the columns of the weights
 * of the next linear layer are permuted instead (nn/cuda/layout.c). */
#ifndef CT_NN_CUDA_PROGRAM_PROGRAM_H
#define CT_NN_CUDA_PROGRAM_PROGRAM_H

#include <cudnn_graph.h>

#include "nn/cuda/kernels/kernels.h"
#include "nn/cuda/tune/choice.h"
#include "nn/engine_impl.h"
#include "nn/memory_plan.h"

enum { CUDA_NONE = -1, CUDA_ALIGN = 256 /* of buffers, in bytes */ };

struct cuda_engine {
	ct_engine base;
	cudnnHandle_t cudnn;
	ct__cudnn_target *target;
	ct__cudnn_choices *choices; /* the graphs of all programs */
	size_t n_verified;          /* choices whose plans have been verified (tune/verify.h) */
	int level; /* 0: each node has its own tasks; 1: nodes are computed together (compile/fuse.c) */
};

/* The data that a net of this engine has in addition to struct ct_net. */
struct cuda_net {
	void *weights;               /* the parameter arena in the type of activations; NULL if that is fp32 */
	uint64_t weights_generation; /* generation of the parameter arena whose values are in `weights` */
	/* The memory for the values of the programs of each context, and the workspace of all programs. Only one
	 * program runs at a time, so each block is only as large as the program that needs most. */
	struct cuda_block {
		char *at;
		size_t bytes;
	} *memory, workspace;          /* memory [contexts] */
	int n_blocks;                  /* changes whenever a block moves */
	struct cuda_program *programs; /* the programs that use the memory */
};

enum cuda_kind {
	CUDA_COPY_IN, /* copies an array of the caller to the device */
	CUDA_COPY_OUT,
	CUDA_INPUT,
	CUDA_GATHER, /* CUDA_INPUT for a batch with `rows` */
	CUDA_INPUT_BACKWARD,
	CUDA_OUTPUT,
	CUDA_OUTPUT_BACKWARD,
	CUDA_PLAN,
	CUDA_MAP,
	CUDA_CONVERT,
	CUDA_LOSS_SCALE, /* CUDA_CONVERT with the scale of the backward pass */
	CUDA_BIAS,
	CUDA_BIAS_BACKWARD,
	CUDA_GROUPS, /* sets the gradients of weights outside of the groups to zero */
	CUDA_FOLD,   /* folds a norm into the weights of a layer; runs only if the folded weights are not valid */
	CUDA_NORM_SUMS,
	CUDA_NORM_SYNC, /* all-reduces the sums over all ranks */
	CUDA_NORM_FINALIZE,
	CUDA_NORM_RUNNING,
	CUDA_NORM_APPLY,
	CUDA_NORM_BACKWARD_SUMS,
	CUDA_NORM_BACKWARD_DATA,
	CUDA_POOL,
	CUDA_POOL_BACKWARD,
	CUDA_LOSS,
	CUDA_DROPOUT,
	CUDA_SLICE_DONE /* the gradient of a parameter is final */
};

/* The arrays of struct ct_batch, and those of struct ct_backward_opts. */
enum cuda_array {
	CUDA_BATCH_X,
	CUDA_BATCH_ROWS,
	CUDA_BATCH_LABELS,
	CUDA_BATCH_LABELS_B,
	CUDA_BATCH_MIX,
	CUDA_BATCH_TARGETS,
	CUDA_BATCH_Y,
	CUDA_BACKWARD_DY,
	CUDA_BACKWARD_DX
};

struct cuda_task {
	enum cuda_kind kind;
	int node; /* of the graph */
	union {
		struct {
			enum cuda_array array;
			size_t row_bytes;
			void *at; /* on the device */
		} copy;
		struct {
			const struct ct__cudnn_choice *choice;
			void *pointers[CT__CUDNN_MAX_TENSORS];
			ct__cudnn_pack *pack, *other; /* other: with the gradients in other_grads */
		} plan;
		struct {
			double *sums;
			size_t n;
		} sync;
		int param; /* CUDA_SLICE_DONE */
		struct ct__k_input_args input;
		struct ct__k_output_args output;
		struct ct__k_gather_args gather;
		struct ct__k_map_args map;
		struct ct__k_convert_args convert;
		struct ct__k_bias_args bias;
		struct ct__k_bias_backward_args bias_backward;
		struct ct__k_fold_args fold;
		struct ct__k_groups_args groups;
		struct ct__k_norm_args norm;
		struct ct__k_pool_args pool;
		struct ct__k_loss_args loss;
		struct ct__k_dropout_args dropout;
	};
};

/* A pointer argument of a task that is set by bind.c. */
struct cuda_reference {
	int task;
	size_t field; /* offset of the pointer in struct cuda_task */
	int buffer;   /* CUDA_NONE: the gradient of `param` */
	int param;
};

/* The gradient of a value is the sum of the gradients from its users. Buffers are CUDA_NONE until a user has written
 * them. */
struct cuda_gradient {
	int buffer;
	int second; /* a second part, which the tasks of the value's group add to the first one while they read both */
	bool shared,
		second_shared; /* the buffer is also the gradient of another value and must not be written in place */
	bool gone;             /* the tasks of the group have written over it */
};

/* The value of a node. Nodes that pass their input on unchanged (flatten, dropout in evaluation) share the value of
 * their input. */
struct cuda_value {
	int root;              /* the node that owns the value; the other members belong to the owner */
	struct ct_shape shape; /* as stored */
	int cp;                /* channels with padding */
	int users, user;     /* number of inputs of other nodes that are this value, and the node of the last of them */
	int buffer;          /* CUDA_NONE: not stored, because the node is computed together with its user */
	bool overwritten;    /* the value of the user is written over it */
	bool needs_gradient; /* of each node, not only of the owner */
	struct cuda_gradient gradient;
};

/* Nodes that are computed together, in this order: layer, norm, add, relu. Those that are not in the group are
 * CUDA_NONE. A group has the number of its last node, and only the value of this node is stored. A node that is
 * computed alone is a group of its own. */
struct cuda_group {
	int last; /* number of the group to which the node belongs; the other members are valid only in this group */
	int layer, norm, add, relu;
	int residual; /* if norm and add are in the group: the addend of `add` that is not in it */
};

struct cuda_program {
	ct_program base;
	enum ct_dtype type;        /* of activations */
	struct cuda_value *values; /* [n_nodes] */
	struct cuda_group *groups; /* [n_nodes] */
	struct cuda_norm {         /* buffers that the backward pass of a batch norm reads; no mask: CUDA_NONE */
		int stat, inverse, sums, mask;
	} *norms;                  /* [n_nodes] */
	int *taps;                 /* [n_nodes] buffers of the taps of max pools */
	int dlogits;               /* buffer of the gradient of the logits */
	int labels, labels_b, mix; /* buffers; labels_b and mix: CUDA_NONE in evaluation */
	struct ct_plan_buffer *buffers;
	struct cuda_task *tasks;
	struct cuda_reference *references;
	size_t n_buffers, buffers_cap, n_tasks, tasks_cap, n_references, references_cap;
	size_t n_forward; /* number of tasks of the forward pass */
	size_t workspace_bytes;
	struct ct_memory_plan plan;
	const ct_arena *bound_grads,
		*other_grads;      /* other_grads was bound before; accumulation alternates between two arenas */
	struct cuda_program *next; /* in the net's list */
	int bound_blocks;          /* n_blocks of the net when the tasks were bound */
	uint64_t first_row;        /* `first` of the batch of the last forward pass */
	size_t n_run;              /* number of tasks posted since the start of the last forward pass */
	ct_event **marks;          /* [n_tasks + 2] of run/profile.c; NULL before the first measured pass */
	int64_t posted_ns[2];      /* when the measured forward and backward pass were posted */
	size_t n_marked;           /* number of measured tasks whose times have not been collected */
	/* Evaluation: the arenas' generations of the parameters and statistics that have been folded into weights; 0:
	 * none. */
	uint64_t folded_params, folded_buffers;
};

/* build.c: append a buffer or a task. The pointer to a task is valid until the next task is added. */
enum ct_status ct__cuda_buffer(struct cuda_program *p, size_t bytes, int *out) CT_MUST_CHECK;
enum ct_status ct__cuda_task(struct cuda_program *p, int node, enum cuda_kind kind,
			     struct cuda_task **out) CT_MUST_CHECK;
/* Make `field`, which is a pointer in the last task that was added, refer to a buffer or to the gradient of a
 * parameter. */
enum ct_status ct__cuda_refer(struct cuda_program *p, const void *field, int buffer) CT_MUST_CHECK;
enum ct_status ct__cuda_refer_grad(struct cuda_program *p, const void *field, int param) CT_MUST_CHECK;
/* Frees what a compilation has appended to p, but not p. */
void ct__cuda_release_tasks(struct cuda_program *p);

/* bind.c: ct__cuda_bind enlarges the memory of the net if the program needs more, and sets all pointers of the program.
 * ct__cuda_take_memory sets them again if the memory has moved since. ct__cuda_unbind removes the program from the
 * net's list; the last one frees the memory. ct__cuda_bind_grads sets the pointers to gradients again if the gradient
 * arena has changed. */
enum ct_status ct__cuda_bind(struct cuda_program *p) CT_MUST_CHECK;
enum ct_status ct__cuda_take_memory(struct cuda_program *p) CT_MUST_CHECK;
void ct__cuda_unbind(struct cuda_program *p);
/* Returns the device address of a buffer. */
void *ct__cuda_at(const struct cuda_program *p, int buffer);
enum ct_status ct__cuda_bind_grads(struct cuda_program *p, const ct_arena *grads) CT_MUST_CHECK;

static inline const struct ct_node *cuda_node(const struct cuda_program *p, int id)
{
	return ct_graph_node(p->base.graph, id);
}

/* Returns the number of channels, padded to a multiple of 16 bytes. */
static inline int cuda_pad(int channels, enum ct_dtype t)
{
	const int vector = t == CT_F32 ? 4 : 8;

	return (channels + vector - 1) / vector * vector;
}

/* Returns whether a convolution with groups is computed as one without groups: padded channels would be in other
 * groups. */
static inline bool cuda_is_dense(const ct_graph *g, int node, enum ct_dtype t)
{
	const struct ct_node *n = ct_graph_node(g, node);

	if (n->op != CT_OP_CONV2D || n->groups == 1)
		return false;
	const int c = ct_graph_node(g, n->in[0])->shape.c;
	return cuda_pad(c, t) != c || cuda_pad(n->shape.c, t) != n->shape.c;
}

/* Returns the group to which the node belongs. */
static inline const struct cuda_group *cuda_group(const struct cuda_program *p, int node)
{
	return &p->groups[p->groups[node].last];
}

static inline bool cuda_is_training(const struct cuda_program *p)
{
	return p->base.mode == CT_TRAIN;
}

static inline int cuda_level(const struct cuda_program *p)
{
	return ((const struct cuda_engine *)p->base.net->engine)->level;
}

static inline enum ct_dtype cuda_type(enum ct_precision p)
{
	return p == CT_PRECISION_FP16 ? CT_F16 : p == CT_PRECISION_BF16 ? CT_BF16 : CT_F32;
}

#endif
