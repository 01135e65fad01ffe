/* The passes of the failed step are run again with the same samples, augmentation and dropout masks, and with the
 * weights as they are: the failed update has not changed them. The order of the search is that of the computation: for
 * each node its parameters, its running statistics and its value, then the loss, then the gradients. The first place is
 * the cause, and later ones follow from it. Values that the engine has fused away cannot be read; the next node shows
 * them.
 *
 * All ranks search at the same time and run all passes, even after a find, since the passes may contain collectives.
 * Memory may be scarce after a failure, so only one value at a time is copied, and large ones are skipped. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/step/nan_search.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "base/log.h"
#include "trainer/run/session/resident.h"
#include "trainer/run/step/step_impl.h"

enum { MAX_SAMPLES = 4096 };
#define MAX_VALUE_BYTES ((size_t)512 << 20) /* larger values are not examined, because memory may be scarce */

struct search {
	struct ct_session *s;
	ct_stepper *stepper;
	const ct_graph *graph;
	struct ct__nan_place *out;
	uint64_t *bad_of;  /* [n_params] number of values of each parameter that are not finite */
	float *values;     /* of the value that is examined */
	float *statistics; /* of all batch norms */
	float factor;      /* of the gradients: the loss scale has been halved after the step that failed */
	ct_json *layers, *samples;
};

static bool is_found(const struct search *k)
{
	return k->out->order != CT__NAN_FINITE;
}

static struct ct__nan_place *found(struct search *k, enum ct__nan_kind kind, int node, int param, int64_t order)
{
	const struct ct_node *n = ct_graph_node(k->graph, node);

	*k->out = (struct ct__nan_place){.order = order,
					 .kind = kind,
					 .layer = n->name,
					 .op = ct_op_name(n->op),
					 .parameter = param >= 0 ? ct_graph_param(k->graph, param)->name : NULL};
	return k->out;
}

static uint64_t count_bad(const float *v, size_t n, double *squares, double *max)
{
	uint64_t bad = 0;

	*squares = *max = 0;
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(v[i])) {
			bad++;
			continue;
		}
		*squares += (double)v[i] * (double)v[i];
		*max = fmax(*max, fabs((double)v[i]));
	}
	return bad;
}

/* ---- weights */

static enum ct_status read_weights(struct search *k, ct_json *list)
{
	struct ct_session *s = k->s;
	struct ct_mirror m;
	double squares, max;
	enum ct_status st = CT_OK;

	CT_TRY(ct_mirror_open(ct_net_params(s->net), CT_MIRROR_READ, ct_engine_stream(s->engine), &m));
	for (int i = 0; i < ct_graph_n_params(s->model.graph) && st == CT_OK; i++) {
		const struct ct_param *p = ct_graph_param(s->model.graph, i);
		float *v = CT_NEW_ARRAY(float, p->n);
		ct_json *o = ct_json_object();

		st = v ? ct_net_export(s->net, &m, i, v) : CT_NOMEM;
		if (st == CT_OK) {
			k->bad_of[i] = count_bad(v, p->n, &squares, &max);
			ct_json_set_str(o, "name", p->name);
			ct_json_set_f64(o, "norm", sqrt(squares));
			ct_json_set_f64(o, "max_abs", max);
			ct_json_set_i64(o, "not_finite", (int64_t)k->bad_of[i]);
		}
		ct_json_push(list, o);
		ct_free(v);
	}
	ct_mirror_drop(&m);
	return st;
}

/* ---- forward pass */

static void examine_rows(struct search *k, const struct ct_loader_batch *b, size_t elems)
{
	struct ct__nan_place *o = k->out;
	double squares, max;

	o->n_rows = b->n;
	for (uint32_t row = 0; row < b->n; row++) {
		if (count_bad(k->values + row * elems, elems, &squares, &max) == 0)
			continue;
		if (o->n_bad_rows < CT__NAN_SAMPLES)
			o->samples[o->n_bad_rows] = b->samples[row];
		o->n_bad_rows++;
	}
}

/* Examines the value of a node. Values that the engine has not kept are skipped: those of operations that are computed
 * together with the next one, which is examined instead. */
static void examine_value(struct search *k, ct_program *program, const struct ct_loader_batch *b, int node)
{
	const struct ct_node *n = ct_graph_node(k->graph, node);
	const size_t elems = (size_t)n->shape.c * (size_t)n->shape.h * (size_t)n->shape.w, all = elems * b->n;
	double squares, max;

	if (all * sizeof(float) > MAX_VALUE_BYTES || ct_program_read(program, node, false, k->values) < 0) {
		ct_error_clear();
		return;
	}
	const uint64_t bad = count_bad(k->values, all, &squares, &max);
	ct_json *o = ct_json_object();
	ct_json_set_str(o, "name", n->name);
	ct_json_set_str(o, "op", ct_op_name(n->op));
	ct_json_set_f64(o, "rms", all > bad ? sqrt(squares / (double)(all - bad)) : 0);
	ct_json_set_f64(o, "max_abs", max);
	ct_json_set_i64(o, "not_finite", (int64_t)bad);
	ct_json_push(k->layers, o);
	if (bad == 0)
		return;
	struct ct__nan_place *place = found(k, CT__NAN_ACTIVATION, node, -1, node);
	place->n_bad = bad;
	place->n = all;
	examine_rows(k, b, elems);
}

