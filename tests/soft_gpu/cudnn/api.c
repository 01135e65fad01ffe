#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

enum { HANDLE_MAGIC = 0x646e6e68 };
struct cudnnContext {
	unsigned magic;
	int device;
	cudaStream_t stream;
};
static atomic_int n_handles, n_finalized[CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR + 1];
/* As in cuDNN: the last error of the thread, until it is read. */
static _Thread_local char last_error[512];

cudnnStatus_t soft__refuse(cudnnStatus_t st, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	return st;
}

#define ENTER()                                                                                         \
	do {                                                                                            \
		int fault_ = soft_gpu_call(__func__);                                                   \
		if (fault_)                                                                             \
			return soft__refuse((cudnnStatus_t)fault_, "the call fails by SOFT_GPU_FAULT"); \
	} while (0)

int soft_cudnn_live(void)
{
	return n_handles + soft__descriptors();
}

int soft_cudnn_finalized(int type)
{
	return n_finalized[type];
}

size_t cudnnGetVersion(void)
{
	return soft__consults() ? soft__consult_version() : CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void)
{
	return CUDART_VERSION;
}

cudnnStatus_t cudnnGraphVersionCheck(void)
{
	ENTER();
	return CUDNN_STATUS_SUCCESS;
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
	if (max_size)
		snprintf(message, max_size, "%s", last_error);
	last_error[0] = '\0';
}

#define NAME(s) \
	case s: \
		return #s
const char *cudnnGetErrorString(cudnnStatus_t status)
{
	switch ((int)status) {
		NAME(CUDNN_STATUS_SUCCESS);
		NAME(CUDNN_STATUS_NOT_INITIALIZED);
		NAME(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
		NAME(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
		NAME(CUDNN_STATUS_BAD_PARAM);
		NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
		NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
		NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
		NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
		NAME(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
		NAME(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
		NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
		NAME(CUDNN_STATUS_NOT_SUPPORTED);
		NAME(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
		NAME(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
		NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
		NAME(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
		NAME(CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
		NAME(CUDNN_STATUS_INTERNAL_ERROR);
		NAME(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
		NAME(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
		NAME(CUDNN_STATUS_EXECUTION_FAILED);
		NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
		NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
	default:
		return "CUDNN_STATUS_of_another_number";
	}
}

/* ---- Handles ---------------------------------------------------------------------------------------- */

static struct cudnnContext *check_handle(cudnnHandle_t h, const char *function)
{
	if (!h || h->magic != HANDLE_MAGIC)
		soft_gpu_fail("%s: %p is not a handle, or it was destroyed", function, (void *)h);
	return h;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
	struct cudnnContext *h;
	int device;

	ENTER();
	if (!handle)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == handle");
	if (cudaGetDevice(&device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess)
		return soft__refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
	h = calloc(1, sizeof(*h));
	if (!h)
		return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
	h->magic = HANDLE_MAGIC;
	h->device = device;
	*handle = h;
	n_handles++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
	ENTER();
	check_handle(handle, __func__)->magic = 0;
	free(handle);
	n_handles--;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	int device;

	ENTER();
	check_handle(handle, __func__);
	if (stream && cudaStreamGetDevice(stream, &device) != cudaSuccess)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "%p is not a stream", (void *)stream);
	if (stream && device != handle->device)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
				    "the stream is of device %d, the handle of %d", device, handle->device);
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
	ENTER();
	*stream = check_handle(handle, __func__)->stream;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- Descriptors ------------------------------------------------------------------------------------ */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor)
{
	struct soft__descriptor *d;
	cudnnStatus_t st;

	ENTER();
	if (!descriptor)
		soft_gpu_fail("%s: no place for the descriptor", __func__);
	if ((int)type < 0 || type > CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR)
		return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "there is no type %d",
				    (int)type);
	d = soft__descriptor_create(type);
	st = soft__consult_create(d);
	if (st) {
		soft__descriptor_destroy(d);
		return st;
	}
	*descriptor = d->handle;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
	ENTER();
	soft__descriptor_destroy(soft__live(descriptor, __func__));
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	struct soft__descriptor *d;
	cudnnStatus_t st;

	ENTER();
	if (!descriptor)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
	d = soft__live(descriptor, __func__);
	st = soft__set(d, name, type, n, values);
	return st ? st : soft__consult_set(d, name, type, n, values);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
	ENTER();
	if (!descriptor)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
	return soft__get(soft__live(descriptor, __func__), name, type, room, n, values);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
	ENTER();
	if (!descriptor)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
	struct soft__descriptor *d = soft__live(descriptor, __func__);
	const cudnnStatus_t st = soft__finalize(d);
	if (!st)
		atomic_fetch_add(&n_finalized[d->kind], 1);
	return st;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	ENTER();
	check_handle(handle, __func__);
	if (!plan || !pack)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no plan, or no variant pack");
	return soft__execute(handle->stream, soft__live(plan, __func__), soft__live(pack, __func__));
}
