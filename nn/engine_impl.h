/* The functions that an engine implements. engine_registry.c contains the registry, and engine.c the wrappers that
 * check arguments. net.c, net_digest.c and init.c contain the code that all engines share (slices, arenas,
 * accumulation, digests, initialization). */
#ifndef CT_NN_ENGINE_IMPL_H
#define CT_NN_ENGINE_IMPL_H

#include "nn/engine.h"

struct ct_update;

/* Operations on complete arenas. Each function posts its work. nn/optim/update.h describes the segments, states and
 * results of an update. */
struct ct_arena_ops {
	enum ct_status (*add)(const ct_net *net, const struct ct_span *dst, const struct ct_span *src); /* dst += src */
	/* (optional) Called when an optimizer has been created, and before it is destroyed. update_open allocates what
	 * `update` needs on the device (u->impl), so that a step allocates nothing. update_close is also called if
	 * update_open has failed. */
	enum ct_status (*update_open)(ct_net *net, struct ct_update *u);
	void (*update_close)(ct_net *net, struct ct_update *u);
	/* Reads the learning rate and the number of the update from ct_net_state.step. */
	enum ct_status (*update)(ct_net *net, const struct ct_update *u);
	/* (optional) Called when an update has been posted, on its own or as part of a recording. */
	void (*updated)(ct_net *net);
	/* average = decay * average + (1 - decay) * x, for n elements of both arenas from `first` on; does nothing
	 * after updates have stopped (ct_net_state.stopped) */
	enum ct_status (*average)(ct_net *net, const struct ct_span *average, const ct_arena *x, double decay);
	enum ct_status (*swap)(ct_net *net, ct_arena *a, ct_arena *b);
	/* Copies the loss in ct_net_state.metrics to *loss, which is in device memory, and resets the metrics. */
	enum ct_status (*loss)(ct_net *net, float *loss);
	enum ct_status (*convert)(const ct_net *net, const struct ct_conversion *c, ct_stream *s);
};

#define CT_IN(precision) (1u << CT_PRECISION_##precision)
#define CT_IN_ALL (CT_IN(FP32) | CT_IN(BF16) | CT_IN(FP16) | CT_IN(TF32))

/* The structs of an engine begin with struct ct_engine, ct_net or ct_program. The wrappers fill in the members of these
 * base structs; open, net_open and program_create set only the members that they use themselves. If net_open or
 * program_create fails, it releases what it has allocated. Before each call, the wrappers check the inputs (batch
 * sizes, labels, order of calls). They do not call forward for 0 rows. */
