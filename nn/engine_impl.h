/* What an engine implements; engine.c holds the checked wrappers and the registry, net.c what all CPU engines share
 * (slices, arenas, initialisation, digests, accumulation). For files of nn/ only. */
#ifndef CT_NN_ENGINE_IMPL_H
#define CT_NN_ENGINE_IMPL_H

#include "nn/engine.h"

struct ct_update;

/* Passes over whole arenas; each posts. Segments, states and results of an update are in nn/optim/update.h. */
struct ct_arena_ops {
	enum ct_status (*add)(const ct_net *net, const struct ct_span *dst, const struct ct_span *src); /* dst += src */
	enum ct_status (*update)(ct_net *net, const struct ct_update *u, double lr, uint64_t t);
	/* average = decay * average + (1 - decay) * x; nothing where updates have stopped */
	enum ct_status (*average)(ct_net *net, ct_arena *average, const ct_arena *x, double decay);
	enum ct_status (*swap)(ct_net *net, ct_arena *a, ct_arena *b);
};

/* The wrappers fill the struct ct_engine, ct_net and ct_program that come first in an engine's own structs; open,
 * net_open and program_create need to set only what they use themselves. A failing net_open or program_create leaves
 * nothing behind. Inputs are checked before (batch sizes, labels, order of calls); forward is not called for 0 rows. */
struct ct_engine_ops {
	const char *name;
	bool (*available)(char *why, size_t why_len);
	const char *(*version)(void);
	enum ct_status (*open)(ct_device *device, int threads, ct_engine **out);
	void (*close)(ct_engine *e);
	/* Chooses the layout of every parameter for net->opts.batch; fills net->elems[param] (padded counts). May
	 * keep its own data in net->impl. */
	enum ct_status (*net_open)(ct_net *net);
	void (*net_close)(ct_net *net);
	/* Between logical row-major and the engine's layout, in host memory; `slice` points at the parameter's first element. */
	enum ct_status (*pack)(const ct_net *net, int param, const float *logical, float *slice);
	enum ct_status (*unpack)(const ct_net *net, int param, const float *slice, float *logical);
	/* `g` has the parameters and buffers of net->graph, perhaps other shapes. */
	enum ct_status (*program_create)(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, ct_program **out);
	void (*program_destroy)(ct_program *p);
	/* Posts; adds the rows' metrics to *m, which is device memory. */
	enum ct_status (*forward)(ct_program *p, const struct ct_batch *b, struct ct_metrics *m);
	/* Posts; writes gradients of node after node into `grads` (net->grads, or scratch when accumulating) and calls
	 * ct__net_slice_done(net, opts, i) for each slice, in order. */
	enum ct_status (*backward)(ct_program *p, const struct ct_backward_opts *opts, ct_arena *grads);
	/* Writes the rows of the last forward (p->rows), which is done. */
	enum ct_status (*read)(ct_program *p, int node, bool gradient, float *out);
	/* (optional) [the padded count is all there is to say] One text that tells the layout of a parameter from
	 * every other layout the engine may choose: part of the layout digest, so keep it the same on machines that
	 * choose alike. */
	void (*layout)(const ct_net *net, int param, char *text, size_t len);
	/* (optional) [fp32 only] Whether this processor can, else why not. */
	bool (*precision)(enum ct_precision p, char *why, size_t why_len);
	/* (optional) [functions of the host posted to the stream: nn/optim/arena_ops.c] */
	const struct ct_arena_ops *arenas;
	/* (optional) [the CPU] Whether the engine runs on devices of this kind. */
	bool (*supports)(const ct_device *d);
};

struct ct_engine {
	const struct ct_engine_ops *ops;
	const struct ct_arena_ops *arenas;
	ct_device *device;
	ct_stream *stream;
	int threads;
};

/* Of a net, in device memory: written by posted work only. */
struct ct_net_state {
	struct ct_metrics metrics; /* since they were last taken */
	int32_t stopped;           /* enum ct_update_outcome: why no update changes anything any more; 0: they do */
};

struct ct_net {
	ct_engine *engine;
	const ct_graph *graph;
	struct ct_net_opts opts;
	size_t *elems; /* [n_params] padded element counts, by the engine */
	int n_slices;
	struct ct_slice *slices; /* backward completion order */
	int *slice_of;           /* [n_params] -> slice */
	size_t arena_elems, buffer_elems;
	size_t *buffer_offset; /* [n_buffers] */
	ct_arena *params, *grads, *buffers;
	ct_arena *scratch_grads; /* same size as grads, created by the first accumulating backward */
	struct ct_net_state *state;
	struct ct_metrics *taken; /* host memory of the device, where metrics are copied to */
	bool owns_grads, opened;
	struct ct_net_memory memory;
	int n_programs;
	const ct_program *ran; /* whose values are in the memory that programs share; NULL: nobody's. ops->forward finds
				* the one before it here */
	void *impl;
};

struct ct_program {
	ct_net *net;
	const ct_graph *graph; /* what it runs: the net's, or another of the same tensors */
	int n;
	enum ct_mode mode;
	bool profile;
	bool forward_done;              /* and no backward since */
	int rows;                       /* of the last forward */
	int reorders;                   /* counted by an engine that has layouts */
	double *forward_s, *backward_s; /* [n_nodes] */
};

/* Makes scratch_grads once. */
enum ct_status ct__net_need_scratch(ct_net *net) CT_MUST_CHECK;
/* Accumulates when asked (scratch into grads) and calls grad_ready. */
enum ct_status ct__net_slice_done(ct_net *net, const struct ct_backward_opts *opts, int slice) CT_MUST_CHECK;

extern const struct ct_arena_ops ct__arena_ops_host;
extern const struct ct_engine_ops ct__engine_ops_ref;
extern const struct ct_engine_ops ct__engine_ops_onednn;

#endif
