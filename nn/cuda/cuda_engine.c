/* The CUDA engine: the table ct_engine_ops, and the symbol by which the program finds it. The handle of cuDNN and the
 * choices of its plans belong to the engine, so nets and programs share them. Values are stored as NHWC with padded
 * channels; only functions that give values to the host convert them. Logits are copied as they are and converted when
 * the host takes them, so that posting the copy does not wait. A value can be read as long as no later task has
 * overwritten it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device/cuda_check.h"
#include "base/half.h"
#include "base/mem.h"
#include "nn/cuda/arenas.h"
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/compile/op.h"
#include "nn/cuda/cudnn/descriptor.h"
#include "nn/cuda/layout.h"
#include "nn/cuda/run/profile.h"
#include "nn/cuda/run/run.h"

static bool cuda_available(char *why, size_t why_len)
{
	int n = 0;
	const cudaError_t e = cudaGetDeviceCount(&n);

	if (e == cudaSuccess && n > 0)
		return true;
	ct_cuda_explain(e == cudaSuccess ? cudaErrorNoDevice : e, "cudaGetDeviceCount", why, why_len);
	return false;
}

/* CTRAIN_CUDA_LEVEL=0 switches fusion off, for tests and for comparisons when results are wrong (docs/GPU.md). -1: it
 * is not valid. */
static int read_level(void)
{
	const char *text = getenv("CTRAIN_CUDA_LEVEL");

	if (!text || !strcmp(text, "1"))
		return 1;
	return strcmp(text, "0") ? -1 : 0;
}

static const char *cuda_version(void)
{
	static char text[64];
	const size_t v = cudnnGetVersion();
	int runtime = 0;

	(void)cudaRuntimeGetVersion(&runtime);
	snprintf(text, sizeof(text), "CUDA %d.%d, cuDNN %zu.%zu.%zu%s", runtime / 1000, runtime % 1000 / 10, v / 10000,
		 v % 10000 / 100, v % 100, read_level() == 0 ? ", not fused" : "");
	return text;
}

static void cuda_close(ct_engine *base)
{
	struct cuda_engine *e = (struct cuda_engine *)base;

	ct__cudnn_choices_destroy(e->choices);
	ct__cudnn_target_destroy(e->target);
	if (e->cudnn)
		ct__cudnn_released(cudnnDestroy(e->cudnn), "cudnnDestroy");
	ct_free(e);
}

static enum ct_status cuda_open(ct_device *device, int threads, ct_engine **out)
{
	struct cuda_engine *e;
	enum ct_status st;

	struct ct_device_info info;

	(void)threads;
	CT_TRY(ct_device_info(device, &info));
	CT_TRY_ALLOC(e = CT_NEW(struct cuda_engine));
	e->level = read_level();
	st = e->level >= 0 ? CT_OK : CT_FAIL(CT_CONFIG, "CTRAIN_CUDA_LEVEL must be 0 or 1");
	if (st == CT_OK)
		st = ct__cudnn_check(cudnnCreate(&e->cudnn), "cudnnCreate");
	if (st == CT_OK)
		st = ct__cudnn_target_create(info.index, &e->target);
	if (st == CT_OK)
		st = ct__cudnn_choices_create(&e->choices);
	if (st < 0) {
		cuda_close(&e->base);
		return st;
	}
	*out = &e->base;
	return CT_OK;
}

static bool cuda_supports(const ct_device *d)
{
	return strcmp(ct_device_kind(d), "cuda") == 0;
}

static bool cuda_precision(enum ct_precision p, char *why, size_t why_len)
{
	(void)p;
	(void)why;
	(void)why_len;
	return true;
}

static enum ct_status cuda_net_open(ct_net *net)
{
	struct cuda_net *cn;

	CT_TRY_ALLOC(cn = CT_NEW(struct cuda_net));
	net->impl = cn;
	cn->memory = CT_NEW_ARRAY(struct cuda_block, (size_t)net->opts.contexts);
	enum ct_status st =
		!cn->memory
			? CT_NOMEM
			: ct__cudnn_check(cudnnSetStream(((struct cuda_engine *)net->engine)->cudnn, cuda_stream(net)),
					  "cudnnSetStream");
	if (st == CT_OK)
		st = ct__cuda_count_elems(net);
	if (st < 0) {
		ct_free(cn->memory);
		ct_free(cn);
	}
	return st;
}

static void cuda_net_close(ct_net *net)
{
	struct cuda_net *cn = net->impl;

	ct_device_mem_free(net->engine->device, cn->weights);
	ct_free(cn->memory);
	ct_free(cn);
}

static void cuda_program_destroy(ct_program *base)
{
	struct cuda_program *p = (struct cuda_program *)base;

	ct__cuda_unbind(p);
	ct__cuda_profile_release(p);
	ct__cuda_release_tasks(p);
	ct_free(p);
}

