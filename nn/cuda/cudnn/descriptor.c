/* The meaning of errors decides what callers do. CT_UNSUPPORTED means that cuDNN does not have this plan, and another
 * one may work; this includes engines that cannot be compiled. The numbers of these statuses form a range in cuDNN 9. A
 * lack of memory is reported as such, and everything else as an error of the device. The release of descriptors cannot
 * fail for the caller; it is logged unless an error is pending, which is probably the cause. */
#define CT_LOG_COMPONENT "cudnn"
#include "nn/cuda/cudnn/descriptor.h"

#include <stdio.h>

#include "base/log.h"

enum ct_status ct__cudnn_check(cudnnStatus_t st, const char *function)
{
	char reason[512] = "";

	if (st == CUDNN_STATUS_SUCCESS)
		return CT_OK;
	cudnnGetLastErrorString(reason, sizeof(reason));
	enum ct_status mine = CT_DEVICE;
	if ((st >= CUDNN_STATUS_NOT_SUPPORTED && st < CUDNN_STATUS_INTERNAL_ERROR) ||
	    st == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
		mine = CT_UNSUPPORTED;
	else if (st == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
		 st == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
		mine = CT_NOMEM;
	return CT_FAIL(mine, "cuDNN: %s: %s%s%s", function, cudnnGetErrorString(st), reason[0] ? ": " : "", reason);
}

enum ct_status ct__cudnn_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
	*out = NULL;
	return ct__cudnn_check(cudnnBackendCreateDescriptor(type, out), "cudnnBackendCreateDescriptor");
}

void ct__cudnn_released(cudnnStatus_t st, const char *function)
{
	if (st != CUDNN_STATUS_SUCCESS && ct_error_status() == CT_OK)
		CT_WARN("cuDNN: %s: %s", function, cudnnGetErrorString(st));
}

void ct__cudnn_destroy(cudnnBackendDescriptor_t d)
{
	if (d)
		ct__cudnn_released(cudnnBackendDestroyDescriptor(d), "cudnnBackendDestroyDescriptor");
}

enum ct_status ct__cudnn_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	return ct__cudnn_check(cudnnBackendSetAttribute(d, name, type, n, values), "cudnnBackendSetAttribute");
}

/* As ct__cudnn_check; the message contains "FUNCTION (WHAT)". */
static enum ct_status check_for(cudnnStatus_t st, const char *function, const char *what)
{
	char call[128];

	if (st == CUDNN_STATUS_SUCCESS)
		return CT_OK;
	snprintf(call, sizeof(call), "%s (%s)", function, what);
	return ct__cudnn_check(st, call);
}

enum ct_status ct__cudnn_get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values, const char *what)
{
	return check_for(cudnnBackendGetAttribute(d, name, type, room, n, values), "cudnnBackendGetAttribute", what);
}

enum ct_status ct__cudnn_finalize(cudnnBackendDescriptor_t d, const char *what)
{
	return check_for(cudnnBackendFinalize(d), "cudnnBackendFinalize", what);
}
