/* Device memory: CUDA's functions for the memory of the core. */
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

void soft__close_devices(void)
{
	for (int i = 0; i < soft__gpu.n_devices; i++)
		fake_memory_close(&soft__gpu.devices[i].memory);
}

static cudaError_t mem_alloc(void **out, size_t bytes, size_t alignment)
{
	*out = bytes ? fake_memory_alloc(&soft__current()->memory, bytes, alignment) : NULL;
	if (*out)
		soft__created(SOFT__MEMORY);
	return *out || !bytes ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	SOFT__CALL(SOFT__UNSAFE, mem_alloc(out, bytes, FAKE_ALIGNMENT));
}

cudaError_t soft_gpu_alloc(void **out, size_t bytes, size_t alignment)
{
	SOFT__CALL(SOFT__UNSAFE, mem_alloc(out, bytes, alignment));
}

struct fake_block *soft__find_block(const void *p, struct soft__device **device)
{
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		struct fake_block *b = fake_block_find(soft__gpu.devices[i].memory.blocks, p);

		if (b && device)
			*device = &soft__gpu.devices[i];
		if (b)
			return b;
	}
	return NULL;
}

/* Also after the device's error, so that a program can give back what it has. */
static cudaError_t mem_free(char *p)
{
	struct soft__device *d;
	struct fake_block *b;
	cudaError_t e;

	if (!p)
		return cudaSuccess;
	b = soft__find_block(p, &d);
	if (!b || b->at != p)
		return cudaErrorInvalidValue;
	e = soft__wait((int)(d - soft__gpu.devices), NULL, NULL);
	(void)fake_memory_free(&d->memory, p);
	soft__destroyed(SOFT__MEMORY);
	return e;
}

cudaError_t cudaFree(void *p)
{
	SOFT__CALL(SOFT__UNSAFE | SOFT__NO_DEVICE, mem_free(p));
}

void soft__check_guards(const char *after)
{
	for (int i = 0; i < soft__gpu.n_devices; i++) {
		const struct fake_memory *m = &soft__gpu.devices[i].memory;
		size_t distance;
		const struct fake_block *b = m->open ? fake_memory_overrun(m, &distance) : NULL;

		if (b == &fake_memory_before)
			soft_gpu_fail("%s wrote before the first allocation", after);
		if (b)
			soft_gpu_fail("%s wrote after the end of an allocation of %zu bytes", after, b->bytes);
	}
}

bool soft_gpu_is_device(const void *p, size_t bytes)
{
	bool inside;

	soft__lock();
	inside = fake_block_contains(soft__find_block(p, NULL), p, bytes);
	soft__unlock();
	return inside;
}

static cudaError_t get_info(size_t *free_bytes, size_t *total)
{
	*total = soft__current()->memory.total;
	*free_bytes = *total - soft__current()->memory.used;
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	SOFT__CALL(SOFT__PLAIN, get_info(free_bytes, total));
}
