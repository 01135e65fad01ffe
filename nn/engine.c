/* Every call of an engine passes through these wrappers. They check batches and the order of calls, so that engines
 * need not: a device reads labels and rows of images without further checks. A batch in device memory has been checked
 * before it was copied there.
 *
 * ran[context] names the program whose values are in the memory of the context. It is set when a forward pass has been
 * posted, and NULL after a failed pass and after a program was created, because the memory may have moved. Thus
 * backward and read never see the values of another program. A recording bypasses forward and backward, so
 * ct_program_posted_again must leave the same state as both of them: generations of arenas, ran, rows and forward_done.
 * Arenas are touched before work is posted, so that whatever was derived from them is computed again. */
#include "nn/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "nn/engine_impl.h"

enum ct_status ct__engine_open_with(const struct ct_engine_ops *ops, ct_device *device, int threads, ct_engine **out)
{
	ct_stream *stream;
	enum ct_status st;

	CT_TRY(ct_stream_create(device, false, &stream));
	st = ops->open(device, threads, out);
	if (st < 0) {
		ct_stream_destroy(stream);
		return st;
	}
	(*out)->ops = ops;
	(*out)->arenas = ops->arenas ? ops->arenas : &ct__arena_ops_host;
	(*out)->device = device;
	(*out)->stream = stream;
	(*out)->threads = threads;
	return CT_OK;
}

void ct_engine_close(ct_engine *e)
{
	if (!e)
		return;
	ct_stream *stream = e->stream;
	e->ops->close(e);
	ct_stream_destroy(stream);
}

ct_stream *ct_engine_stream(const ct_engine *e)
{
	return e->stream;
}

const char *ct_engine_version(const ct_engine *e)
{
	return e->ops->version();
}

bool ct_engine_has_plans(const ct_engine *e)
{
	return e->ops->plan != NULL;
}

enum ct_status ct_engine_plan_in(ct_engine *e, enum ct_plan_layout layout, const ct_graph *g,
				 const struct ct_net_opts *opts, struct ct_net_plan *out)
{
	struct ct_net_plan plan = {.layout = layout};
	const enum ct_status st = e->ops->plan(g, opts, layout, &plan);

	if (st < 0)
		ct_net_plan_release(&plan);
	*out = plan;
	return st;
}

enum ct_status ct_engine_plan(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts, struct ct_net_plan *out)
{
	enum ct_plan_layout layout;

	CT_TRY(e->ops->best_layout(e, opts->precision, &layout));
	return ct_engine_plan_in(e, layout, g, opts, out);
}

bool ct_engine_can_compute(const ct_engine *e, const ct_graph *g, int node, const struct ct_net_opts *opts,
			   enum ct_plan_layout layout, enum ct_conv_pass pass, enum ct_conv_method method)
{
	return e->ops->can_compute(g, node, opts, layout, pass, method);
}

static int convolution_named(const ct_graph *g, const char *name)
{
	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);

		if (node->op == CT_OP_CONV2D && !strcmp(node->name, name))
			return id;
	}
	return -1;
}

enum ct_status ct_engine_check_plan(const ct_engine *e, const struct ct_net_plan *p, const ct_graph *g,
				    const struct ct_net_opts *opts)
{
	for (int i = 0; i < p->n_convs; i++) {
		const int id = convolution_named(g, p->convs[i].name);

		if (id < 0)
			return CT_FAIL(CT_UNSUPPORTED, "the model has no convolution %s", p->convs[i].name);
		for (int pass = 0; pass < CT_CONV_PASSES; pass++) {
			const enum ct_conv_method method = p->convs[i].method[pass];

			if (!e->ops->can_compute(g, id, opts, p->layout, (enum ct_conv_pass)pass, method))
				return CT_FAIL(CT_UNSUPPORTED, "%s cannot compute %s with %s in this plan",
					       ct_engine_version(e), p->convs[i].name, ct_conv_method_name(method));
		}
	}
	return CT_OK;
}

/* A single value per channel has no variance: running_var would become NaN. PyTorch refuses this, too. A norm with
 * fixed statistics computes no variance. */