/* Examines the running statistics of a batch norm, which have been updated. If the variance of the batch is too large
 * for fp32, the results of the norm are 0 and do not show it. */
static void examine_statistics(struct search *k, int node)
{
	const struct ct_node *n = ct_graph_node(k->graph, node);
	const int ids[] = {n->mean, n->var};
	uint64_t bad = 0, all = 0;
	double squares, max;

	for (int i = 0; i < 2; i++) {
		const float *v = k->statistics;

		if (ids[i] < 0)
			return;
		for (int b = 0; b < ids[i]; b++)
			v += ct_graph_buffer(k->graph, b)->n;
		bad += count_bad(v, ct_graph_buffer(k->graph, ids[i])->n, &squares, &max);
		all += ct_graph_buffer(k->graph, ids[i])->n;
	}
	if (bad == 0)
		return;
	struct ct__nan_place *place = found(k, CT__NAN_STATISTICS, node, -1, node);
	place->n_bad = bad;
	place->n = all;
}

/* Examines the parameters of a node before its value. */
static void examine_parameters(struct search *k, int node)
{
	const struct ct_node *n = ct_graph_node(k->graph, node);
	const int params[] = {n->weight, n->bias};

	for (int i = 0; i < 2 && !is_found(k); i++) {
		if (params[i] < 0 || k->bad_of[params[i]] == 0)
			continue;
		struct ct__nan_place *place = found(k, CT__NAN_WEIGHT, node, params[i], node);
		place->n_bad = k->bad_of[params[i]];
		place->n = ct_graph_param(k->graph, params[i])->n;
	}
}

static enum ct_status examine_forward(struct search *k, ct_program *program, const struct ct_loader_batch *b)
{
	const ct_arena *statistics = ct_net_buffers(k->s->net);
	const int loss = ct_graph_loss(k->graph);
	struct ct_metrics sum;

	CT_TRY(ct_arena_read(statistics, 0, ct_arena_elems(statistics), k->statistics, ct_engine_stream(k->s->engine)));
	for (int i = 0; i < loss && !is_found(k); i++) {
		examine_parameters(k, i);
		if (!is_found(k))
			examine_statistics(k, i);
		if (!is_found(k))
			examine_value(k, program, b, i);
	}
	CT_TRY(ct_net_take_metrics(k->s->net, &sum));
	if (!is_found(k) && !isfinite(sum.loss))
		(void)found(k, CT__NAN_LOSS, loss, -1, loss);
	return CT_OK;
}

/* ---- backward pass */

static uint64_t count_bad_half(const uint16_t *v, size_t n, enum ct_dtype t)
{
	const uint16_t exponent = t == CT_F16 ? 0x7c00 : 0x7f80; /* all bits are set in infinities and NaN */
	uint64_t bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += (v[i] & exponent) == exponent;
	return bad;
}

static void examine_slice(struct search *k, int i, const void *values, enum ct_dtype type)
{
	const struct ct_slice *slice = ct_net_slice(k->s->net, i);
	const int n_nodes = ct_graph_n_nodes(k->graph);
	double squares, max;
	const uint64_t bad = type == CT_F32 ? count_bad((const float *)values + slice->offset, slice->n, &squares, &max)
					    : count_bad_half((const uint16_t *)values + slice->offset, slice->n, type);

	if (bad == 0)
		return;
	struct ct__nan_place *place =
		found(k, CT__NAN_GRADIENT, ct_graph_param(k->graph, slice->param)->node, slice->param, n_nodes + i);
	place->n_bad = bad;
	place->n = slice->n;
}

static enum ct_status examine_gradients(struct search *k)
{
	struct ct_session *s = k->s;
	ct_stream *stream = ct_engine_stream(s->engine);
	struct ct_mirror full, half = {0};

	CT_TRY(ct_mirror_open(s->grad.arena, CT_MIRROR_READ, stream, &full));
	enum ct_status st = s->grad.writes_half ? ct_mirror_open(s->grad.half, CT_MIRROR_READ, stream, &half) : CT_OK;
	for (int i = 0; i < ct_net_n_trained(s->net) && st == CT_OK && !is_found(k); i++) {
		const enum ct_dtype type = ct_net_slice(s->net, i)->dtype;

		if (s->grad.writes_half && type != CT_F32)
			examine_slice(k, i, half.data, type);
		else
			examine_slice(k, i, full.data, CT_F32);
	}
	ct_mirror_drop(&half);
	ct_mirror_drop(&full);
	return st;
}

/* ---- batches */