struct ct_engine_ops {
	const char *name;
	bool (*available)(char *why, size_t why_len);
	const char *(*version)(void);
	enum ct_status (*open)(ct_device *device, int threads, ct_engine **out);
	void (*close)(ct_engine *e);
	/* Chooses the layout of every parameter for net->opts.batch, and fills net->elems[param] with the padded
	 * element counts. May store its own data in net->impl. */
	enum ct_status (*net_open)(ct_net *net);
	void (*net_close)(ct_net *net);
	/* Convert between the logical row-major layout and the engine's layout, in host memory. `slice` points to the
	 * first element of the parameter. */
	enum ct_status (*pack)(const ct_net *net, int param, const float *logical, float *slice);
	enum ct_status (*unpack)(const ct_net *net, int param, const float *slice, float *logical);
	/* g has the same parameters and buffers as net->graph, but its shapes may differ. */
	enum ct_status (*program_create)(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
					 ct_program **out);
	void (*program_destroy)(ct_program *p);
	/* Posts the forward pass, which adds the metrics of the rows to *m in device memory. */
	enum ct_status (*forward)(ct_program *p, const struct ct_batch *b, struct ct_metrics *m);
	/* Posts the backward pass, which writes the gradients to `grads`, node by node. `grads` is net->grads or,
	 * when accumulating, net->scratch_grads. It has no slices for nodes of which ct_graph_trains is false. Calls
	 * ct__net_slice_done(net, opts, i) for each slice, as soon as it is final. */
	enum ct_status (*backward)(ct_program *p, const struct ct_backward_opts *opts, ct_arena *grads);
	/* Copies the value or the gradient of a node, for the p->rows rows of the last forward pass, to `out`. Called
	 * when the posted work has finished. */
	enum ct_status (*read)(ct_program *p, int node, bool gradient, float *out);
	/* (optional, all or none) [default: only `read`] ct_program_logits_bytes and the functions that belong to it.
	 * `node` has the logits. */
	size_t (*logits_bytes)(const ct_program *p, int node);
	enum ct_status (*post_logits)(ct_program *p, int node, void *host);
	void (*take_logits)(const ct_program *p, int node, int rows, const void *host, float *out);
	/* (optional) [default: passes add their times while they run] Waits for the passes that were posted while
	 * p->profile was set, and adds their times with ct__program_add_time. */
	enum ct_status (*collect_times)(ct_program *p);
	/* (optional) [default: the padded count identifies the layout] Writes a string that distinguishes the layout
	 * of a parameter from every other layout that the engine may choose. It is part of the layout digest, so
	 * machines that choose the same layout must produce the same string. */
	void (*layout)(const ct_net *net, int param, char *text, size_t len);
	/* (optional) [default: fp32 only] Returns whether this CPU supports the precision. If it does not, writes the
	 * reason to `why`. */
	bool (*precision)(enum ct_precision p, char *why, size_t why_len);
	/* Returns the precisions in which the engine computes an operation on the machines that support them, as CT_IN
	 * bits. 0: it does not compute the operation. */
	unsigned (*computes)(enum ct_op op);
	/* (optional) Fails with CT_UNSUPPORTED if the engine cannot compute this node, for example because of the size
	 * of its kernel. */
	enum ct_status (*check_node)(const ct_graph *g, int node);
	/* (optional, all or none) [default: the engine has no plans, and opts.plan is ignored] best_layout chooses the
	 * layout that suits this machine, `plan` chooses the methods of all convolutions of g in a layout, and
	 * can_compute returns whether the engine can compute a pass of a convolution in this way. *out is
	 * zero-initialized. Nets find their plan in net->plan. */
	enum ct_status (*best_layout)(ct_engine *e, enum ct_precision precision, enum ct_plan_layout *out);
	enum ct_status (*plan)(const ct_graph *g, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			       struct ct_net_plan *out);
	bool (*can_compute)(const ct_graph *g, int node, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			    enum ct_conv_pass pass, enum ct_conv_method method);
	bool gathers; /* forward supports ct_batch.rows */
	/* (optional) [default: false] Returns whether backward can write the gradients of slices of opts.reduce_type to
	 * net->half. */
	bool (*writes_half)(const ct_net *net);
	bool stages; /* supports CT_OP_OUTPUT, net->opts.input_gradient, and several contexts */
	/* (optional) [default: host functions posted to the stream, nn/optim/arena_ops.c] */
	const struct ct_arena_ops *arenas;
	/* (optional) [default: the CPU only] Returns whether the engine supports devices of this kind. */
	bool (*supports)(const ct_device *d);
};

struct ct_engine {
	const struct ct_engine_ops *ops;
	const struct ct_arena_ops *arenas;
	ct_device *device;
	ct_stream *stream;
	int threads;
};

/* The dynamic loss scale of precision fp16 (nn/optim/optim.h). */
struct ct_loss_scale {
	float scale;
	uint32_t steps;   /* updates since the scale last changed */
	uint64_t skipped; /* updates of the run that were skipped because the gradient was not finite */
};

/* The part of a net that is in device memory. Only posted work writes it. */
struct ct_net_state {
	struct ct_step_args step;  /* arguments of the step that posted work belongs to */
	struct ct_metrics metrics; /* sums since they were last taken or reset */
	int32_t stopped; /* enum ct_update_outcome: the reason why updates have stopped, or 0 if they have not */
	struct ct_loss_scale loss_scale; /* scale 0: the loss is not scaled */
};