static enum ct_status check_batch_norm(const ct_graph *g, int n)
{
	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);

		if (node->op == CT_OP_BATCH_NORM && !node->fixed_stats && n == 1 &&
		    node->shape.h * node->shape.w == 1) {
			CT_FAIL(CT_CONFIG, "%s: batch norm has only one value per channel in a batch of one row",
				node->name);

			return ct_error_hint("train with at least 2 samples per rank in every batch (batch.per_rank)");
		}
	}
	return CT_OK;
}

bool ct_engine_gathers(const ct_engine *e)
{
	return e->ops->gathers;
}

static const char *const precision_names[] = {CT_PRECISIONS(CT_CHOICE_NAME) NULL};

const char *ct_precision_name(enum ct_precision p)
{
	return ct_choice_name(precision_names, (int)p);
}

static bool same_tensor(const struct ct_param *a, const struct ct_param *b)
{
	return !strcmp(a->name, b->name) && a->ndim == b->ndim && !memcmp(a->dims, b->dims, sizeof(a->dims));
}

static bool same_tensors(const ct_graph *a, const ct_graph *b)
{
	bool same = ct_graph_n_params(a) == ct_graph_n_params(b) && ct_graph_n_buffers(a) == ct_graph_n_buffers(b);

	for (int i = 0; same && i < ct_graph_n_params(a); i++)
		same = same_tensor(ct_graph_param(a, i), ct_graph_param(b, i));
	for (int i = 0; same && i < ct_graph_n_buffers(a); i++)
		same = same_tensor(ct_graph_buffer(a, i), ct_graph_buffer(b, i));
	return same;
}

enum ct_status ct_program_create(ct_net *net, int n, enum ct_mode mode, ct_program **out)
{
	return ct_program_create_for(net, net->graph, n, mode, out);
}

enum ct_status ct_program_create_for(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, ct_program **out)
{
	return ct_program_create_in(net, g, n, mode, 0, out);
}

/* Counts the memory of a program. With sign -1, it is no longer counted. */
static void count_memory(const ct_program *p, int sign)
{
	struct ct_net_memory *m = &p->net->memory;
	const size_t one = (size_t)sign; /* unsigned arithmetic wraps around */

	m->activations += one * p->memory.activations;
	m->workspace += one * p->memory.workspace;
	m->activations_unplanned += one * p->memory.activations_unplanned;
}

enum ct_status ct_program_create_in(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
				    ct_program **out)
{
	size_t n_nodes = (size_t)ct_graph_n_nodes(g);
	ct_program *p;

	if (n < 1)
		return CT_FAIL(CT_CONFIG, "batch size %d is below 1", n);
	if (g != net->graph && !same_tensors(g, net->graph))
		return CT_FAIL(CT_BUG, "the graph of a program and the graph of its net have different parameters");
	if (g != net->graph)
		CT_TRY(ct_engine_check_graph(net->engine, g, net->opts.precision));
	if (mode == CT_TRAIN && !net->opts.train)
		return CT_FAIL(CT_BUG, "a training program cannot run on a net that was made for evaluation");
	if (mode == CT_TRAIN && !net->opts.sync)
		CT_TRY(check_batch_norm(g, n));
	CT_ASSERT(context >= 0 && context < net->opts.contexts);
	net->ran[context] = NULL;
	CT_TRY(net->engine->ops->program_create(net, g, n, mode, context, &p));
	net->n_programs++;
	net->n_programs_made++;
	p->net = net;
	p->graph = g;
	p->n = n;
	p->mode = mode;
	p->context = context;
	count_memory(p, 1);
	p->forward_s = CT_NEW_ARRAY(double, n_nodes);
	p->backward_s = CT_NEW_ARRAY(double, n_nodes);
	if (!p->forward_s || !p->backward_s) {
		ct_program_destroy(p);
		return CT_NOMEM;
	}
	*out = p;
	return CT_OK;
}

void ct_program_destroy(ct_program *p)
{
	if (!p)
		return;
	ct_free(p->forward_s);
	ct_free(p->backward_s);
	p->net->n_programs--;
	count_memory(p, -1);
	ct_stream_note(p->net->engine->stream, NULL); /* names of nodes belong to the graph */
	if (p->net->ran[p->context] == p)
		p->net->ran[p->context] = NULL;
	p->net->engine->ops->program_destroy(p);
}

