/* The part of the communicator "nccl" that belongs to the program: it opens the module that contains the other part. */
#include "base/device/cuda_module.h"
#include "base/device/device.h"
#include "dist/comm/nccl/nccl_module.h"

static enum ct_status load(const struct ct_nccl_module **out, char *note, size_t len)
{
	const void *table;

	CT_TRY(ct_cuda_module_open("ct_nccl", &table));
	*out = table;
	return (*out)->available(note, len);
}

enum ct_status ct__nccl_load(const struct ct_comm_ops **out)
{
	const struct ct_nccl_module *module;
	char note[32];

	CT_TRY(load(&module, note, sizeof(note)));
	*out = module->ops;
	return CT_OK;
}

enum ct_status ct__nccl_available(char *note, size_t len)
{
	const struct ct_nccl_module *module;
	int n_devices;

	CT_TRY(ct_device_count("cuda", &n_devices));
	return load(&module, note, len);
}
