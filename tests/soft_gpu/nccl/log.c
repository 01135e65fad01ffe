/* Messages, names of errors, and the lock. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char last_error[512];

void soft__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void soft__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void soft__warn(const char *format, ...)
{
	const char *debug = getenv("NCCL_DEBUG");
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	if (debug && *debug && strcmp(debug, "VERSION") != 0)
		fprintf(stderr, "soft nccl: NCCL WARN %s\n", last_error);
}

void soft__report(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	fprintf(stderr, "soft nccl: %s\n", last_error);
}

void *soft__alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		soft_gpu_fail("nccl: no host memory for %zu bytes", bytes);
	return p;
}

void soft__nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

ncclResult_t ncclGetVersion(int *version)
{
	int e = soft_gpu_call(__func__);

	if (e)
		return (ncclResult_t)e;
	if (!version)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e)
{
	switch (e) {
	case ncclSuccess:
		return "no error";
	case ncclUnhandledCudaError:
		return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case ncclSystemError:
		return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case ncclInternalError:
		return "internal error - please report this issue to the NCCL developers";
	case ncclInvalidArgument:
		return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case ncclInvalidUsage:
		return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case ncclRemoteError:
		return "remote process exited or there was a network error";
	case ncclInProgress:
		return "NCCL operation in progress";
	default:
		return "unknown result code";
	}
}

const char *ncclGetLastError(ncclComm_t c)
{
	(void)c;
	return last_error;
}
