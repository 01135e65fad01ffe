/* Passes over arenas, which only post kernels. The tables of an optimizer are copied to the device when it is created,
 * and an update reads everything that changes from step to step (learning rate, number, loss, loss scale) from device
 * memory, so that it can be recorded once and posted again. Structs that the kernels share with nn/optim are declared
 * twice, because kernels do not include its headers; static assertions compare them.
 *
 * An update also writes the 16-bit copy of the weights, so that copy has the generation of the parameters afterwards.
 * In a pipeline, an update that needs the norm lets the host add those of the stages and waits for it, so it cannot be
 * recorded. */
#include "nn/cuda/arenas.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/device/cuda_check.h"
#include "base/mem.h"
#include "nn/cuda/run/run.h"
#include "nn/optim/update.h"

/* What an update needs on the device (ct_update.impl). */
struct cuda_update {
	void *segments, *chunks, *parts, *sums, *factors, *control;
	int n_parts;
	double *host_sums; /* [2 * n_chunks] pinned; NULL until a stage of a pipeline needs it */
};

_Static_assert((int)CT__K_BAD_LOSS == (int)CT_UPDATE_BAD_LOSS && (int)CT__K_BAD_NORM == (int)CT_UPDATE_BAD_NORM &&
		       (int)CT__K_BAD_SCALE == (int)CT_UPDATE_BAD_SCALE && (int)CT__K_SKIPPED == (int)CT_UPDATE_SKIPPED,
	       "the kernels number outcomes as nn/optim does");
_Static_assert(sizeof(struct ct__k_loss_scale) == sizeof(struct ct_loss_scale) &&
		       offsetof(struct ct__k_loss_scale, skipped) == offsetof(struct ct_loss_scale, skipped),
	       "the loss scale of a net");
_Static_assert(sizeof(struct ct__k_metrics) == sizeof(struct ct_metrics), "the metrics of a net");
_Static_assert(offsetof(struct ct_step_args, lr) == offsetof(struct ct__k_step, lr), "the arguments of a step");

/* Device memory with a copy of n bytes; waits. */
static enum ct_status upload(ct_net *net, const void *from, size_t n, void **out)
{
	ct_device *d = net->engine->device;
	void *pinned;
	enum ct_status st;

	CT_TRY(ct_device_host_alloc(d, n, &pinned));
	memcpy(pinned, from, n);
	st = ct_device_mem_alloc(d, n, false, out);
	if (st == CT_OK)
		st = ct_device_copy(d, *out, pinned, n, net->engine->stream);
	if (st == CT_OK)
		st = ct_stream_sync(net->engine->stream, CT_FOREVER);
	ct_device_host_free(d, pinned);
	return st;
}

/* Divides the chunks among more blocks. With `out` = NULL, only counts the parts. */
static size_t divide_chunks(const struct ct_update *u, struct ct__k_chunk *out)
{
	size_t n = 0;

	for (int64_t i = 0; i < u->n_chunks; i++) {
		const struct ct_chunk *c = &u->chunks[i];

		for (size_t at = 0; at < c->n; at += CT__K_PART_ELEMS, n++) {
			const size_t left = c->n - at;

			if (out)
				out[n] = (struct ct__k_chunk){
					c->offset + at, (uint32_t)(left < CT__K_PART_ELEMS ? left : CT__K_PART_ELEMS),
					c->segment};
		}
	}
	return n;
}

static enum ct_status upload_parts(ct_net *net, const struct ct_update *u, struct cuda_update *c)
{
	const size_t n = divide_chunks(u, NULL);
	struct ct__k_chunk *parts;

	CT_TRY_ALLOC(parts = CT_NEW_ARRAY(struct ct__k_chunk, n));
	c->n_parts = (int)divide_chunks(u, parts);
	const enum ct_status st = upload(net, parts, n * sizeof(*parts), &c->parts);
	ct_free(parts);
	return st;
}

static enum ct_status upload_tables(ct_net *net, const struct ct_update *u, struct cuda_update *c)
{
	struct ct__k_segment *segments = CT_NEW_ARRAY(struct ct__k_segment, (size_t)u->n_segments);
	struct ct__k_chunk *chunks = CT_NEW_ARRAY(struct ct__k_chunk, (size_t)u->n_chunks);
	enum ct_status st = segments && chunks ? CT_OK : CT_NOMEM;

