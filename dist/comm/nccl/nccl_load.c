/* The part of the communicator "nccl" that belongs to the program: it opens the module that contains the other part. */
#include <stdio.h>

#include "base/device/cuda_module.h"
#include "base/device/device.h"
#include "dist/comm/nccl/nccl_module.h"
#include "dist/settings/nccl_defects.h"

static enum ct_status load(const struct ct_nccl_module **out, int *version)
{
	const void *table;

	CT_TRY(ct_cuda_module_open("ct_nccl", &table));
	*out = table;
	return (*out)->version(version);
}

enum ct_status ct__nccl_load(const struct ct_comm_ops **out)
{
	const struct ct_nccl_module *module;
	int version;

	CT_TRY(load(&module, &version));
	*out = module->ops;
	return CT_OK;
}

enum ct_status ct__nccl_version(int *out)
{
	const struct ct_nccl_module *module;
	int n_devices;

	CT_TRY(ct_device_count("cuda", &n_devices));
	return load(&module, out);
}

enum ct_status ct__nccl_available(char *note, size_t len)
{
	char name[24];
	int version;

	CT_TRY(ct__nccl_version(&version));
	ct_nccl_version_text(version, name, sizeof(name));
	snprintf(note, len, "NCCL %s", name);
	return CT_OK;
}
