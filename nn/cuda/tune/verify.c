/* The operands are small integers, so that the sums are exact, whatever the order in which an engine adds. What remains
 * is the rounding of the result, and that of engines that transform their operands (Winograd, FFT), which grows with
 * the sum of the absolute products. */
#define CT_LOG_COMPONENT "nn"
#include "nn/cuda/tune/verify.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/device/cuda_check.h"
#include "base/log.h"
#include "nn/cuda/kernels/kernels.h"

enum { N_ELEMENTS = 16 };

struct verify {
	ct__cudnn_choices *choices;
	const struct ct__timing *where;
	char *memory;                 /* operands and workspace */
	struct ct__k_conv_sum *sums;  /* [N_ELEMENTS] device memory */
	struct ct__k_conv_sum *found; /* [N_ELEMENTS] pinned */
};

/* The relative error of one rounding. */
static double rounding_of(enum ct_dtype t)
{
	return t == CT_BF16 ? 0x1p-8 : t == CT_F16 ? 0x1p-10 : 1e-5;
}

static enum ct_status fill(const struct verify *v, const ct__cudnn_graph *g, void *const *pointers)
{
	for (int id = 1; id <= ct__cudnn_graph_n_tensors(g); id++) {
		const enum ct_dtype type = ct__cudnn_graph_dtype(g, id);
		const struct ct__k_conv_fill_args a = {.x = pointers[id - 1],
						       .n = ct__cudnn_graph_bytes(g, id) / ct_dtype_bytes(type),
						       .seed = (uint32_t)id,
						       .type = type};

		if (!ct__cudnn_graph_is_virtual(g, id))
			CT_TRY(ct_cuda_launched(v->where->stream,
						ct__k_conv_fill(&a, (cudaStream_t)v->where->stream->handle),
						"operands of the self check"));
	}
	return CT_OK;
}

static enum ct_status sum(const struct verify *v, const struct ct__cudnn_conv_info *k, void *const *pointers)
{
	const int result = k->direction == CT__CUDNN_FORWARD ? k->y : k->direction == CT__CUDNN_DATA ? k->x : k->w;
	struct ct__k_conv_check_args a = {
		.direction = k->direction == CT__CUDNN_FORWARD ? CT__K_CONV_FORWARD
			     : k->direction == CT__CUDNN_DATA  ? CT__K_CONV_DATA
							       : CT__K_CONV_FILTER,
		.x = pointers[k->x - 1],
		.filter = pointers[k->w - 1],
		.y = pointers[k->y - 1],
		.n = (int)k->x_dims[0],
		.c = (int)k->x_dims[1],
		.h = (int)k->x_dims[2],
		.w = (int)k->x_dims[3],
		.k = (int)k->y_dims[1],
		.p = (int)k->y_dims[2],
		.q = (int)k->y_dims[3],
		.r = k->win.r,
		.s = k->win.s,
		.groups = (int)(k->x_dims[1] / k->w_dims[1]),
		.stride_h = k->win.stride_h,
		.stride_w = k->win.stride_w,
		.pad_h = k->win.pad_h,
		.pad_w = k->win.pad_w,
		.dilation_h = k->win.dilation_h,
		.dilation_w = k->win.dilation_w,
		.relu = k->relu,
		.n_elements = N_ELEMENTS,
		.out = v->sums,
		.type = k->type,
	};
	ct_device *d = v->where->device;

	a.n_result = (int64_t)(ct__cudnn_graph_bytes(k->graph, result) / ct_dtype_bytes(k->type));
	for (int i = 0; i < k->n_addends; i++) {
		a.addends[i] = pointers[k->addends[i] - 1];
		a.per_channel[i] = k->per_channel[i];
	}
	CT_TRY(ct_cuda_launched(v->where->stream, ct__k_conv_check(&a, (cudaStream_t)v->where->stream->handle),
				"sums of the self check"));
	CT_TRY(ct_device_copy(d, v->found, v->sums, N_ELEMENTS * sizeof(*v->found), v->where->stream));
	return ct_stream_sync(v->where->stream, CT_FOREVER);
}

static enum ct_status is_wrong(const struct verify *v, const struct ct__cudnn_choice *one,
			       enum ct__cudnn_conv direction, const struct ct__k_conv_sum *s)
{
	static const char *const results[] = {[CT__CUDNN_FORWARD] = "output",
					      [CT__CUDNN_DATA] = "gradient of the input",
					      [CT__CUDNN_FILTER] = "gradient of the weights"};
	const char *path = ct__cudnn_choices_path(v->choices);

