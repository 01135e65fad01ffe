/* The visible devices and their properties. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { SHARED_BYTES = 48 << 10, SHARED_OPTIN_BYTES = 227 << 10, N_SM = 132 };

struct soft__gpu soft__gpu;

struct soft__device *soft__current(void)
{
	return &soft__gpu.devices[soft__self.device];
}

void soft__use_device(void)
{
	struct soft__device *d = soft__current();

	if (!d->context)
		soft__log("process %d: context on device %d", (int)getpid(), soft__gpu.physical[soft__self.device]);
	d->context = true;
}

static long long number_of(const char *variable, long long otherwise)
{
	const char *value = getenv(variable);
	char *end;
	long long n;

	if (!value || !*value)
		return otherwise;
	n = strtoll(value, &end, 10);
	if (*end || n < 0)
		soft_gpu_fail("%s: \"%s\" is not a number", variable, value);
	return n;
}

/* Indexes separated by commas; the first that is no device ends the list, as in CUDA. */
static void select_visible(const char *list, int n_physical)
{
	int n = 0;

	while (*list && n < SOFT__MAX_DEVICES) {
		char *end;
		long i = strtol(list, &end, 10);

		if (end == list || (*end && *end != ',') || i < 0 || i >= n_physical)
			break;
		for (int k = 0; k < n; k++) {
			if (soft__gpu.physical[k] == i) { /* a device twice: none is visible */
				soft__gpu.n_devices = 0;
				return;
			}
		}
		soft__gpu.physical[n++] = (int)i;
		list = end + (*end == ',');
	}
	soft__gpu.n_devices = n;
}

void soft__read_environment(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	long long n = number_of("SOFT_GPU_DEVICES", 1);

	if (n > SOFT__MAX_DEVICES)
		soft_gpu_fail("SOFT_GPU_DEVICES: at most %d", SOFT__MAX_DEVICES);
	soft__gpu.driver = (int)number_of("SOFT_GPU_DRIVER", 13000);
	soft__gpu.first_old = (int)(n - number_of("SOFT_GPU_OLD", 0));
	soft__gpu.order = (int)number_of("SOFT_GPU_ORDER", -1);
	soft__gpu.skip = getenv("SOFT_GPU_SKIP");
	soft__gpu.blocking = number_of("CUDA_LAUNCH_BLOCKING", 0) != 0;
	soft__gpu.n_devices = (int)n;
	for (int i = 0; i < n; i++)
		soft__gpu.physical[i] = i;
	if (visible)
		select_visible(visible, (int)n);
	for (int i = 0; i < SOFT__MAX_DEVICES; i++)
		soft__gpu.devices[i].memory = (struct fake_memory){
			.total = (size_t)number_of("SOFT_GPU_MEMORY", 4ll << 30), .circular = true};
}

static cudaError_t get_count(int *count)
{
	*count = 0;
	if (soft__gpu.driver < CUDART_VERSION / 1000 * 1000)
		return cudaErrorInsufficientDriver;
	*count = soft__gpu.n_devices;
	return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	SOFT__CALL(SOFT__NO_DEVICE, get_count(count));
}

static bool is_device(int device)
{
	return device >= 0 && device < soft__gpu.n_devices;
}

static cudaError_t set_device(int device)
{
	int n;
	cudaError_t e = get_count(&n);

	if (e != cudaSuccess)
		return e;
	if (!is_device(device))
		return cudaErrorInvalidDevice;
	soft__self.device = device;
	soft__use_device(); /* as of CUDA 12 */
	return soft__current()->failed;
}

