/* This file is written for the API of oneDNN 3; v2.h provides the same functions for version 2. A primitive descriptor,
 * in which oneDNN has chosen an implementation, is cached by its spec, and so is the answer that there is none. The
 * code is generated when the first call is created, so looking for the best of several implementations is cheap.
 * Primitives have no state: the caller provides scratchpads (dnnl_scratchpad_mode_user), and a call holds only
 * addresses. With the runtimes that ct__dnnl_available accepts, a primitive is done when its execution returns, so
 * ct__dnnl_call_run does not wait. */
#include "nn/onednn/dnnl/shim.h"

#include <dnnl.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/mem.h"
#include "nn/onednn/dnnl/dnnl_impl.h"

#if DNNL_VERSION_MAJOR < 3
#include "nn/onednn/dnnl/v2.h"
#else
#define APPEND_RELU(ops, slope) dnnl_post_ops_append_eltwise((ops), dnnl_eltwise_relu, (slope), 0.0f)
#define APPEND_SUM(ops) dnnl_post_ops_append_sum((ops), 1.0f, 0, dnnl_data_type_undef)
#endif

/* oneDNN's ReLU turns NaN into 0, so the loss of a net that has overflowed would become finite again. Its leaky ReLU
 * keeps NaN. With this slope for negative values, negative results are too small to change any sum. */
#define NAN_SLOPE 1e-30f
#define WITH_RELU 1
#define WITH_SUM 2

struct ct_dnnl_prim {
	struct ct_dnnl_spec spec;
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t primitive; /* NULL until the first call */
	const char *impl;
	ct_dnnl_prim *next;
};

struct ct_dnnl_call {
	dnnl_primitive_t primitive;
	int n;
	enum ct_dnnl_arg names[CT_DNNL_MAX_ARGS];
	dnnl_exec_arg_t args[CT_DNNL_MAX_ARGS];
};

static const int exec_arg[CT_DNNL_N_ARGS] = {
	[CT_DNNL_SRC] = DNNL_ARG_SRC,
	[CT_DNNL_OTHER] = DNNL_ARG_SRC_1,
	[CT_DNNL_WEIGHTS] = DNNL_ARG_WEIGHTS,
	[CT_DNNL_BIAS] = DNNL_ARG_BIAS,
	[CT_DNNL_DST] = DNNL_ARG_DST,
	[CT_DNNL_DIFF_SRC] = DNNL_ARG_DIFF_SRC,
	[CT_DNNL_DIFF_WEIGHTS] = DNNL_ARG_DIFF_WEIGHTS,
	[CT_DNNL_DIFF_BIAS] = DNNL_ARG_DIFF_BIAS,
	[CT_DNNL_DIFF_DST] = DNNL_ARG_DIFF_DST,
	[CT_DNNL_MEAN] = DNNL_ARG_MEAN,
	[CT_DNNL_VARIANCE] = DNNL_ARG_VARIANCE,
	[CT_DNNL_SCALE] = DNNL_ARG_SCALE,
	[CT_DNNL_SHIFT] = DNNL_ARG_SHIFT,
	[CT_DNNL_DIFF_SCALE] = DNNL_ARG_DIFF_SCALE,
	[CT_DNNL_DIFF_SHIFT] = DNNL_ARG_DIFF_SHIFT,
	[CT_DNNL_WORKSPACE] = DNNL_ARG_WORKSPACE,
	[CT_DNNL_SCRATCHPAD] = DNNL_ARG_SCRATCHPAD,
};

