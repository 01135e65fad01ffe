/* How work runs when the host waits: the scheduler of the core, with the lock, the log and the clocks of the runtime.
 */
#include <time.h>

#include "tests/pause.h"
#include "tests/soft_gpu/runtime/runtime_impl.h"

void fake_failed(struct fake_stream *s, int error)
{
	soft__gpu.devices[s->device].failed = (cudaError_t)error;
}

int fake_run(struct fake_stream *base, struct fake_work *base_work)
{
	cudaStream_t s = (cudaStream_t)base;
	struct soft__work *w = (struct soft__work *)base_work;
	cudaError_t e;

	if (w->fault) {
		e = w->fault;
	} else if (w->host) {
		e = soft__host_run(s, w);
	} else {
		fake_memory_open(&soft__gpu.devices[base->device].memory);
		soft__self.in_work = true;
		e = w->run(w->args);
		soft__self.in_work = false;
		soft__check_guards(w->name);
	}
	if (e == cudaErrorNotReady)
		return FAKE_NOT_READY;
	soft__log("run stream %d %s -> %d", base->slot, w->name, (int)e);
	return (int)e;
}

void fake_pause(struct fake_machine *m)
{
	(void)m;
	soft__close_devices();
	soft__unlock();
	pause_briefly();
	soft__lock();
}

int64_t fake_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

cudaError_t soft__wait(int device, cudaStream_t s, struct fake_moment *m)
{
	const struct fake_target target = {device, s ? &s->queue : NULL, m};

	if (m)
		(void)fake_moment_keep(m);
	(void)fake_wait(&soft__gpu.machine, &target, FAKE_FOREVER);
	if (m)
		soft__order_host(m->clock);
	for (int i = 0; !m && i < soft__gpu.machine.n_streams; i++) {
		if (s ? soft__stream_in(i) == s : soft__stream_in(i)->queue.device == device)
			soft__order_host(soft__stream_in(i)->clock);
	}
	fake_moment_drop(m);
	return soft__gpu.devices[device].failed;
}

cudaError_t soft__progress(int device)
{
	fake_progress(&soft__gpu.machine);
	return soft__gpu.devices[device].failed;
}

cudaError_t soft_gpu_progress(void)
{
	cudaError_t e;

	soft__lock();
	e = soft__progress(soft__self.device);
	soft__close_devices();
	soft__unlock();
	return e;
}