cudaError_t cudaSetDevice(int device)
{
	SOFT__CALL(SOFT__NO_DEVICE, set_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
	(void)device_flags;
	(void)flags;
	SOFT__CALL(SOFT__PLAIN, is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

static cudaError_t set_int(int *out, int value)
{
	*out = value;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
	SOFT__CALL(SOFT__PLAIN, set_int(device, soft__self.device));
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
	(void)flags;
	SOFT__CALL(SOFT__PLAIN, cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version)
{
	SOFT__CALL(SOFT__NO_DEVICE, set_int(version, soft__gpu.driver));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	SOFT__CALL(SOFT__NO_DEVICE, set_int(version, CUDART_VERSION));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	SOFT__CALL(SOFT__PLAIN, set_int(greatest, -5));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = 0;
	SOFT__CALL(SOFT__PLAIN, is_device(device) && is_device(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}

/* Those of an H100 where a program could depend on them. */
static cudaError_t get_properties(struct cudaDeviceProp *p, int device)
{
	int physical;

	if (!is_device(device))
		return cudaErrorInvalidDevice;
	physical = soft__gpu.physical[device];
	*p = (struct cudaDeviceProp){
		.totalGlobalMem = soft__gpu.devices[device].memory.total,
		.sharedMemPerBlock = SHARED_BYTES,
		.sharedMemPerBlockOptin = SHARED_OPTIN_BYTES,
		.sharedMemPerMultiprocessor = SHARED_OPTIN_BYTES + 1024,
		.reservedSharedMemPerBlock = 1024,
		.regsPerBlock = 65536,
		.regsPerMultiprocessor = 65536,
		.warpSize = 32,
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {2147483647, 65535, 65535},
		.maxThreadsPerMultiProcessor = 2048,
		.maxBlocksPerMultiProcessor = 32,
		.totalConstMem = 65536,
		.major = physical < soft__gpu.first_old ? 9 : 7,
		.minor = physical < soft__gpu.first_old ? 0 : 5,
		.multiProcessorCount = N_SM,
		.l2CacheSize = 50 << 20,
		.memoryBusWidth = 5120,
		.concurrentKernels = 1,
		.asyncEngineCount = 3,
		.unifiedAddressing = 1,
		.canMapHostMemory = 1,
		.streamPrioritiesSupported = 1,
		.hostRegisterSupported = 1,
		.pciBusID = physical + 1,
	};
	snprintf(p->name, sizeof(p->name), "Software GPU");
	snprintf(p->uuid.bytes, sizeof(p->uuid.bytes), "soft gpu %d", physical);
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	SOFT__CALL(SOFT__PLAIN, get_properties(p, device));
}

static cudaError_t get_attribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	struct cudaDeviceProp p;
	cudaError_t e = get_properties(&p, device);

	if (e != cudaSuccess)
		return e;
	switch ((int)attribute) {
	case cudaDevAttrMaxThreadsPerBlock:
		return set_int(value, p.maxThreadsPerBlock);
	case cudaDevAttrMaxSharedMemoryPerBlock:
		return set_int(value, (int)p.sharedMemPerBlock);
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		return set_int(value, (int)p.sharedMemPerBlockOptin);
	case cudaDevAttrWarpSize:
		return set_int(value, p.warpSize);
	case cudaDevAttrMultiProcessorCount:
		return set_int(value, p.multiProcessorCount);
	case cudaDevAttrMaxThreadsPerMultiProcessor:
		return set_int(value, p.maxThreadsPerMultiProcessor);
	case cudaDevAttrL2CacheSize:
		return set_int(value, p.l2CacheSize);
	case cudaDevAttrClockRate: /* kHz */
		return set_int(value, 1980000);
	case cudaDevAttrMemoryClockRate: /* kHz */
		return set_int(value, 2619000);
	case cudaDevAttrGlobalMemoryBusWidth: /* bits */
		return set_int(value, 5120);
	case cudaDevAttrAsyncEngineCount:
		return set_int(value, 3);
	case cudaDevAttrComputeCapabilityMajor:
		return set_int(value, p.major);
	case cudaDevAttrComputeCapabilityMinor:
		return set_int(value, p.minor);
	case cudaDevAttrPciBusId:
		return set_int(value, p.pciBusID);
	case cudaDevAttrMemoryPoolsSupported:
		return set_int(value, 0);
	default:
		soft_gpu_fail("cudaDeviceGetAttribute: attribute %d is not known", (int)attribute);
	}
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	SOFT__CALL(SOFT__PLAIN, get_attribute(value, attribute, device));
}

static cudaError_t get_bus_id(char *out, int size, int device)
{
	if (!is_device(device))
		return cudaErrorInvalidDevice;
	if (size < 13)
		return cudaErrorInvalidValue;
	snprintf(out, (size_t)size, "0000:%02X:00.0", (unsigned)soft__gpu.physical[device] + 1);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int device)
{
	SOFT__CALL(SOFT__PLAIN, get_bus_id(out, size, device));
}