static enum ct_status check_label(int row, int32_t label, int classes)
{
	if (label >= 0 && label < classes)
		return CT_OK;
	return CT_FAIL(CT_DATA, "row %d of the batch has label %d, but the model has %d classes", row, (int)label,
		       classes);
}

static enum ct_status check_labels(const int32_t *labels, int n, int classes)
{
	for (int i = 0; i < n; i++)
		CT_TRY(check_label(i, labels[i], classes));
	return CT_OK;
}

static enum ct_status check_mix(const struct ct_batch *b, int classes)
{
	if (!b->mix)
		return CT_FAIL(CT_BUG, "the batch has mixed rows, but not their weights");
	for (int i = 0; i < b->n; i++) {
		if (!(b->mix[i] >= 0 && b->mix[i] <= 1))
			return CT_FAIL(CT_BUG,
				       "row %d of the batch is mixed with weight %g, which is not between 0 and 1", i,
				       (double)b->mix[i]);
	}
	return check_labels(b->labels_b, b->n, classes);
}

/* The device reads the samples without further checks. */
static enum ct_status check_rows(const ct_program *p, const struct ct_batch *b, int classes)
{
	const struct ct_net_data *d = &p->net->data[p->mode];

	if (!d->samples)
		return CT_FAIL(CT_BUG, "the batch describes its rows, but the net has no data for them");
	for (int i = 0; i < b->n; i++) {
		const struct ct_image_row *r = &b->rows[i];

		if (r->own.sample >= d->n || r->other.sample >= d->n || r->weight > 256 ||
		    !(r->mix >= 0 && r->mix <= 1))
			return CT_FAIL(CT_BUG,
				       "row %d of the batch is made of samples %u and %u of %u, with weight %d/256", i,
				       r->own.sample, r->other.sample, d->n, r->weight);
		CT_TRY(check_label(i, r->label, classes));
		CT_TRY(check_label(i, r->label_b, classes));
	}
	return CT_OK;
}

enum ct_status ct_program_check_batch(const ct_program *p, const struct ct_batch *b)
{
	const struct ct_node *loss = ct_graph_node(p->graph, ct_graph_loss(p->graph));
	int classes = ct_graph_node(p->graph, loss->in[0])->shape.c;

	if (b->n < 0 || b->n > p->n || (p->mode == CT_TRAIN && b->n != p->n))
		return CT_FAIL(CT_BUG, "a batch of %d rows cannot run on a %s program for %d rows", b->n,
			       p->mode == CT_TRAIN ? "training" : "evaluation", p->n);
	if (b->n && !b->x && !b->rows)
		return CT_FAIL(CT_BUG, "the batch has no images");
	if (loss->op == CT_OP_OUTPUT)
		return b->n && !b->y ? CT_FAIL(CT_BUG, "the batch has no memory for the output of the stage") : CT_OK;
	if (loss->op == CT_OP_MSE)
		return b->n && !b->targets
			       ? CT_FAIL(CT_DATA, "the model's loss (mse) needs targets, but the data has none")
			       : CT_OK;
	if (b->n && !b->rows && !b->labels)
		return CT_FAIL(CT_DATA, "the model's loss (cross-entropy) needs class labels, but the data has none");
	if (b->on_device)
		return CT_OK;
	if (b->rows)
		return check_rows(p, b, classes);
	CT_TRY(check_labels(b->labels, b->n, classes));
	return b->labels_b ? check_mix(b, classes) : CT_OK;
}

enum ct_status ct_program_forward(ct_program *p, const struct ct_batch *b)
{
	CT_TRY(ct_program_check_batch(p, b));
	p->forward_done = false;
	if (b->n > 0) {
		if (p->mode == CT_TRAIN)
			ct_arena_touch(p->net->buffers);
		enum ct_status st = p->net->engine->ops->forward(p, b, &p->net->state->metrics);
		p->net->ran[p->context] = st == CT_OK ? p : NULL;
		CT_TRY(st);
	}
	p->rows = b->n;
	p->forward_done = true;
	return CT_OK;
}

enum ct_status ct_program_backward(ct_program *p, const struct ct_backward_opts *opts)
{
	ct_net *net = p->net;