/* The limits of oneDNN for those of ctrain. In all versions of oneDNN, a set is a set of bits, and 0 means none. */
static const unsigned limits[] = {
	[CT_ISA_AVX2] = dnnl_cpu_isa_avx2,
	[CT_ISA_AVX512] = dnnl_cpu_isa_avx512_core_vnni,
	[CT_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
	[CT_ISA_AMX] = dnnl_cpu_isa_avx512_core_amx,
};

enum ct_status ct__dnnl_check(dnnl_status_t st, const char *what)
{
	if (st == dnnl_success)
		return CT_OK;
	if (st == dnnl_out_of_memory)
		return CT_FAIL(CT_NOMEM, "oneDNN is out of memory in %s", what);
	return CT_FAIL(CT_DEVICE, "oneDNN: %s returned %d (%s)", what, (int)st,
		       st == dnnl_invalid_arguments ? "invalid arguments"
		       : st == dnnl_unimplemented   ? "unimplemented"
						    : "runtime error");
}

bool ct__dnnl_available(char *why, size_t why_len)
{
	const dnnl_version_t *v = dnnl_version();

	if (v->major != DNNL_VERSION_MAJOR) {
		snprintf(why, why_len, "oneDNN %d was loaded, but this program was built for %d", v->major,
			 DNNL_VERSION_MAJOR);
		return false;
	}
	if (v->cpu_runtime != DNNL_RUNTIME_OMP && v->cpu_runtime != DNNL_RUNTIME_SEQ) {
		snprintf(why, why_len, "this oneDNN does not use OpenMP threads (runtime %u)", v->cpu_runtime);
		return false;
	}
	return true;
}

/* Returns the instruction set that oneDNN uses. oneDNN accepts a limit only before it looks at its limit for the first
 * time, so this function sets that of the process (base/cpu/features.h) in every call, and later calls have no
 * effect. The numbers have these meanings on x86 only: on aarch64, oneDNN returns others for the same type. */
static unsigned effective_isa(void)
{
#if defined(__x86_64__)
	if (limits[ct_cpu_limit()])
		(void)dnnl_set_max_cpu_isa((dnnl_cpu_isa_t)limits[ct_cpu_limit()]);
	return dnnl_get_effective_cpu_isa();
#else
	return 0;
#endif
}

/* oneDNN's instruction sets are sets of bits. */
static bool has_all(unsigned isa, unsigned bits)
{
	return (isa & bits) == bits;
}

const char *ct__dnnl_version(void)
{
	static _Thread_local char text[64];
	const dnnl_version_t *v = dnnl_version();
	const unsigned effective = effective_isa();
	const char *isa;

	switch ((int)effective) {
	case dnnl_cpu_isa_sse41:
		isa = "sse4.1";
		break;
	case dnnl_cpu_isa_avx:
		isa = "avx";
		break;
	case dnnl_cpu_isa_avx2:
		isa = "avx2";
		break;
	case dnnl_cpu_isa_avx2_vnni:
		isa = "avx2_vnni";
		break;
	case dnnl_cpu_isa_avx512_core:
		isa = "avx512_core";
		break;
	case dnnl_cpu_isa_avx512_core_vnni:
		isa = "avx512_core_vnni";
		break;
	case dnnl_cpu_isa_avx512_core_bf16:
		isa = "avx512_core_bf16";
		break;
	default:
		isa = has_all(effective, dnnl_cpu_isa_avx512_core_amx)    ? "avx512_core_amx"
		      : has_all(effective, dnnl_cpu_isa_avx512_core_bf16) ? "avx512_core_bf16"
									  : "generic";
	}
	snprintf(text, sizeof(text), "oneDNN %d.%d.%d %s", v->major, v->minor, v->patch, isa);
	return text;
}

bool ct__dnnl_has_bf16(void)
{
	return has_all(effective_isa(), dnnl_cpu_isa_avx512_core_bf16);
}

bool ct__dnnl_has_avx512(void)
{
	return has_all(effective_isa(), dnnl_cpu_isa_avx512_core);
}

bool ct__dnnl_has_matrix_units(void)
{
	return has_all(effective_isa(), dnnl_cpu_isa_avx512_core_amx);
}

static enum ct_status make_attr(dnnl_primitive_attr_t *out, bool relu, bool sum)
{
	dnnl_post_ops_t ops;

	DNNL_TRY(dnnl_primitive_attr_create(out), "attribute creation");
	DNNL_TRY(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user), "scratchpad mode");
	if (!relu && !sum)
		return CT_OK;
	DNNL_TRY(dnnl_post_ops_create(&ops), "post operations");
	dnnl_status_t st = sum ? APPEND_SUM(ops) : dnnl_success;
	if (st == dnnl_success && relu)
		st = APPEND_RELU(ops, NAN_SLOPE);
	if (st == dnnl_success)
		st = dnnl_primitive_attr_set_post_ops(*out, ops);
	dnnl_post_ops_destroy(ops);
	return ct__dnnl_check(st, "post operations");
}

