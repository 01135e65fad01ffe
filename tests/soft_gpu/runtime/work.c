/* Posted work. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

static void start(struct fake_stream *s, struct fake_work *base)
{
	const struct soft__work *w = (const struct soft__work *)base;

	fake_memory_open(&soft__gpu.devices[s->device].memory);
	w->start(w->args);
	soft__log("start stream %d %s early", s->slot, w->name);
}

struct soft__work *soft__work_create(const struct soft_work *from)
{
	struct soft__work *w = fake_alloc(sizeof(*w));

	*w = (struct soft__work){.base = {.refs = 1, .start = from->start ? start : NULL},
				 .run = from->run,
				 .start = from->start,
				 .release = from->release,
				 .fault = from->fault ? from->fault : soft__self.work_fault};
	soft__self.work_fault = cudaSuccess;
	w->name = fake_alloc(strlen(from->name) + 1);
	memcpy(w->name, from->name, strlen(from->name));
	w->args = fake_alloc(from->args_bytes);
	if (from->args_bytes)
		memcpy(w->args, from->args, from->args_bytes);
	w->ranges = fake_alloc(sizeof(*w->ranges) * (size_t)from->n_ranges);
	for (int i = 0; i < from->n_ranges; i++) {
		if (from->ranges[i].bytes == 0)
			continue;
		soft__check_range(from->name, from->ranges[i].address, from->ranges[i].bytes);
		w->ranges[w->n_ranges++] = from->ranges[i];
	}
	return w;
}

void fake_work_free(struct fake_work *base)
{
	struct soft__work *w = (struct soft__work *)base;

	if (w->release)
		w->release(w->args);
	free(w->name);
	free(w->args);
	free(w->ranges);
	free(w);
}

cudaError_t soft__post(cudaStream_t s, struct soft__work *w)
{
	cudaError_t e;

	if (s->queue.capture) {
		e = soft__capture_work(s, w);
	} else {
		e = soft__legacy_order(s);
		if (e == cudaSuccess) {
			soft__order_post(s);
			soft__order_ranges(s, w->name, w->ranges, w->n_ranges);
			fake_post_work(&s->queue, &w->base);
			return soft__gpu.blocking ? soft__wait(s->queue.device, s, NULL) : cudaSuccess;
		}
	}
	if (e != cudaSuccess)
		fake_work_drop(&w->base);
	return e;
}

static cudaError_t gpu_post(cudaStream_t handle, const struct soft_work *work)
{
	cudaStream_t s;
	cudaError_t e = soft__self.in_host_function ? cudaErrorNotPermitted : soft__current()->failed;

	if (soft__self.in_work)
		soft_gpu_fail("posted work posts %s", work->name);
	if (e == cudaSuccess)
		e = soft__stream(handle, &s);
	if (e == cudaSuccess)
		return soft__post(s, soft__work_create(work));
	soft__self.work_fault = cudaSuccess;
	if (work->release)
		work->release((void *)(uintptr_t)work->args);
	return e;
}

cudaError_t soft_gpu_post(cudaStream_t stream, const struct soft_work *work)
{
	cudaError_t e;

	soft__lock();
	e = gpu_post(stream, work);
	soft__unlock();
	return e;
}
