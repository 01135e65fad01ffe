/* Work, moments, and the ends of streams. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct soft__work *soft__work_create(const struct soft_work *from, enum soft__kind kind)
{
	struct soft__work *w = soft__alloc(sizeof(*w));

	*w = (struct soft__work){.refs = 1,
				 .kind = kind,
				 .run = from->run,
				 .release = from->release,
				 .fault = from->fault ? from->fault : soft__self.work_fault};
	soft__self.work_fault = cudaSuccess;
	w->name = soft__alloc(strlen(from->name) + 1);
	memcpy(w->name, from->name, strlen(from->name));
	w->args = soft__alloc(from->args_bytes);
	if (from->args_bytes)
		memcpy(w->args, from->args, from->args_bytes);
	w->ranges = soft__alloc(sizeof(*w->ranges) * (size_t)from->n_ranges);
	for (int i = 0; i < from->n_ranges; i++) {
		if (from->ranges[i].bytes == 0)
			continue;
		soft__check_range(from->name, from->ranges[i].address, from->ranges[i].bytes);
		w->ranges[w->n_ranges++] = from->ranges[i];
	}
	return w;
}

void soft__work_drop(struct soft__work *w)
{
	if (--w->refs > 0)
		return;
	if (w->release)
		w->release(w->args);
	free(w->name);
	free(w->args);
	free(w->ranges);
	free(w);
}

struct soft__moment *soft__moment_create(const uint64_t *clock)
{
	struct soft__moment *m = soft__alloc(sizeof(*m));

	m->refs = 1;
	memcpy(m->clock, clock, sizeof(m->clock));
	return m;
}

struct soft__moment *soft__moment_keep(struct soft__moment *m)
{
	m->refs++;
	return m;
}

void soft__moment_drop(struct soft__moment *m)
{
	if (m && --m->refs == 0)
		free(m);
}

void soft__moment_reach(struct soft__moment *m)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	m->ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	m->reached = true;
}

void soft__push(cudaStream_t s, struct soft__op op)
{
	struct soft__op *copy = soft__alloc(sizeof(*copy));

	*copy = op;
	*s->end = copy;
	s->end = &copy->next;
}

void soft__pop(cudaStream_t s)
{
	struct soft__op *op = s->first;

	s->first = op->next;
	if (!s->first)
		s->end = &s->first;
	switch (op->kind) {
	case SOFT__OP_WORK:
		soft__work_drop(op->work);
		break;
	case SOFT__OP_RECORD:
	case SOFT__OP_WAIT:
		soft__moment_drop(op->moment);
		break;
	case SOFT__OP_GRAPH:
		soft__launch_drop(op->launch);
		break;
	}
	free(op);
}

cudaError_t soft__post(cudaStream_t s, struct soft__work *w)
{
	cudaError_t e;

	if (s->capture) {
		e = soft__capture_work(s, w);
	} else {
		e = soft__legacy_order(s);
		if (e == cudaSuccess) {
			soft__order_post(s);
			soft__order_ranges(s, w->name, w->ranges, w->n_ranges);
			soft__push(s, (struct soft__op){.kind = SOFT__OP_WORK, .work = w});
			return soft__gpu.blocking ? soft__wait(s->device, s, NULL) : cudaSuccess;
		}
	}
	if (e != cudaSuccess)
		soft__work_drop(w);
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
		return soft__post(s, soft__work_create(work, SOFT__RUN));
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