static enum ct_status open_context(ct_dnnl *c)
{
	DNNL_TRY(dnnl_engine_create(&c->engine, dnnl_cpu, 0), "engine creation");
	DNNL_TRY(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_in_order), "stream creation");
	for (int i = 0; i < (int)CT_ARRAY_LEN(c->attrs); i++)
		CT_TRY(make_attr(&c->attrs[i], i & WITH_RELU, i & WITH_SUM));
	return CT_OK;
}

enum ct_status ct__dnnl_open(ct_dnnl **out)
{
	const enum ct_isa limit = ct_cpu_limit();
	ct_dnnl *c;

	if (limits[limit] && effective_isa() & ~limits[limit])
		return CT_FAIL(CT_UNSUPPORTED, "oneDNN does not accept the limit %s: it already uses %s",
			       ct_isa_name(limit), ct__dnnl_version());
	CT_TRY_ALLOC(c = CT_NEW(ct_dnnl));
	pthread_mutex_init(&c->lock, NULL);
	enum ct_status st = open_context(c);
	if (st < 0) {
		ct__dnnl_close(c);
		return st;
	}
	*out = c;
	return CT_OK;
}

void ct__dnnl_close(ct_dnnl *c)
{
	if (!c)
		return;
	while (c->prims) {
		ct_dnnl_prim *p = c->prims;

		c->prims = p->next;
		if (p->primitive)
			dnnl_primitive_destroy(p->primitive);
		if (p->pd)
			dnnl_primitive_desc_destroy(p->pd);
		ct_free(p);
	}
	ct__dnnl_descs_free(c);
	for (size_t i = 0; i < CT_ARRAY_LEN(c->attrs); i++) {
		if (c->attrs[i])
			dnnl_primitive_attr_destroy(c->attrs[i]);
	}
	if (c->stream)
		dnnl_stream_destroy(c->stream);
	if (c->engine)
		dnnl_engine_destroy(c->engine);
	pthread_mutex_destroy(&c->lock);
	ct_free(c);
}

static const_dnnl_primitive_attr_t attr_of(const ct_dnnl *c, const struct ct_dnnl_spec *s)
{
	return c->attrs[(s->relu ? WITH_RELU : 0) | (s->sum ? WITH_SUM : 0)];
}

static unsigned norm_flags(const struct ct_dnnl_spec *s)
{
	return (s->op == CT_DNNL_NORM_FORWARD && s->inference ? dnnl_use_global_stats : 0u) | dnnl_use_scale |
	       dnnl_use_shift | (s->relu ? dnnl_fuse_norm_relu : 0u);
}