static void add_samples(struct search *k, const struct ct_loader_batch *b)
{
	for (uint32_t i = 0; i < b->n && ct_json_len(k->samples) < MAX_SAMPLES; i++) {
		ct_json *o = ct_json_object();
		char where[512];

		ct_dataset_describe(k->s->data.train, b->samples[i], where, sizeof(where));
		ct_json_set_i64(o, "sample", b->samples[i]);
		ct_json_set_str(o, "where", where);
		ct_json_push(k->samples, o);
	}
}

/* All ranks run both passes of all batches, even if they have found something: the passes may contain collectives. */
static enum ct_status examine_batch(struct search *k, const struct ct_loader_batch *b)
{
	const struct ct_backward_opts opts = {.scale = k->factor / (float)b->n_global};
	const struct ct_batch in = ct_resident_batch(b);
	ct_program *program;

	add_samples(k, b);
	if (b->n == 0)
		return CT_OK;
	CT_TRY(ct__step_program(k->stepper, (int)b->n, 0, &program));
	CT_TRY(ct_program_forward(program, &in));
	CT_TRY(examine_forward(k, program, b));
	CT_TRY(ct_program_backward(program, &opts));
	return is_found(k) ? ct_stream_sync(ct_engine_stream(k->s->engine), CT_FOREVER) : examine_gradients(k);
}

static enum ct_status examine_batches(struct search *k, ct_loader *loader)
{
	struct ct_loader_batch b = {0};
	enum ct_status st;

	CT_TRY(ct_loader_seek(loader, k->s->state.epoch, k->s->state.step_in_epoch));
	do {
		CT_TRY(ct_loader_next(loader, CT_FOREVER, &b));
		const bool last = b.last_of_step;
		st = examine_batch(k, &b);
		ct_loader_release(loader, &b);
		if (last)
			break;
	} while (st == CT_OK);
	return st;
}

/* Dropout masks depend on the step. */
static enum ct_status post_step(struct ct_session *s, uint64_t step, struct ct_step_args **args)
{
	void *memory;

	CT_TRY(ct_device_host_alloc(s->device, sizeof(**args), &memory));
	*args = memory;
	**args = (struct ct_step_args){.step = step};
	return ct_net_post_step_args(s->net, *args);
}

static size_t largest_value(const ct_graph *g)
{
	size_t most = 1;

	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		const struct ct_shape *x = &ct_graph_node(g, i)->shape;
		const size_t n = (size_t)x->c * (size_t)x->h * (size_t)x->w;

		most = n > most ? n : most;
	}
	return most;
}

static enum ct_status search(struct search *k, uint64_t step, ct_json *weights, ct_loader **loader,
			     struct ct_step_args **args)
{
	struct ct_session *s = k->s;
	const size_t bytes = largest_value(k->graph) * s->plan.micro_rows * sizeof(float);
	struct ct_loader_opts lo;

	CT_TRY_ALLOC(k->bad_of = CT_NEW_ARRAY(uint64_t, (size_t)ct_graph_n_params(k->graph)));
	CT_TRY_ALLOC(k->values = ct_calloc(1, bytes < MAX_VALUE_BYTES ? bytes : MAX_VALUE_BYTES));
	CT_TRY_ALLOC(k->statistics = CT_NEW_ARRAY(float, ct_arena_elems(ct_net_buffers(s->net))));
	CT_TRY(read_weights(k, weights));
	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->data.train), true, (uint32_t)ct_session_replica(s),
			    s->world.id.local_world, &lo);
	lo.device = s->device;
	lo.n_threads = 0;
	ct_resident_set_opts(s, CT_TRAIN, &lo);
	CT_TRY(ct_loader_create(s->data.train, &lo, loader));
	CT_TRY(post_step(s, step, args));
	return examine_batches(k, *loader);
}

enum ct_status ct_nan_search(struct ct_session *s, ct_stepper *p, const struct ct_step_result *r,
			     struct ct__nan_place *out, ct_json *details)
{
	ct_json *weights = ct_json_array();
	struct search k = {.s = s,
			   .stepper = p,
			   .factor = r->outcome == CT_UPDATE_BAD_SCALE ? 2 : 1,
			   .graph = ct_session_train_graph(&s->model),
			   .out = out,
			   .layers = ct_json_array(),
			   .samples = ct_json_array()};
	struct ct_step_args *args = NULL;
	ct_loader *loader = NULL;

	*out = (struct ct__nan_place){.order = CT__NAN_FINITE};
	const enum ct_status st = search(&k, r->request.step, weights, &loader, &args);
	ct_session_drain(s); /* before the memory that posted work reads is freed */
	ct_loader_destroy(loader);
	if (args)
		ct_device_host_free(s->device, args);
	ct_free(k.statistics);
	ct_free(k.values);
	ct_free(k.bad_of);
	ct_json_set(details, "samples", k.samples);
	ct_json_set(details, "layers", k.layers);
	ct_json_set(details, "weights", weights);
	return st;
}
