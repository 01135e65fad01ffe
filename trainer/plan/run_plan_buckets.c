/* The reduce buckets, and the type in which gradients are summed over ranks. */
#include <string.h>

#include "trainer/plan/devices.h"
#include "trainer/plan/precision.h"
#include "trainer/plan/ready.h"
#include "trainer/plan/run_plan.h"

/* A sum of many 16-bit numbers, of which each intermediate result is rounded, loses precision. */
enum { REDUCE_16_MAX_WORLD = 64 };

static enum ct_dtype reduce_type(const struct ct_config *c, const ct_device *d, uint32_t world)
{
	const enum ct_precision precision = ct_plan_precision(c);
	const bool gpu = strcmp(ct_device_kind(d), "cuda") == 0;

	if (world == 1)
		return CT_F32;
	switch (c->dist.reduce_dtype) {
	case CT_CFG_REDUCE_DTYPE_FP32:
		return CT_F32;
	case CT_CFG_REDUCE_DTYPE_BF16:
		return CT_BF16;
	case CT_CFG_REDUCE_DTYPE_FP16:
		return CT_F16;
	case CT_CFG_REDUCE_DTYPE_AUTO:
		break;
	}
	if (!gpu || world > REDUCE_16_MAX_WORLD)
		return CT_F32;
	return precision == CT_PRECISION_BF16 ? CT_BF16 : precision == CT_PRECISION_FP16 ? CT_F16 : CT_F32;
}

void ct_run_plan_reduce(const struct ct_config *c, const ct_device *d, struct ct_run_plan *p)
{
	p->net.reduce_type = reduce_type(c, d, p->world);
	p->optim.check_norm = p->net.reduce_type == CT_F16; /* a gradient or a sum may be out of range */
}

size_t ct_plan_bucket_bytes(const struct ct_config *c)
{
	const double usual_mib = ct_plan_on_cpu(c) ? 4 : 25;

	return (size_t)((c->dist.bucket_mib > 0 ? c->dist.bucket_mib : usual_mib) * (1 << 20));
}

static size_t first_bucket_bytes(const struct ct_config *c)
{
	return (size_t)(c->dist.first_bucket_mib * (1 << 20));
}

static enum ct_status bucket_slices(const ct_net *net, struct ct_bucket_slice **out, int *n)
{
	*n = ct_net_n_trained(net);
	if (*n == 0) {
		CT_FAIL(CT_CONFIG, "the model has no parameters to train");
		return ct_error_hint("add a linear or conv2d layer to model.layers");
	}
	CT_TRY_ALLOC(*out = CT_NEW_ARRAY(struct ct_bucket_slice, (size_t)*n));
	for (int i = 0; i < *n; i++) {
		const struct ct_slice *from = ct_net_slice(net, i);

		(*out)[i] = (struct ct_bucket_slice){from->offset, from->n, from->dtype};
	}
	return CT_OK;
}

enum ct_status ct_plan_buckets(const struct ct_config *c, const ct_net *net, size_t cap_bytes, struct ct_bucket **out,
			       int *n_out)
{
	struct ct_bucket_slice *slices;
	int n;

	CT_TRY(bucket_slices(net, &slices, &n));
	enum ct_status st = ct_bucket_plan(slices, n, first_bucket_bytes(c), cap_bytes, out, n_out);
	ct_free(slices);
	return st;
}

enum ct_status ct_plan_choose_buckets(const struct ct_config *c, const ct_net *net,
				      const struct ct_allreduce_time *times, int n_times, size_t *cap_bytes)
{
	struct ct_bucket_slice *slices;
	double *ready = NULL;
	int n;

	CT_TRY(bucket_slices(net, &slices, &n));
	enum ct_status st = ct_plan_ready_by_flops(net, &ready);
	if (st == CT_OK)
		st = ct_bucket_choose_size(slices, ready, n, first_bucket_bytes(c), times, n_times, cap_bytes);
	ct_free(ready);
	ct_free(slices);
	return st;
}
