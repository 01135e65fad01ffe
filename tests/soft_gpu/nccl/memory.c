/* Memory for communication, and its registration. Registration has no effect on operations; its rules are checked. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

struct allocation {
	struct allocation *next;
	char *memory;
	size_t bytes;
};

static struct allocation *allocations; /* of ncclMemAlloc */

static struct allocation **find_allocation(const void *p)
{
	struct allocation **link = &allocations;

	while (*link && !((const char *)p >= (*link)->memory && (const char *)p < (*link)->memory + (*link)->bytes))
		link = &(*link)->next;
	return link;
}

ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
	int failed = soft_gpu_call(__func__);
	struct allocation *a;

	if (failed)
		return (ncclResult_t)failed;
	if (!out || soft_gpu_alloc(out, bytes, NCCL_WIN_REQUIRED_ALIGNMENT) != cudaSuccess) {
		soft__warn("ncclMemAlloc of %zu bytes failed", bytes);
		return ncclUnhandledCudaError;
	}
	a = soft__alloc(sizeof(*a));
	a->memory = *out;
	a->bytes = bytes;
	soft__lock();
	a->next = allocations;
	allocations = a;
	soft__unlock();
	return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
	int failed = soft_gpu_call(__func__);
	struct allocation **link, *a;

	if (failed || !p)
		return (ncclResult_t)failed;
	soft__lock();
	link = find_allocation(p);
	a = *link;
	if (a && a->memory == p)
		*link = a->next;
	soft__unlock();
	if (!a || a->memory != p)
		soft_gpu_fail("ncclMemFree: %p is not memory of ncclMemAlloc", p);
	free(a);
	return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static struct ncclWindow_vidmem *add(ncclComm_t c, void *memory, size_t bytes)
{
	struct ncclWindow_vidmem *w = soft__alloc(sizeof(*w));

	*w = (struct ncclWindow_vidmem){.next = c->registered, .memory = memory, .bytes = bytes};
	c->registered = w;
	return w;
}

void soft__registered_free(ncclComm_t c)
{
	while (c->registered) {
		struct ncclWindow_vidmem *next = c->registered->next;

		free(c->registered);
		c->registered = next;
	}
}

bool soft__in_window(const ncclComm_t c, const void *memory, size_t bytes)
{
	const char *p = memory;

	for (const struct ncclWindow_vidmem *w = c->registered; w; w = w->next) {
		const char *begin = w->memory;

		if (w->number > 0 && p >= begin && p + bytes <= begin + w->bytes)
			return true;
	}
	return false;
}

static ncclResult_t deregister(const char *function, ncclComm_t c, const struct ncclWindow_vidmem *w)
{
	int failed = soft_gpu_call(function);
	struct ncclWindow_vidmem **link, *found;

	if (failed || !w)
		return (ncclResult_t)failed;
	if (!c)
		return ncclInvalidArgument;
	soft__check_comm(c, function);
	soft__lock();
	link = &c->registered;
	while (*link && *link != w)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	soft__unlock();
	if (!found)
		soft_gpu_fail("%s: the communicator has no registration %p", function, (const void *)w);
	if (!soft_gpu_is_device(found->memory, found->bytes))
		soft_gpu_fail("%s: the registered memory was released", function);
	free(found);
	return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *memory, size_t bytes, void **handle)
{
	int failed = soft_gpu_call(__func__);

	if (failed)
		return (ncclResult_t)failed;
	if (!c || !handle)
		return ncclInvalidArgument;
	soft__check_comm(c, __func__);
	if (!soft_gpu_is_device(memory, bytes))
		soft_gpu_fail("ncclCommRegister: [%p, +%zu) is not in one allocation of device memory", memory, bytes);
	soft__lock();
	*handle = add(c, memory, bytes);
	soft__unlock();
	return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle)
{
	return deregister(__func__, c, handle);
}

static ncclResult_t check_window(const char *memory, size_t bytes)
{
	const struct allocation *a;
	bool is_aligned, fits;

	soft__lock();
	a = *find_allocation(memory);
	is_aligned = a && (memory - a->memory) % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
	fits = a && bytes <= (size_t)(a->memory + a->bytes - memory);
	soft__unlock();
	if (!a) {
		soft__warn("Cuda failure 1 'invalid argument': %p is not memory of ncclMemAlloc", (const void *)memory);
		return ncclUnhandledCudaError;
	}
	if (!fits)
		soft_gpu_fail("ncclCommWindowRegister: [%p, +%zu) is not in one allocation", (const void *)memory,
			      bytes);
	if (!is_aligned) {
		soft__warn("Window address must be suitably aligned.");
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}

/* Without windows, NCCL succeeds and returns none. */
static bool makes_windows(void)
{
	const char *value = getenv("NCCL_WIN_ENABLE");

	return !value || strcmp(value, "0") != 0;
}

static ncclResult_t window_register(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *out)
{
	ncclResult_t e = soft__ready(c, "ncclCommWindowRegister");
	struct soft__member *me;
	struct ncclWindow_vidmem *w;

	if (!e && !out)
		e = ncclInvalidArgument;
	if (!e)
		*out = NULL;
	if (e || !memory || bytes == 0 || !makes_windows())
		return e;
	e = check_window(memory, bytes);
	if (e)
		return e;
	soft__lock();
	me = &c->segment->members[c->rank];
	w = add(c, memory, bytes);
	w->number = ++c->n_windows;
	w->out = out;
	me->window_bytes[w->number % SOFT__MAX_WINDOWS] = bytes;
	me->windows = w->number;
	soft__unlock();
	if (!c->blocking)
		return ncclSuccess; /* ncclCommGetAsyncError reports ncclInProgress */
	if (soft__in_group()) {
		soft__group_add_wait(c);
		return ncclSuccess;
	}
	return soft__wait_ready(c);
}

/* The flags choose kernels, which do not exist here. */
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *out, int flags)
{
	int failed = soft_gpu_call(__func__);

	(void)flags;
	return soft__group_fail(failed ? (ncclResult_t)failed : window_register(c, memory, bytes, out));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w)
{
	return deregister(__func__, c, w);
}

bool soft__windows_pending(const ncclComm_t c)
{
	for (const struct ncclWindow_vidmem *w = c->registered; w; w = w->next) {
		if (w->out)
			return true;
	}
	return false;
}

static bool all_registered(const ncclComm_t c, const struct ncclWindow_vidmem *w)
{
	for (int r = 0; r < c->n_ranks; r++) {
		if (c->segment->members[r].windows < w->number)
			return false;
	}
	return true;
}

void soft__windows_proceed(ncclComm_t c)
{
	for (struct ncclWindow_vidmem *w = c->registered; w; w = w->next) {
		if (!w->out || !all_registered(c, w))
			continue;
		for (int r = 0; r < c->n_ranks; r++) {
			uint64_t theirs = c->segment->members[r].window_bytes[w->number % SOFT__MAX_WINDOWS];

			if (theirs == w->bytes || soft__mismatch_hangs())
				continue;
			soft__report("the ranks of a communicator disagree: rank %d registers a window of %zu bytes, "
				     "and rank %d one of %llu",
				     c->rank, w->bytes, r, (unsigned long long)theirs);
			c->error = ncclInvalidUsage;
		}
		*w->out = w;
		w->out = NULL;
	}
}