	for (int i = 0; st == CT_OK && i < u->n_segments; i++) {
		const struct ct_segment *s = &u->segments[i];

		segments[i] = (struct ct__k_segment){(int32_t)s->first_chunk, (int32_t)s->n_chunks, s->decay, s->adapt,
						     s->lr_factor};
	}
	for (int64_t i = 0; st == CT_OK && i < u->n_chunks; i++)
		chunks[i] = (struct ct__k_chunk){u->chunks[i].offset, (uint32_t)u->chunks[i].n, u->chunks[i].segment};
	if (st == CT_OK)
		st = upload(net, segments, (size_t)u->n_segments * sizeof(*segments), &c->segments);
	if (st == CT_OK)
		st = upload(net, chunks, (size_t)u->n_chunks * sizeof(*chunks), &c->chunks);
	ct_free(chunks);
	ct_free(segments);
	return st;
}

/* A new optimizer needs a formula in kernels/update.cu. */
static int kind_of(enum ct_optim_kind kind)
{
	switch (kind) {
	case CT_SGD:
		return CT__K_SGD;
	case CT_ADAM:
		return CT__K_ADAM;
	case CT_ADAMW:
		return CT__K_ADAMW;
	case CT_LARS:
		return CT__K_LARS;
	case CT_LAMB:
		return CT__K_LAMB;
	}
	return CT__K_SGD;
}

static void close_update(ct_net *net, struct ct_update *u)
{
	struct cuda_update *c = u->impl;
	ct_device *d = net->engine->device;

	if (!c)
		return;
	ct_device_host_free(d, c->host_sums);
	ct_device_mem_free(d, c->control);
	ct_device_mem_free(d, c->factors);
	ct_device_mem_free(d, c->sums);
	ct_device_mem_free(d, c->parts);
	ct_device_mem_free(d, c->chunks);
	ct_device_mem_free(d, c->segments);
	ct_free(c);
	u->impl = NULL;
}

static enum ct_status open_update(ct_net *net, struct ct_update *u)
{
	ct_device *d = net->engine->device;
	struct cuda_update *c;

	CT_TRY_ALLOC(c = CT_NEW(struct cuda_update));
	u->impl = c;
	CT_TRY(upload_tables(net, u, c));
	CT_TRY(upload_parts(net, u, c));
	CT_TRY(ct_device_mem_alloc(d, 2 * (size_t)u->n_chunks * sizeof(double), false, &c->sums));
	CT_TRY(ct_device_mem_alloc(d, (size_t)u->n_segments * sizeof(struct ct__k_factors), false, &c->factors));
	return ct_device_mem_alloc(d, sizeof(struct ct__k_control), false, &c->control);
}

/* All values that change from step to step are read from device memory. */
static struct ct__k_update_args update_args(const ct_net *net, const struct ct_update *u)
{
	const struct cuda_net *cn = net->impl;
	const struct cuda_update *c = u->impl;
	const struct ct_optim_opts *o = &u->opts;
	const bool scaled = net->opts.precision == CT_PRECISION_FP16;
	struct ct__k_update_args a = {
		.kind = kind_of(o->kind),
		.nesterov = o->nesterov,
		.need_norm = o->clip_norm > 0 || o->check_norm || scaled,
		.momentum = o->momentum,
		.weight_decay = o->weight_decay,
		.beta1 = o->beta1,
		.beta2 = o->beta2,
		.eps = o->eps,
		.trust = o->trust,
		.clip_norm = o->clip_norm,
		.loss_scale = scaled ? (struct ct__k_loss_scale *)&net->state->loss_scale : NULL,
		.loss_scale_min = CT_LOSS_SCALE_MIN,
		.loss_scale_interval = o->loss_scale_interval,
		.segments = c->segments,
		.chunks = c->chunks,
		.parts = c->parts,
		.n_segments = u->n_segments,
		.n_chunks = (int)u->n_chunks,
		.n_parts = c->n_parts,
		.sums = c->sums,
		.factors = c->factors,
		.control = c->control,
		.params = ct_arena_at(net->params, 0),
		.grads = ct_arena_at(net->grads, 0),
		.weights = cn->weights,
		.weights_type = cuda_type(net->opts.precision),
		.step = (const struct ct__k_step *)&net->state->step,
		.stopped = &net->state->stopped,
		.loss = u->loss ? ct_arena_at(u->loss, u->loss_at) : NULL,
		.result = ct_arena_at(u->result, 0),
	};

	for (int i = 0; i < u->n_states; i++)
		a.state[i] = ct_arena_at(u->state[i], 0);
	return a;
}

