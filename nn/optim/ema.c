#include "nn/optim/optim.h"

#include <string.h>

#include "base/mem.h"
#include "nn/engine_impl.h"
#include "nn/host/optim_kernels.h"

struct ct_ema {
	ct_net *net;
	double decay;
	const struct ct_optim_kernels *kernels;
	float *params, *buffers;
};

static enum ct_status copy_of(ct_device *d, const float *x, size_t n, float **out)
{
	void *p;

	CT_TRY(ct_device_mem_alloc(d, (n ? n : 1) * sizeof(float), true, &p));
	memcpy(p, x, n * sizeof(float));
	*out = p;
	return CT_OK;
}

enum ct_status ct_ema_create(ct_net *net, double decay, ct_ema **out)
{
	enum ct_status st;
	ct_ema *e;

	if (!(decay >= 0 && decay < 1))
		return CT_FAIL(CT_CONFIG, "the decay of the weight average, %g, must lie in [0, 1)", decay);
	CT_TRY_ALLOC(e = CT_NEW(ct_ema));
	e->net = net;
	e->decay = decay;
	e->kernels = ct_optim_kernels_at(0);
	CT_TRY_GOTO(copy_of(net->engine->device, net->params, net->arena_elems, &e->params), st, fail);
	CT_TRY_GOTO(copy_of(net->engine->device, net->buffers, net->buffer_elems, &e->buffers), st, fail);
	*out = e;
	return CT_OK;
fail:
	ct_ema_destroy(e);
	return st;
}

void ct_ema_destroy(ct_ema *e)
{
	if (!e)
		return;
	if (e->buffers)
		ct_device_mem_free(e->net->engine->device, e->buffers);
	if (e->params)
		ct_device_mem_free(e->net->engine->device, e->params);
	ct_free(e);
}

void ct_ema_update(ct_ema *e)
{
	float decay = (float)e->decay, rest = (float)(1 - e->decay);

	e->kernels->average(e->net->arena_elems, e->params, e->net->params, decay, rest);
	e->kernels->average(e->net->buffer_elems, e->buffers, e->net->buffers, decay, rest);
}

/* By value: programs hold pointers into the net's arenas. */
static void swap(float *a, float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float t = a[i];
		a[i] = b[i];
		b[i] = t;
	}
}

void ct_ema_swap(ct_ema *e)
{
	swap(e->params, e->net->params, e->net->arena_elems);
	swap(e->buffers, e->net->buffers, e->net->buffer_elems);
}

float *ct_ema_params(ct_ema *e)
{
	return e->params;
}

float *ct_ema_buffers(ct_ema *e)
{
	return e->buffers;
}