	CT_FAIL(CT_DEVICE,
		"%s: the self check found a wrong %s: plan %s of cuDNN computes %g instead of %g for element %lld of \"%s\"",
		one->name, results[direction], ct__cudnn_plan_info(one->plan)->config, s->found, s->sum,
		(long long)s->element, ct__cudnn_graph_text(one->graph));
	if (path && *path)
		return ct_error_hint(
			"train.autotune=off uses the plan that cuDNN proposes; or delete %s, so that plans are measured again; another version of cuDNN may not have the defect (docs/GPU.md)",
			path);
	return ct_error_hint(
		"train.autotune=on may choose another plan; another version of cuDNN may not have the defect (docs/GPU.md)");
}

static enum ct_status verify(const struct verify *v, const struct ct__cudnn_choice *one)
{
	size_t offsets[CT__CUDNN_MAX_TENSORS];
	const size_t bytes = ct__plan_place(one->graph, offsets);
	void *pointers[CT__CUDNN_MAX_TENSORS];
	struct ct__cudnn_conv_info k;
	ct__cudnn_pack *pack;

	for (int i = 0; i < ct__cudnn_graph_n_tensors(one->graph); i++)
		pointers[i] = v->memory + offsets[i];
	ct__cudnn_graph_conv(one->graph, &k);
	CT_TRY(fill(v, one->graph, pointers));
	CT_TRY(ct__cudnn_pack_create(one->graph, pointers,
				     ct__cudnn_plan_info(one->plan)->workspace_bytes ? v->memory + bytes : NULL,
				     &pack));
	enum ct_status st = ct__cudnn_choices_execute(v->choices, one, v->where, pack);
	if (st == CT_OK)
		st = sum(v, &k, pointers);
	ct__cudnn_pack_destroy(pack);
	for (int i = 0; st == CT_OK && i < N_ELEMENTS; i++) {
		const struct ct__k_conv_sum *s = &v->found[i];

		if (!(fabs(s->found - s->sum) <= rounding_of(k.type) * fabs(s->sum) + 1e-5 * s->magnitude))
			st = is_wrong(v, one, k.direction, s);
	}
	return st;
}

/* Allocates memory for the choice that needs most. */
static enum ct_status allocate(struct verify *v, size_t first)
{
	size_t offsets[CT__CUDNN_MAX_TENSORS], most = 0;
	void *memory, *sums, *found;

	for (size_t i = first; i < ct__cudnn_choices_count(v->choices); i++) {
		const struct ct__cudnn_choice *one = ct__cudnn_choices_at(v->choices, i);
		const size_t bytes =
			ct__plan_place(one->graph, offsets) + (size_t)ct__cudnn_plan_info(one->plan)->workspace_bytes;

		most = bytes > most ? bytes : most;
	}
	CT_TRY(ct_device_mem_alloc(v->where->device, most, false, &memory));
	v->memory = memory;
	CT_TRY(ct_device_mem_alloc(v->where->device, N_ELEMENTS * sizeof(*v->sums), false, &sums));
	v->sums = sums;
	CT_TRY(ct_device_host_alloc(v->where->device, N_ELEMENTS * sizeof(*v->found), &found));
	v->found = found;
	return CT_OK;
}

enum ct_status ct__plans_verify(ct__cudnn_choices *c, const struct ct__timing *where, size_t *n_verified)
{
	struct verify v = {.choices = c, .where = where};
	const size_t first = *n_verified, n = ct__cudnn_choices_count(c);
	const int64_t t0 = ct_now_ns();

	if (first == n)
		return CT_OK;
	enum ct_status st = allocate(&v, first);
	if (st == CT_NOMEM) {
		CT_INFO("the self check leaves out the plans of convolutions: %s", ct_error_message());
		ct_error_clear();
		st = CT_OK;
	} else if (st == CT_OK) {
		for (size_t i = first; st == CT_OK && i < n; i++)
			st = verify(&v, ct__cudnn_choices_at(c, i));
		if (st == CT_OK)
			CT_INFO("self check: the results of %zu plan%s of cuDNN are right, %.3f s", n - first,
				ct_plural((int64_t)(n - first)), ct_seconds_since(t0));
	}
	*n_verified = n;
	ct_device_host_free(where->device, v.found);
	ct_device_mem_free(where->device, v.sums);
	ct_device_mem_free(where->device, v.memory);
	return st;
}
