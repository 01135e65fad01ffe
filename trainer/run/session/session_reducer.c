/* The step scalars lie directly after the gradients, and the last fp32 bucket is extended over them, so a step needs no
 * collective of its own for loss and requests. If the last bucket has another type, one bucket is added for them. In a
 * pipeline the scalars are summed over all ranks but gradients only over those of a stage, so they stay apart. The
 * memory comes from the communicator if it allocates the kind that the device uses, so that nothing is copied. The
 * buckets change only before the first step: when the measured size differs from the usual one, or when a checkpoint
 * contains the size of the earlier run. Then the reducer is created again; the memory and its addresses stay. */
#include "trainer/run/session/session_reducer.h"

#include "base/mem.h"
#include "trainer/run/session/bucket_probe.h"

/* Extends the last bucket over the padding of the arena and the scalars after it. If it is not fp32, adds a bucket.
 * With a pipeline, the buckets do not contain the scalars, which are summed over more ranks than the gradients. */
static enum ct_status build_buckets(struct ct_session *s)
{
	struct ct_session_grad *g = &s->grad;

	CT_TRY(ct_plan_buckets(s->cfg, s->net, g->choice.bytes, &g->buckets, &g->n_buckets));
	const size_t elems = ct_net_grad_elems(s->net);
	struct ct_bucket *last = &g->buckets[g->n_buckets - 1];
	if (s->pipe)
		return CT_OK;
	if (last->dtype != CT_F32) {
		CT_TRY_ALLOC(last = ct_realloc(g->buckets, (size_t)g->n_buckets + 1, sizeof(*last)));
		g->buckets = last;
		last += g->n_buckets++;
		*last = (struct ct_bucket){.offset = elems, .dtype = CT_F32, .first_slice = ct_net_n_trained(s->net)};
	}
	last->n = elems + CT_SCALAR_N - last->offset;
	return CT_OK;
}

/* Allocates memory that is reduced over ranks: from the communicator, for zero copy, if it allocates the kind of memory
 * that the device uses. Otherwise, *own is also set to the memory. */
static enum ct_status alloc_shared(struct ct_session *s, size_t bytes, void **own, void **out)
{
	if (ct_device_caps(s->device)->host_visible || ct_comm_mem_is_on_device(s->group))
		return ct_comm_mem_alloc(s->group, bytes, out);
	ct_device_purpose(s->device, "gradients");
	CT_TRY(ct_device_mem_alloc(s->device, bytes, true, out));
	ct_device_purpose(s->device, NULL);
	*own = *out;
	return CT_OK;
}

/* Returns the number of elements at the beginning of the gradients that are summed in another type than fp32. */
static size_t n_half(const ct_net *net)
{
	size_t n = 0;

	for (int i = 0; i < ct_net_n_trained(net) && ct_net_slice(net, i)->dtype != CT_F32; i++)
		n = ct_net_slice(net, i)->offset + ct_net_slice(net, i)->n;
	return n;
}

static enum ct_status alloc_reduced(struct ct_session *s)
{
	const size_t elems = ct_net_grad_elems(s->net), half = n_half(s->net);
	struct ct_session_grad *g = &s->grad;
	void *memory;

	CT_TRY(alloc_shared(s, (elems + CT_SCALAR_N) * sizeof(float), &g->memory, &memory));
	CT_TRY(ct_arena_wrap(s->device, CT_F32, elems, memory, &g->arena));
	CT_TRY(ct_arena_wrap(s->device, CT_F32, CT_SCALAR_N, (float *)memory + elems, &g->scalars));
	if (half == 0)
		return CT_OK;
	CT_TRY(alloc_shared(s, half * sizeof(uint16_t), &g->half_memory, &memory));
	return ct_arena_wrap(s->device, s->plan.net.reduce_type, half, memory, &g->half);
}

/* Micro-batches are accumulated in fp32. */
static enum ct_status bind_reduced(struct ct_session *s)
{
	struct ct_session_grad *g = &s->grad;

	CT_TRY(ct_net_bind_grads(s->net, g->arena));
	return g->half && s->plan.accumulate == 1 ? ct_net_bind_half(s->net, g->half, &g->writes_half) : CT_OK;
}

