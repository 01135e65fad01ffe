/* The functions of NCCL are looked up by name when they are needed, so the module does not depend on libnccl, which is
 * searched for like the other libraries of CUDA. One list of names makes the struct, and the table by which it is
 * filled; a function that is missing means that the library is too old. Results are mapped to statuses here: an error
 * of another rank becomes CT_PEER_LOST, and a call in progress is no error. */
#include "dist/comm/nccl/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/cuda_module.h"
#include "dist/settings/nccl_defects.h"

static const char library[] = "libnccl.so.2";

static const struct function {
	const char *name;
	size_t offset; /* in struct nccl_api */
} functions[] = {
#define FUNCTION(f) {"nccl" #f, offsetof(struct nccl_api, f)},
	CT__NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static enum ct_status too_old(const char *why)
{
	char path[256];

	ct_library_path(ct_library_symbol(library, "ncclGetVersion"), path, sizeof(path));
	CT_FAIL(CT_UNSUPPORTED, "%s (%s) %s", library, path, why);
	return ct_error_hint("install NCCL 2.27 or newer for CUDA 13, or set dist.backend=gloo or shm");
}

static enum ct_status check_version(struct nccl_api *api)
{
	char have[32], why[80];

	if (api->GetVersion(&api->version) != ncclSuccess)
		return too_old("does not report its version");
	ct_nccl_version_text(api->version, have, sizeof(have));
	snprintf(why, sizeof(why), "is NCCL %s, but ctrain needs NCCL 2.27 or newer", have);
	return api->version < CT__NCCL_MIN_VERSION ? too_old(why) : CT_OK;
}

enum ct_status ct__nccl_api_open(struct nccl_api *api)
{
	char why[80];

	CT_TRY(ct_cuda_library_open(library));
	for (size_t i = 0; i < CT_ARRAY_LEN(functions); i++) {
		void *address = ct_library_symbol(library, functions[i].name);

		snprintf(why, sizeof(why), "has no function %s", functions[i].name);
		if (!address)
			return too_old(why);
		memcpy((char *)api + functions[i].offset, &address, sizeof(address));
	}
	return check_version(api);
}

static enum ct_status status_of(ncclResult_t r)
{
	switch (r) {
	case ncclSuccess:
		return CT_OK;
	case ncclInProgress:
		return CT_INPROGRESS;
	case ncclUnhandledCudaError:
		return CT_DEVICE;
	case ncclRemoteError:
		return CT_PEER_LOST;
	case ncclInvalidArgument:
		return CT_BUG;
	default:
		return CT_COMM;
	}
}

enum ct_status ct__nccl_check(const struct nccl_api *api, ncclComm_t comm, ncclResult_t r, const char *function)
{
	const enum ct_status st = status_of(r);
	const char *last;

	if (st >= 0)
		return st;
	last = api->GetLastError(comm);
	CT_FAIL(st, "NCCL: %s: %s%s%.400s", function, api->GetErrorString(r), last && *last ? ": " : "",
		last ? last : "");
	if (getenv("NCCL_DEBUG"))
		ct_error_hint("the messages from NCCL, in RUN/log/ or in the file NCCL_DEBUG_FILE, may say more");
	else
		ct_error_hint("the environment variable NCCL_DEBUG=WARN makes NCCL print the reason");
	return st;
}