	if (p->mode != CT_TRAIN || !p->forward_done)
		return CT_FAIL(CT_BUG, "backward must follow a forward of a training program");
	if (net->ran[p->context] != p)
		return CT_FAIL(CT_BUG, "another program of the net has reused the memory between forward and backward");
	if (opts->accumulate && net->half)
		return CT_FAIL(CT_BUG, "gradients in 16-bit types cannot be accumulated");
	if ((ct_graph_node(p->graph, ct_graph_loss(p->graph))->op == CT_OP_OUTPUT) != (opts->dy != NULL))
		return CT_FAIL(CT_BUG, "opts.dy must be set if and only if the program ends with CT_OP_OUTPUT");
	if (net->opts.input_gradient != (opts->dx != NULL))
		return CT_FAIL(CT_BUG, "opts.dx must be set if and only if the net has input_gradient");
	if (opts->accumulate)
		CT_TRY(ct__net_need_scratch(net));
	p->forward_done = false; /* activations may be overwritten */
	ct_arena_touch(net->grads);
	return net->engine->ops->backward(p, opts, opts->accumulate ? net->scratch_grads : net->grads);
}

void ct_program_posted_again(ct_program *p)
{
	ct_arena_touch(p->net->buffers);
	ct_arena_touch(p->net->grads);
	p->net->ran[p->context] = p;
	p->rows = p->n;
	p->forward_done = false;
}

uint64_t ct_net_programs_made(const ct_net *net)
{
	return net->n_programs_made;
}

enum ct_status ct_program_read(ct_program *p, int node, bool gradient, float *out)
{
	CT_ASSERT(node >= 0 && node < ct_graph_n_nodes(p->graph));
	if (p->net->ran[p->context] != p)
		return CT_FAIL(CT_UNSUPPORTED, "%s: another program of the net has reused the memory since",
			       ct_graph_node(p->graph, node)->name);
	CT_TRY(ct_stream_sync(p->net->engine->stream, CT_FOREVER));
	return p->net->engine->ops->read(p, node, gradient, out);
}

static int logits_of(const ct_program *p)
{
	return ct_graph_node(p->graph, ct_graph_loss(p->graph))->in[0];
}

size_t ct_program_logits_bytes(const ct_program *p)
{
	const struct ct_engine_ops *ops = p->net->engine->ops;

	return ops->logits_bytes ? ops->logits_bytes(p, logits_of(p)) : 0;
}

enum ct_status ct_program_post_logits(ct_program *p, void *host)
{
	CT_ASSERT(p->net->ran[p->context] == p);
	return p->net->engine->ops->post_logits(p, logits_of(p), host);
}

void ct_program_take_logits(const ct_program *p, int rows, const void *host, float *out)
{
	p->net->engine->ops->take_logits(p, logits_of(p), rows, host, out);
}

static enum ct_status collect_times(ct_program *p)
{
	const struct ct_engine_ops *ops = p->net->engine->ops;

	return ops->collect_times ? ops->collect_times(p) : CT_OK;
}

void ct_program_profile(ct_program *p, bool on)
{
	size_t bytes = (size_t)ct_graph_n_nodes(p->graph) * sizeof(double);

	if (collect_times(p) < 0)
		ct_error_clear(); /* the next wait returns the error again */
	p->profile = on;
	memset(p->forward_s, 0, bytes);
	memset(p->backward_s, 0, bytes);
}

void ct_program_trace(ct_program *p, void (*fn)(void *user, const struct ct_program_span *span), void *user)
{
	p->trace = fn;
	p->trace_user = user;
}

void ct__program_add_time(ct_program *p, int node, bool backward, int64_t begin_ns, int64_t end_ns)
{
	(backward ? p->backward_s : p->forward_s)[node] += (double)(end_ns - begin_ns) * 1e-9;
	if (p->trace)
		p->trace(p->trace_user, &(struct ct_program_span){node, backward, begin_ns, end_ns});
}

bool ct_program_is_profiled(const ct_program *p)
{
	return p->profile;
}

enum ct_status ct_program_times(ct_program *p, int node, double *forward_s, double *backward_s)
{
	CT_ASSERT(node >= 0 && node < ct_graph_n_nodes(p->graph));
	if (!p->profile)
		return CT_FAIL(CT_BUG, "the times of a program were requested, but profiling is off");
	CT_TRY(collect_times(p));
	*forward_s = p->forward_s[node];
	*backward_s = p->backward_s[node];
	return CT_OK;
}
