#include "nn/cuda/run/run.h"

#include "base/device/cuda_check.h"

enum ct_status ct__cuda_alloc_weights(ct_net *net)
{
	const enum ct_dtype t = cuda_type(net->opts.precision);
	struct cuda_net *cn = net->impl;
	const size_t bytes = net->arena_elems * ct_dtype_bytes(t);

	if (t == CT_F32 || cn->weights)
		return CT_OK;
	ct_device_purpose(net->engine->device, "16-bit weights");
	CT_TRY(ct_device_mem_alloc(net->engine->device, bytes, false, &cn->weights));
	ct_device_purpose(net->engine->device, NULL);
	net->memory.params += bytes;
	return CT_OK;
}

enum ct_status ct__cuda_refresh_weights(ct_net *net)
{
	struct cuda_net *cn = net->impl;
	const struct ct__k_convert_args a = {.x = ct_arena_at(net->params, 0),
					     .y = cn->weights,
					     .scale = 1.0f,
					     .n = net->arena_elems,
					     .from = CT_F32,
					     .to = cuda_type(net->opts.precision)};

	if (!cn->weights || cn->weights_generation == ct_arena_generation(net->params))
		return CT_OK;
	CT_TRY(ct_cuda_launched(net->engine->stream, ct__k_convert(&a, cuda_stream(net)), "conversion of the weights"));
	cn->weights_generation = ct_arena_generation(net->params);
	return CT_OK;
}