static dnnl_status_t describe_layer(const ct_dnnl *c, const struct ct_dnnl_spec *s, dnnl_primitive_desc_t *pd)
{
	const dnnl_prop_kind_t prop = s->inference ? dnnl_forward_inference : dnnl_forward_training;
	const dnnl_dims_t stride = {s->stride[0], s->stride[1]}, pad = {s->pad[0], s->pad[1]};
	const dnnl_dims_t gaps = {s->dilation[0] - 1, s->dilation[1] - 1};
	const dnnl_alg_kind_t alg = dnnl_convolution_direct;
	const_dnnl_primitive_attr_t attr = attr_of(c, s);
	const_dnnl_primitive_desc_t hint = s->forward ? s->forward->pd : NULL;
	md_arg src = MD(s->src), weights = MD(s->weights), bias = MD(s->bias), dst = MD(s->dst);

	switch ((enum ct_dnnl_op)s->op) {
	case CT_DNNL_CONV_FORWARD:
		return dnnl_convolution_forward_primitive_desc_create(pd, c->engine, prop, alg, src, weights, bias, dst,
								      stride, gaps, pad, pad, attr);
	case CT_DNNL_CONV_BACKWARD_DATA:
		return dnnl_convolution_backward_data_primitive_desc_create(pd, c->engine, alg, src, weights, dst,
									    stride, gaps, pad, pad, hint, attr);
	case CT_DNNL_CONV_BACKWARD_WEIGHTS:
		return dnnl_convolution_backward_weights_primitive_desc_create(pd, c->engine, alg, src, weights, bias,
									       dst, stride, gaps, pad, pad, hint, attr);
	case CT_DNNL_LINEAR_FORWARD:
		return dnnl_inner_product_forward_primitive_desc_create(pd, c->engine, prop, src, weights, bias, dst,
									attr);
	case CT_DNNL_LINEAR_BACKWARD_DATA:
		return dnnl_inner_product_backward_data_primitive_desc_create(pd, c->engine, src, weights, dst, hint,
									      attr);
	case CT_DNNL_LINEAR_BACKWARD_WEIGHTS:
		return dnnl_inner_product_backward_weights_primitive_desc_create(pd, c->engine, src, weights, bias, dst,
										 hint, attr);
	default:
		return dnnl_invalid_arguments;
	}
}

static dnnl_status_t describe(const ct_dnnl *c, const struct ct_dnnl_spec *s, dnnl_primitive_desc_t *pd)
{
	const dnnl_prop_kind_t prop = s->inference ? dnnl_forward_inference : dnnl_forward_training;
	const dnnl_dims_t stride = {s->stride[0], s->stride[1]}, pad = {s->pad[0], s->pad[1]};
	const dnnl_dims_t kernel = {s->kernel[0], s->kernel[1]}, gaps = {s->dilation[0] - 1, s->dilation[1] - 1};
	const dnnl_alg_kind_t pool = s->average ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_max;
	const dnnl_alg_kind_t relu = dnnl_eltwise_relu_use_dst_for_bwd;
	const_dnnl_primitive_attr_t attr = attr_of(c, s);
	const_dnnl_primitive_desc_t hint = s->forward ? s->forward->pd : NULL;
	md_arg src = MD(s->src), dst = MD(s->dst), other = MD(s->other);

	switch ((enum ct_dnnl_op)s->op) {
	case CT_DNNL_NORM_FORWARD:
		return dnnl_batch_normalization_forward_primitive_desc_create(pd, c->engine, prop, src, dst, s->eps,
									      norm_flags(s), c->attrs[0]);
	case CT_DNNL_NORM_BACKWARD:
		return dnnl_batch_normalization_backward_primitive_desc_create(
			pd, c->engine, dnnl_backward, src, dst, other, s->eps, norm_flags(s), hint, c->attrs[0]);
	case CT_DNNL_POOL_FORWARD:
		return dnnl_pooling_forward_primitive_desc_create(pd, c->engine, prop, pool, src, dst, stride, kernel,
								  gaps, pad, pad, attr);
	case CT_DNNL_POOL_BACKWARD:
		return dnnl_pooling_backward_primitive_desc_create(pd, c->engine, pool, src, dst, stride, kernel, gaps,
								   pad, pad, hint, attr);
	case CT_DNNL_RELU_FORWARD:
		return dnnl_eltwise_forward_primitive_desc_create(pd, c->engine, prop, relu, src, dst, NAN_SLOPE, 0.0f,
								  attr);
	case CT_DNNL_RELU_BACKWARD:
		return dnnl_eltwise_backward_primitive_desc_create(pd, c->engine, relu, src, dst, other, 0.0f, 0.0f,
								   hint, attr);
	case CT_DNNL_ADD:
		return dnnl_binary_primitive_desc_create(pd, c->engine, dnnl_binary_add, src, other, dst, attr);
	case CT_DNNL_REORDER:
		return dnnl_reorder_primitive_desc_create(pd, src, c->engine, dst, c->engine, attr);
	default:
		return describe_layer(c, s, pd);
	}
}