/* The other stages of the model have parts of the norm, which the host sums. Replaces the sum of the first chunk by the
 * sum over all chunks of all stages, and those of the other chunks by 0. */
static enum ct_status sum_over_stages(const ct_net *net, const struct ct_update *u, const struct ct__k_update_args *a)
{
	struct cuda_update *c = u->impl;
	ct_device *d = net->engine->device;
	ct_stream *s = net->engine->stream;
	const size_t bytes = 2 * (size_t)u->n_chunks * sizeof(double);
	double squares = 0;
	void *host;

	if (!c->host_sums) {
		CT_TRY(ct_device_host_alloc(d, bytes, &host));
		c->host_sums = host;
	}
	CT_TRY(ct_cuda_launched(s, ct__k_update_sums(a, cuda_stream(net)), "norm of the gradient"));
	CT_TRY(ct_device_copy(d, c->host_sums, c->sums, bytes, s));
	CT_TRY(ct_stream_sync(s, CT_FOREVER));
	for (int64_t i = 0; i < u->n_chunks; i++)
		squares += c->host_sums[2 * i];
	CT_TRY(u->sum_stages(u->sum_stages_user, &squares));
	memset(c->host_sums, 0, bytes);
	c->host_sums[0] = squares;
	return ct_device_copy(d, c->sums, c->host_sums, bytes, s);
}

static enum ct_status post_update(ct_net *net, const struct ct_update *u)
{
	struct ct__k_update_args a = update_args(net, u);

	if (u->sum_stages && a.need_norm) {
		CT_TRY(sum_over_stages(net, u, &a));
		a.summed = 1;
	}
	return ct_cuda_launched(net->engine->stream, ct__k_update(&a, cuda_stream(net)), "update of the parameters");
}

/* The update has written the 16-bit weights, too. */
static void updated(ct_net *net)
{
	struct cuda_net *cn = net->impl;

	if (cn->weights)
		cn->weights_generation = ct_arena_generation(net->params);
}

static enum ct_status post_arena(const ct_net *net, const struct ct__k_arena_args *a)
{
	return a->n == 0
		       ? CT_OK
		       : ct_cuda_launched(net->engine->stream, ct__k_arena(a, cuda_stream(net)), "pass over an arena");
}

static enum ct_status post_add(const ct_net *net, const struct ct_span *dst, const struct ct_span *src)
{
	return post_arena(net, &(struct ct__k_arena_args){.op = CT__K_ARENA_ADD,
							  .a = ct_arena_at(dst->arena, dst->first),
							  .b = ct_arena_at(src->arena, src->first),
							  .n = dst->n});
}

static enum ct_status post_average(ct_net *net, const struct ct_span *average, const ct_arena *x, double decay)
{
	return post_arena(net, &(struct ct__k_arena_args){.op = CT__K_ARENA_AVERAGE,
							  .a = ct_arena_at(average->arena, average->first),
							  .b = ct_arena_at(x, average->first),
							  .stopped = &net->state->stopped,
							  .n = average->n,
							  .decay = (float)decay,
							  .rest = (float)(1 - decay)});
}

/* Converts the weights at once: if a recording runs next, no pass of it will. */
static enum ct_status post_swap(ct_net *net, ct_arena *a, ct_arena *b)
{
	CT_TRY(post_arena(net, &(struct ct__k_arena_args){.op = CT__K_ARENA_SWAP,
							  .a = ct_arena_at(a, 0),
							  .b = ct_arena_at(b, 0),
							  .n = ct_arena_elems(a)}));
	return ct__cuda_refresh_weights(net);
}

static enum ct_status post_loss(ct_net *net, float *loss)
{
	const struct ct__k_take_loss_args a = {(struct ct__k_metrics *)&net->state->metrics, loss};

	return ct_cuda_launched(net->engine->stream, ct__k_take_loss(&a, cuda_stream(net)), "loss of a step");
}

static enum ct_status post_convert(const ct_net *net, const struct ct_conversion *c, ct_stream *s)
{
	const struct ct__k_convert_args a = {
		.x = c->from, .y = c->to, .scale = 1.0f, .n = c->n, .from = c->from_type, .to = c->to_type};

	(void)net;
	return ct_cuda_launched(s, ct__k_convert(&a, s->handle), "conversion of gradients");
}

const struct ct_arena_ops ct__arena_ops_cuda = {
	.add = post_add,
	.update_open = open_update,
	.update_close = close_update,
	.update = post_update,
	.updated = updated,
	.average = post_average,
	.swap = post_swap,
	.loss = post_loss,
	.convert = post_convert,
};
