/* Names of errors, and the last error of a thread. */
#include "tests/soft_gpu/runtime/runtime_impl.h"

/* Those that ctrain can meet. */
#define ERRORS(X)                                                                                                \
	X(cudaSuccess, "no error")                                                                               \
	X(cudaErrorInvalidValue, "invalid argument")                                                             \
	X(cudaErrorMemoryAllocation, "out of memory")                                                            \
	X(cudaErrorInitializationError, "initialization error")                                                  \
	X(cudaErrorInvalidConfiguration, "invalid configuration argument")                                       \
	X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                                  \
	X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")           \
	X(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")                      \
	X(cudaErrorInvalidDeviceFunction, "invalid device function")                                             \
	X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                               \
	X(cudaErrorInvalidDevice, "invalid device ordinal")                                                      \
	X(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")           \
	X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                                      \
	X(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution")              \
	X(cudaErrorContained, "Invalid access of peer GPU memory over nvlink or a hardware error")               \
	X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                             \
	X(cudaErrorIllegalState, "the operation cannot be performed in the present state")                       \
	X(cudaErrorNotReady, "device not ready")                                                                 \
	X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                                   \
	X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                              \
	X(cudaErrorLaunchTimeout, "the launch timed out and was terminated")                                     \
	X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")   \
	X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")         \
	X(cudaErrorMisalignedAddress, "misaligned address")                                                      \
	X(cudaErrorLaunchFailure, "unspecified launch failure")                                                  \
	X(cudaErrorNotPermitted, "operation not permitted")                                                      \
	X(cudaErrorNotSupported, "operation not supported")                                                      \
	X(cudaErrorSystemNotReady, "system not yet initialized")                                                 \
	X(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination")      \
	X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")                 \
	X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")          \
	X(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences")        \
	X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")               \
	X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                                  \
	X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")            \
	X(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing stream") \
	X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")     \
	X(cudaErrorStreamCaptureWrongThread,                                                                     \
	  "attempt to terminate a thread-local capture sequence from another thread")                            \
	X(cudaErrorGraphExecUpdateFailure,                                                                       \
	  "the graph update was not performed because it included changes which violated constraints")           \
	X(cudaErrorExternalDevice, "an async error has occured in external entity outside of CUDA")              \
	X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t e)
{
	switch ((int)e) {
#define CASE(name, text) \
	case name:       \
		return #name;
		ERRORS(CASE)
#undef CASE
	default:
		return "unrecognized error code";
	}
}

const char *cudaGetErrorString(cudaError_t e)
{
	switch ((int)e) {
#define CASE(name, text) \
	case name:       \
		return text;
		ERRORS(CASE)
#undef CASE
	default:
		return "unrecognized error code";
	}
}

/* The device's error stays. */
static cudaError_t last_error(void)
{
	return soft__gpu.n_devices && soft__current()->failed ? soft__current()->failed : soft__self.last;
}

cudaError_t cudaPeekAtLastError(void)
{
	cudaError_t e;

	soft__lock();
	e = last_error();
	soft__unlock();
	return e;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e;

	soft__lock();
	e = last_error();
	soft__self.last = cudaSuccess;
	soft__unlock();
	return e;
}