static enum ct_status cuda_program_create(ct_net *net, const ct_graph *g, int n, enum ct_mode mode, int context,
					  ct_program **out)
{
	struct cuda_program *p;
	enum ct_status st;

	CT_TRY(ct__cuda_alloc_weights(net));
	CT_TRY_ALLOC(p = CT_NEW(struct cuda_program));
	p->base.net = net;
	p->base.graph = g;
	p->base.n = n;
	p->base.mode = mode;
	p->base.context = context;
	st = ct__cuda_compile(p);
	if (st < 0) {
		cuda_program_destroy(&p->base);
		return st;
	}
	*out = &p->base;
	return CT_OK;
}

static float element(const void *p, size_t i, enum ct_dtype t)
{
	if (t == CT_F32)
		return ((const float *)p)[i];
	return t == CT_F16 ? ct_f16_to_f32(((const uint16_t *)p)[i]) : ct_bf16_to_f32(((const uint16_t *)p)[i]);
}

static void to_logical(const struct cuda_program *p, const struct cuda_value *v, int rows, const void *from, float *out)
{
	const size_t plane = (size_t)v->shape.h * (size_t)v->shape.w, c_count = (size_t)v->shape.c;

	for (size_t n = 0; n < (size_t)rows; n++)
		for (size_t c = 0; c < c_count; c++)
			for (size_t i = 0; i < plane; i++)
				out[(n * c_count + c) * plane + i] =
					element(from, (n * plane + i) * (size_t)v->cp + c, p->type);
}

static enum ct_status cuda_read(ct_program *base, int node, bool gradient, float *out)
{
	const struct cuda_program *p = (const struct cuda_program *)base;
	const struct cuda_value *v = ct__cuda_value(p, node);
	const int buffer = gradient ? v->gradient.buffer : v->buffer;
	const bool reused = gradient ? v->gradient.gone || v->gradient.second != CUDA_NONE : v->overwritten;
	ct_device *d = base->net->engine->device;
	enum ct_status st;
	void *host;

	if (buffer == CUDA_NONE)
		return CT_FAIL(CT_UNSUPPORTED, "%s: this value is not stored", cuda_node(p, node)->name);
	if (reused || (size_t)p->buffers[buffer].lost < p->n_run || (gradient && p->n_run <= p->n_forward))
		return CT_FAIL(CT_UNSUPPORTED, "%s: the memory of this value has been reused",
			       cuda_node(p, node)->name);
	const size_t bytes = ct__cuda_value_elems(p, v) * ct_dtype_bytes(p->type);
	CT_TRY(ct_device_host_alloc(d, bytes, &host));
	st = ct_device_copy(d, host, ct__cuda_at(p, buffer), bytes, base->net->engine->stream);
	if (st == CT_OK)
		st = ct_stream_sync(base->net->engine->stream, CT_FOREVER);
	if (st == CT_OK)
		to_logical(p, v, base->rows, host, out);
	ct_device_host_free(d, host);
	return st;
}

static size_t cuda_logits_bytes(const ct_program *base, int node)
{
	const struct cuda_program *p = (const struct cuda_program *)base;

	return ct__cuda_value_elems(p, ct__cuda_value(p, node)) * ct_dtype_bytes(p->type);
}

static enum ct_status cuda_post_logits(ct_program *base, int node, void *host)
{
	const struct cuda_program *p = (const struct cuda_program *)base;

	return ct_device_copy(base->net->engine->device, host, ct__cuda_at(p, ct__cuda_value(p, node)->buffer),
			      cuda_logits_bytes(base, node), base->net->engine->stream);
}

static void cuda_take_logits(const ct_program *base, int node, int rows, const void *host, float *out)
{
	const struct cuda_program *p = (const struct cuda_program *)base;

	to_logical(p, ct__cuda_value(p, node), rows, host, out);
}

/* Convolutions compute the gradients of weights in the type of activations. */
static bool cuda_writes_half(const ct_net *net)
{
	return net->opts.reduce_type != CT_F32 && net->opts.reduce_type == cuda_type(net->opts.precision);
}

const struct ct_engine_ops ct__engine_ops_cuda = {
	.name = "cuda",
	.available = cuda_available,
	.version = cuda_version,
	.open = cuda_open,
	.close = cuda_close,
	.net_open = cuda_net_open,
	.net_close = cuda_net_close,
	.pack = ct__cuda_pack,
	.unpack = ct__cuda_unpack,
	.program_create = cuda_program_create,
	.program_destroy = cuda_program_destroy,
	.forward = ct__cuda_forward,
	.backward = ct__cuda_backward,
	.read = cuda_read,
	.logits_bytes = cuda_logits_bytes,
	.post_logits = cuda_post_logits,
	.take_logits = cuda_take_logits,
	.collect_times = ct__cuda_profile_collect,
	.precision = cuda_precision,
	.computes = ct__cuda_computes,
	.check_node = ct__cuda_check_node,
	.gathers = true,
	.writes_half = cuda_writes_half,
	.stages = true,
	.arenas = &ct__arena_ops_cuda,
	.supports = cuda_supports,
};

__attribute__((visibility("default"))) const struct ct_engine_module ct_cuda_engine = {
	.head = {.abi = CT_MODULE_ABI, .build = CT_BUILD_ID},
	.ops = &ct__engine_ops_cuda,
};
