/* Functions of cudaLaunchHostFunc. One thread calls all of them, one after the other, while other streams go on: CUDA
 * permits this, and it finds functions that wait for each other, or that rely on the thread that posted them. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

static struct {
	pid_t process; /* in which the thread was started: after a fork, the child starts its own */
	sem_t wanted;
	struct soft__work *work; /* is running, or done but not yet removed from its stream; NULL: none */
	const struct CUstream_st *stream;
	int device;
	bool done;
} caller;

static void *call_all(void *unused)
{
	(void)unused;
	soft__self.in_host_function = true;
	for (;;) {
		if (sem_wait(&caller.wanted) != 0)
			continue;
		caller.work->run(caller.work->args);
		soft__lock();
		caller.done = true;
		soft__unlock();
	}
	return NULL;
}

static void start(void)
{
	pthread_t thread;

	if (sem_init(&caller.wanted, 0, 0) != 0 || pthread_create(&thread, NULL, call_all, NULL) != 0)
		soft_gpu_fail("cannot start the thread of host functions");
	pthread_detach(thread);
	caller.process = getpid();
}

static void forget(void)
{
	fake_work_drop(&caller.work->base);
	caller.work = NULL;
}

cudaError_t soft__host_run(cudaStream_t s, struct soft__work *w)
{
	if (caller.process != getpid())
		start();
	if (caller.work && caller.done && caller.work == w && caller.stream == s) {
		forget();
		return cudaSuccess;
	}
	/* The work of a failed device has been dropped. */
	if (caller.work && caller.done && soft__gpu.devices[caller.device].failed)
		forget();
	if (caller.work)
		return cudaErrorNotReady;
	caller.work = w;
	(void)fake_work_keep(&w->base);
	caller.stream = s;
	caller.device = s->queue.device;
	caller.done = false;
	soft__close_devices(); /* the function must not access device memory */
	if (sem_post(&caller.wanted) != 0)
		soft_gpu_fail("cannot wake the thread of host functions");
	return cudaErrorNotReady;
}

struct host_call {
	cudaHostFn_t fn;
	void *user;
};

static cudaError_t run_host_function(void *args)
{
	const struct host_call *call = args;

	call->fn(call->user);
	return cudaSuccess;
}

static cudaError_t launch_host_function(cudaStream_t handle, cudaHostFn_t fn, void *user)
{
	struct host_call call = {fn, user};
	struct soft_work work = {
		.name = "host function", .run = run_host_function, .args = &call, .args_bytes = sizeof(call)};
	struct soft__work *w;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess || !fn)
		return e ? e : cudaErrorInvalidValue;
	w = soft__work_create(&work);
	w->host = true;
	return soft__post(s, w);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *user)
{
	SOFT__CALL(SOFT__PLAIN, launch_host_function(s, fn, user));
}