static enum ct_status prim_get(ct_dnnl *c, const struct ct_dnnl_spec *spec, const ct_dnnl_prim **out)
{
	ct_dnnl_prim *p;

	for (p = c->prims; p; p = p->next) {
		if (!memcmp(&p->spec, spec, sizeof(*spec))) {
			*out = p->pd ? p : NULL;
			return CT_OK;
		}
	}
	CT_TRY_ALLOC(p = CT_NEW(ct_dnnl_prim));
	p->spec = *spec;
	dnnl_status_t st = describe(c, spec, &p->pd);
	if (st != dnnl_success && st != dnnl_unimplemented) {
		ct_free(p);
		return ct__dnnl_check(st, "choosing an implementation");
	}
	if (st == dnnl_unimplemented)
		p->pd = NULL;
	else if (dnnl_primitive_desc_query(p->pd, dnnl_query_impl_info_str, 0, &p->impl) != dnnl_success)
		p->impl = "?";
	p->next = c->prims;
	c->prims = p;
	*out = p->pd ? p : NULL;
	return CT_OK;
}

enum ct_status ct__dnnl_prim_get(ct_dnnl *c, const struct ct_dnnl_spec *spec, const ct_dnnl_prim **out)
{
	pthread_mutex_lock(&c->lock);
	enum ct_status st = prim_get(c, spec, out);
	pthread_mutex_unlock(&c->lock);
	return st;
}

static md_arg query_md(const ct_dnnl_prim *p, enum ct_dnnl_arg arg)
{
	return dnnl_primitive_desc_query_md(p->pd, dnnl_query_exec_arg_md, exec_arg[arg]);
}

size_t ct__dnnl_prim_bytes(const ct_dnnl_prim *p, enum ct_dnnl_arg arg)
{
	md_arg md = query_md(p, arg);

	return md ? dnnl_memory_desc_get_size(md) : 0;
}

enum ct_status ct__dnnl_prim_desc(ct_dnnl *c, const ct_dnnl_prim *p, enum ct_dnnl_arg arg, const ct_dnnl_desc **out)
{
	md_arg md = query_md(p, arg);

	*out = NULL;
	if (!md || !dnnl_memory_desc_get_size(md))
		return CT_OK;
#if DNNL_VERSION_MAJOR < 3
	return ct__dnnl_intern(c, md, md->data_type, md->ndims, md->dims, out);
#else
	dnnl_dims_t *dims;
	dnnl_data_type_t type;
	int ndims;
	DNNL_TRY(dnnl_memory_desc_query(md, dnnl_query_data_type, &type), "tensor query");
	DNNL_TRY(dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &ndims), "tensor query");
	DNNL_TRY(dnnl_memory_desc_query(md, dnnl_query_dims, &dims), "tensor query");
	return ct__dnnl_intern(c, md, type, ndims, *dims, out);
#endif
}

const char *ct__dnnl_prim_impl(const ct_dnnl_prim *p)
{
	return p->impl;
}

int ct__dnnl_prim_rank(const ct_dnnl_prim *p)
{
	if (strstr(p->impl, "ref") || strstr(p->impl, "simple"))
		return 0;
	bool linear = p->spec.op >= CT_DNNL_LINEAR_FORWARD && p->spec.op <= CT_DNNL_LINEAR_BACKWARD_WEIGHTS;
	if (!linear && strstr(p->impl, "gemm") && !strstr(p->impl, "brgemm"))
		return 1;
	return 2;
}

