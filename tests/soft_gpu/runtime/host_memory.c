/* Pinned host memory, and the kind of memory to which a pointer points. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct pinned {
	struct fake_block block;
	bool registered; /* the caller's memory */
};
static struct fake_block *all;

static struct pinned *find(const void *p)
{
	return (struct pinned *)fake_block_find(all, p);
}

static void add(char *at, size_t bytes, bool registered)
{
	struct pinned *b = fake_alloc(sizeof(*b));

	*b = (struct pinned){{all, at, bytes}, registered};
	all = &b->block;
	soft__created(SOFT__PINNED);
}

static cudaError_t host_alloc(void **out, size_t bytes)
{
	size_t rounded = (bytes + 4095) / 4096 * 4096;

	*out = NULL;
	if (bytes == 0)
		return cudaSuccess;
	if (rounded < bytes || posix_memalign(out, 4096, bytes) != 0)
		return cudaErrorMemoryAllocation;
	memset(*out, 0xFF, bytes);
	add(*out, bytes, false);
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
	SOFT__CALL(SOFT__UNSAFE, host_alloc(out, bytes));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
	(void)flags;
	SOFT__CALL(SOFT__UNSAFE, host_alloc(out, bytes));
}

/* Waits for posted work, which may use the memory. Works also after the device's error. */
static cudaError_t remove_block(void *p, bool registered)
{
	struct fake_block **link;
	struct pinned *b;
	cudaError_t e = cudaSuccess;

	if (!p && !registered)
		return cudaSuccess;
	b = find(p);
	if (!b || b->block.at != p || b->registered != registered)
		return registered ? cudaErrorHostMemoryNotRegistered : cudaErrorInvalidValue;
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		cudaError_t one = soft__wait(i, NULL, NULL);

		e = e ? e : one;
	}
	for (link = &all; *link != &b->block; link = &(*link)->next)
		;
	*link = b->block.next;
	if (!registered)
		free(p);
	free(b);
	soft__destroyed(SOFT__PINNED);
	return e;
}

cudaError_t cudaFreeHost(void *p)
{
	SOFT__CALL(SOFT__UNSAFE | SOFT__NO_DEVICE, remove_block(p, false));
}

static cudaError_t host_register(void *p, size_t bytes)
{
	if (!p || !bytes)
		return cudaErrorInvalidValue;
	if (find(p) || find((char *)p + bytes - 1))
		return cudaErrorHostMemoryAlreadyRegistered;
	add(p, bytes, true);
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	SOFT__CALL(SOFT__UNSAFE, host_register(p, bytes));
}

cudaError_t cudaHostUnregister(void *p)
{
	SOFT__CALL(SOFT__UNSAFE | SOFT__NO_DEVICE, remove_block(p, true));
}

static cudaError_t device_pointer(void **out, void *p)
{
	*out = find(p) ? p : NULL;
	return *out ? cudaSuccess : cudaErrorInvalidValue;
}

/* The device uses the addresses of the host. */
cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags)
{
	(void)flags;
	SOFT__CALL(SOFT__PLAIN, device_pointer(out, p));
}

bool soft__is_pinned(const void *p, size_t bytes)
{
	return fake_block_contains(fake_block_find(all, p), p, bytes);
}

void soft__check_range(const char *what, const void *p, size_t bytes)
{
	const struct fake_block *b = soft__find_block(p, NULL);

	if (bytes == 0 || soft__is_pinned(p, bytes) || fake_block_contains(b, p, bytes))
		return;
	if (b)
		soft_gpu_fail("%s: [%p, +%zu) goes %zu bytes past the end of an allocation of %zu bytes", what, p,
			      bytes, bytes - (size_t)(b->at + b->bytes - (const char *)p), b->bytes);
	soft_gpu_fail("%s: [%p, +%zu) is not in an allocation", what, p, bytes);
}

static cudaError_t pointer_attributes(struct cudaPointerAttributes *a, const void *p)
{
	struct soft__device *d;
	const struct pinned *b = find(p);

	*a = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
	if (soft__find_block(p, &d)) {
		a->type = cudaMemoryTypeDevice;
		a->device = (int)(d - soft__gpu.devices);
		a->devicePointer = (void *)(uintptr_t)p;
	} else if (b) {
		a->type = cudaMemoryTypeHost;
		a->device = soft__self.device;
		a->devicePointer = a->hostPointer = (void *)(uintptr_t)p;
	}
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
	SOFT__CALL(SOFT__PLAIN, pointer_attributes(a, p));
}
