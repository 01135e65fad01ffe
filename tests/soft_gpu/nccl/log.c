/* Messages, names of errors, and the lock. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/pause.h"
#include "tests/soft_gpu/nccl/nccl_impl.h"

enum level { NONE, VERSION, WARN, INFO };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512];
static pthread_once_t once = PTHREAD_ONCE_INIT, version_once = PTHREAD_ONCE_INIT;
static enum level level;
static FILE *file;
static char host[256];
static atomic_int device;

void soft__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void soft__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/* Opens NCCL_DEBUG_FILE, in whose name %h is the host and %p the process. */
static void open_file(const char *name)
{
	char path[4096];
	size_t n = 0;

	for (; *name && n < sizeof(path) - sizeof(host); name++) {
		if (*name != '%' || !name[1]) {
			path[n++] = *name;
			continue;
		}
		name++;
		if (*name == 'h')
			n += (size_t)snprintf(path + n, sizeof(path) - n, "%s", host);
		else if (*name == 'p')
			n += (size_t)snprintf(path + n, sizeof(path) - n, "%d", (int)getpid());
		else
			path[n++] = *name;
	}
	path[n] = 0;
	file = fopen(path, "we");
	if (file)
		setvbuf(file, NULL, _IOLBF, 0);
}

static void start(void)
{
	const char *debug = getenv("NCCL_DEBUG"), *name = getenv("NCCL_DEBUG_FILE");

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = 0;
	if (debug && *debug)
		level = strcasecmp(debug, "VERSION") == 0                                   ? VERSION
			: strcasecmp(debug, "WARN") == 0                                    ? WARN
			: strcasecmp(debug, "INFO") == 0 || strcasecmp(debug, "TRACE") == 0 ? INFO
											    : NONE;
	if (level > VERSION && name)
		open_file(name);
	if (!file)
		file = stdout;
}

void soft__log_device(int d)
{
	device = d;
}

/* NCCL begins warnings with an empty line. */
static void print(const char *kind, const char *message)
{
	fprintf(file, "%s%s:%d:%d [%d] NCCL %s %s\n", strcmp(kind, "WARN") == 0 ? "\n" : "", host, (int)getpid(),
		(int)gettid(), (int)device, kind, message);
	fflush(file);
}

static void print_version(void)
{
	char message[64];

	snprintf(message, sizeof(message), "NCCL version %d.%d.%d%s+cuda%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
		 NCCL_SUFFIX, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	if (level == INFO)
		print("INFO", message);
	else if (level != NONE)
		fprintf(file, "%s\n", message);
}

void soft__log_version(int rank)
{
	pthread_once(&once, start);
	if (level == INFO || rank == 0)
		pthread_once(&version_once, print_version);
}

void soft__info(const char *format, ...)
{
	char message[512];
	va_list args;

	pthread_once(&once, start);
	if (level < INFO)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	print("INFO", message);
}

void soft__warn(const char *format, ...)
{
	va_list args;

	pthread_once(&once, start);
	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	if (level >= WARN)
		print("WARN", last_error);
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
	pause_briefly();
}

ncclResult_t ncclGetVersion(int *version)
{
	const char *other = getenv("SOFT_NCCL_VERSION");
	int e = soft_gpu_call(__func__);

	if (e)
		return (ncclResult_t)e;
	if (!version)
		return ncclInvalidArgument;
	*version = other ? (int)strtol(other, NULL, 10) : NCCL_VERSION_CODE;
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