enum { STAGE_MAX = 64 << 20 };

/* Allocates staging memory for the largest bucket, or for parts of it. With dist.bucket_mib=auto, the buckets are not
 * known yet. */
static enum ct_status stage_buckets(struct ct_session *s)
{
	const size_t all = (ct_net_grad_elems(s->net) + CT_SCALAR_N) * sizeof(float);
	size_t bytes = s->cfg->dist.bucket_mib == CT_CFG_AUTO ? all : 0;

	for (int i = 0; i < s->grad.n_buckets; i++) {
		const size_t one = s->grad.buckets[i].n * ct_dtype_bytes(s->grad.buckets[i].dtype);

		bytes = one > bytes ? one : bytes;
	}
	if (s->pipe)
		CT_TRY(ct_comm_stage(s->comm, s->device, CT_SCALAR_N * sizeof(float)));
	return ct_comm_stage(s->group, s->device, bytes < STAGE_MAX ? bytes : STAGE_MAX);
}

static enum ct_status convert_bucket(void *user, void *to, enum ct_dtype to_type, const void *from,
				     enum ct_dtype from_type, size_t n, ct_stream *stream)
{
	const struct ct_conversion c = {.to = to, .from = from, .n = n, .to_type = to_type, .from_type = from_type};

	return ct_net_post_conversion(user, &c, stream);
}

static enum ct_status create_reducer(struct ct_session *s)
{
	struct ct_session_grad *g = &s->grad;
	struct ct_reducer_opts ro = {.compute = ct_engine_stream(s->engine),
				     .convert = convert_bucket,
				     .user = s->net,
				     .converted = g->writes_half,
				     .buckets = g->buckets,
				     .n_buckets = g->n_buckets};

	if (g->half)
		ro.memory[s->plan.net.reduce_type] = ct_arena_at(g->half, 0);
	ro.memory[CT_F32] = ct_arena_at(g->arena, 0);
	for (int b = 0; b < g->n_buckets; b++) {
		const struct ct_bucket *k = &g->buckets[b];

		if (k->n_slices > 0)
			ct_comm_name_bucket(s->group, b, ct_session_slice_name(s, k->first_slice),
					    ct_session_slice_name(s, k->first_slice + k->n_slices - 1));
	}
	return ct_reducer_create(s->group, &ro, &g->reducer);
}

static enum ct_status replace_buckets(struct ct_session *s)
{
	ct_reducer_destroy(s->grad.reducer);
	s->grad.reducer = NULL;
	ct_free(s->grad.buckets);
	s->grad.buckets = NULL;
	return build_buckets(s);
}

enum ct_status ct_session_build_reducer(struct ct_session *s)
{
	CT_TRY(alloc_reduced(s));
	CT_TRY(bind_reduced(s));
	struct ct_bucket_choice *c = &s->grad.choice;
	const size_t usual = c->bytes = ct_plan_bucket_bytes(s->cfg);
	CT_TRY(build_buckets(s));
	CT_TRY(stage_buckets(s));
	CT_TRY(ct_bucket_probe(s, c));
	if (c->n_times > 0)
		s->state.bucket_bytes = c->bytes;
	if (c->bytes != usual)
		CT_TRY(replace_buckets(s));
	return create_reducer(s);
}

enum ct_status ct_session_resume_buckets(struct ct_session *s, uint64_t bytes)
{
	struct ct_bucket_choice *c = &s->grad.choice;
	const bool other = bytes > 0 && bytes != c->bytes;

	s->state.bucket_bytes = 0;
	if (c->n_times == 0)
		return CT_OK;
	c->resumed = bytes > 0;
	c->bytes = bytes > 0 ? (size_t)bytes : c->bytes;
	s->state.bucket_bytes = c->bytes;
	if (!other)
		return CT_OK;
	CT_TRY(replace_buckets(s));
	return create_reducer(s);
}

void ct_session_release_grad(ct_device *device, struct ct_session_grad *g)
{
	ct_free(g->buckets);
	ct_arena_destroy(g->scalars);
	ct_arena_destroy(g->half);
	ct_arena_destroy(g->arena);
	ct_device_mem_free(device, g->half_memory);
	ct_device_mem_free(device, g->memory);
}