struct ct_net {
	ct_engine *engine;
	const ct_graph *graph;
	struct ct_net_opts opts;
	struct ct_net_data data[2]; /* for programs of each mode; samples is NULL if none is bound */
	struct ct_net_plan plan;    /* of an engine that has plans */
	size_t *elems;              /* [n_params] padded element counts, set by the engine */
	int n_slices;
	struct ct_slice *slices; /* in the order of the arena */
	int *slice_of;           /* [n_params] -> slice */
	size_t arena_elems, buffer_elems;
	int n_trained;         /* the first slices, which have gradients */
	size_t grad_elems;     /* of the gradient arena, which contains only these */
	size_t *buffer_offset; /* [n_buffers] */
	ct_arena *params, *grads, *buffers;
	ct_arena *class_weights; /* opts.class_weights in device memory, or NULL */
	ct_arena *half;          /* for gradients of opts.reduce_type; NULL: they are written to grads */
	ct_arena *scratch_grads; /* same size as grads, created by the first accumulating backward */
	struct ct_net_state *state;
	struct ct_metrics *taken; /* pinned host memory to which metrics are copied */
	bool owns_grads, opened;
	struct ct_net_memory memory;
	int n_programs;
	uint64_t n_programs_made;
	/* [opts.contexts] The program whose values are in the memory that the programs of the context share, or NULL if
	 * there is none. During ops->forward, it is still the program that ran last. */
	const ct_program **ran;
	void *impl;
};

struct ct_program {
	ct_net *net;
	const ct_graph *graph; /* the net's graph, or another with the same tensors */
	int n;
	enum ct_mode mode;
	int context;
	bool profile;
	bool forward_done; /* forward has run, and backward has not been called since */
	int rows;          /* of the last forward pass */
	int reorders;      /* values and gradients of values that a step converts from one layout to another, for tests;
			      counted only by engines that choose layouts */
	/* What the program adds to the memory of its net while it exists; set by the engine. Memory that the programs
	 * share is not included. */
	struct ct_net_memory memory;
	double *forward_s, *backward_s;                                /* [n_nodes] */
	void (*trace)(void *user, const struct ct_program_span *span); /* NULL: none */
	void *trace_user;
};

/* Adds a part of a pass to the times of its node. Call only if p->profile is set. */
void ct__program_add_time(ct_program *p, int node, bool backward, int64_t begin_ns, int64_t end_ns);

/* Returns the class weights of a program's loss, in device memory, or NULL if it has none. */
static inline const float *ct__program_class_weights(const ct_program *p)
{
	return p->mode == CT_TRAIN && p->net->class_weights ? ct_arena_at(p->net->class_weights, 0) : NULL;
}
/* Sets the loss scale of the net, and waits. */
enum ct_status ct__net_set_loss_scale(ct_net *net, const struct ct_loss_scale *scale) CT_MUST_CHECK;
/* Creates net->scratch_grads if it does not exist. */
enum ct_status ct__net_need_scratch(ct_net *net) CT_MUST_CHECK;
/* If opts->accumulate is set, adds the slice of the scratch arena to the gradients; then calls grad_ready. Does nothing
 * for a slice without gradients. */
enum ct_status ct__net_slice_done(ct_net *net, const struct ct_backward_opts *opts, int slice) CT_MUST_CHECK;

/* What the module of an engine exports. */
struct ct_engine_module {
	struct ct_module_head head;
	const struct ct_engine_ops *ops;
};

/* Opens the engine that this table of functions implements. */
enum ct_status ct__engine_open_with(const struct ct_engine_ops *ops, ct_device *device, int threads,
				    ct_engine **out) CT_MUST_CHECK;

extern const struct ct_arena_ops ct__arena_ops_host;
extern const struct ct_engine_ops ct__engine_ops_ref;
extern const struct ct_engine_ops ct__engine_ops_onednn;
extern const struct ct_engine_ops ct__engine_ops_cuda; /* defined in the module of the engine */

#endif