static enum ct_status bind_args(const ct_dnnl *c, const ct_dnnl_prim *p, const struct ct_dnnl_bind *binds, int n,
				ct_dnnl_call *call)
{
	for (int i = 0; i < n; i++) {
		/* The shift is an input of a norm's backward pass only in 2.x. */
		if (DNNL_VERSION_MAJOR >= 3 && p->spec.op == CT_DNNL_NORM_BACKWARD && binds[i].arg == CT_DNNL_SHIFT)
			continue;
		md_arg md = query_md(p, binds[i].arg);
		if (!md || !dnnl_memory_desc_get_size(md))
			return CT_FAIL(CT_BUG, "oneDNN's %s has no argument %d", p->impl, (int)binds[i].arg);
		DNNL_TRY(dnnl_memory_create(&call->args[call->n].memory, md, c->engine, binds[i].ptr),
			 "memory object creation");
		call->args[call->n].arg = exec_arg[binds[i].arg];
		call->names[call->n++] = binds[i].arg;
	}
	return CT_OK;
}

/* Compiles the primitive when it is first used. */
static enum ct_status need_primitive(ct_dnnl *c, ct_dnnl_prim *p)
{
	dnnl_status_t st = dnnl_success;

	pthread_mutex_lock(&c->lock);
	if (!p->primitive)
		st = dnnl_primitive_create(&p->primitive, p->pd);
	pthread_mutex_unlock(&c->lock);
	return ct__dnnl_check(st, "kernel compilation");
}

enum ct_status ct__dnnl_call_create(ct_dnnl *c, const ct_dnnl_prim *p, const struct ct_dnnl_bind *binds, int n,
				    ct_dnnl_call **out)
{
	ct_dnnl_call *call;

	CT_ASSERT(n <= CT_DNNL_MAX_ARGS);
	/* Callers have a const pointer, but the context owns the object and may change it. */
	CT_TRY(need_primitive(c, (ct_dnnl_prim *)(uintptr_t)p));
	CT_TRY_ALLOC(call = CT_NEW(ct_dnnl_call));
	call->primitive = p->primitive;
	enum ct_status st = bind_args(c, p, binds, n, call);
	if (st < 0) {
		ct__dnnl_call_destroy(call);
		return st;
	}
	*out = call;
	return CT_OK;
}

void ct__dnnl_call_destroy(ct_dnnl_call *call)
{
	if (!call)
		return;
	for (int i = 0; i < call->n; i++)
		dnnl_memory_destroy(call->args[i].memory);
	ct_free(call);
}

enum ct_status ct__dnnl_call_set(ct_dnnl_call *call, enum ct_dnnl_arg arg, void *ptr)
{
	for (int i = 0; i < call->n; i++) {
		if (call->names[i] == arg)
			DNNL_TRY(dnnl_memory_set_data_handle(call->args[i].memory, ptr), "setting an argument");
	}
	return CT_OK;
}

enum ct_status ct__dnnl_call_run_alone(ct_dnnl *c, const ct_dnnl_call *call)
{
	dnnl_stream_t stream;

	DNNL_TRY(dnnl_stream_create(&stream, c->engine, dnnl_stream_default_flags), "stream");
	dnnl_status_t st = dnnl_primitive_execute(call->primitive, stream, call->n, call->args);
	if (st == dnnl_success)
		st = dnnl_stream_wait(stream);
	dnnl_stream_destroy(stream);
	return ct__dnnl_check(st, "a primitive");
}

enum ct_status ct__dnnl_call_run(ct_dnnl *c, const ct_dnnl_call *call)
{
	DNNL_TRY(dnnl_primitive_execute(call->primitive, c->stream, call->n, call->args), "a primitive");
	return CT_OK;
}
