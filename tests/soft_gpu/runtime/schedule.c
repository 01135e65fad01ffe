/* Selects the stream that has the next turn, and runs its next operation. */
#include <time.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum turn { PROGRESS, LATER, NOTHING };

/* The device does not recover: what waits is dropped. A thread may still be inside the first operation of a busy
 * stream. */
static void fail_device(int device, cudaError_t e)
{
	soft__gpu.devices[device].failed = e;
	for (int i = 0; i < soft__gpu.n_streams; i++) {
		cudaStream_t s = soft__gpu.streams[i];

		while (s->device == device && s->first && !s->busy) {
			if (s->first->kind == SOFT__OP_RECORD)
				soft__moment_reach(s->first->moment);
			soft__pop(s);
		}
	}
}

cudaError_t soft__run_work(struct CUstream_st *s, const struct soft__work *w)
{
	cudaError_t e;

	if (w->fault) {
		soft__log("run stream %d %s -> %d", s->slot, w->name, (int)w->fault);
		return w->fault;
	}
	if (w->kind == SOFT__HOST) {
		e = soft__host_run(s, w);
	} else {
		soft__open_device(&soft__gpu.devices[s->device]);
		soft__self.in_work = true;
		e = w->run(w->args);
		soft__self.in_work = false;
		soft__check_guards(w->name);
	}
	if (e != cudaErrorNotReady)
		soft__log("run stream %d %s -> %d", s->slot, w->name, (int)e);
	return e;
}

static bool can_go(const struct CUstream_st *s)
{
	return s->first && !s->busy && !s->stalled && !(s->first->kind == SOFT__OP_WAIT && !s->first->moment->reached);
}

/* One of the streams that can go on, each with the same probability. */
static cudaStream_t draw_stream(bool held_too)
{
	cudaStream_t chosen = NULL;
	unsigned n = 0;

	for (int i = 0; i < soft__gpu.n_streams; i++) {
		cudaStream_t s = soft__gpu.streams[i];

		if (can_go(s) && (held_too || !s->held) && soft__draw(++n) == 0)
			chosen = s;
	}
	return chosen;
}

static void clear_stalled(void)
{
	for (int i = 0; i < soft__gpu.n_streams; i++)
		soft__gpu.streams[i]->stalled = false;
}

static enum turn turn(void)
{
	cudaStream_t s = draw_stream(false);
	enum soft__step step = SOFT__DONE;
	cudaError_t e = cudaSuccess;

	if (!s)
		s = draw_stream(true);
	if (!s) {
		for (int i = 0; i < soft__gpu.n_streams; i++) {
			if (soft__gpu.streams[i]->stalled || soft__gpu.streams[i]->busy)
				return LATER;
		}
		return NOTHING;
	}
	s->busy = true;
	switch (s->first->kind) {
	case SOFT__OP_RECORD:
		soft__moment_reach(s->first->moment);
		break;
	case SOFT__OP_WAIT:
		break;
	case SOFT__OP_WORK:
		e = soft__run_work(s, s->first->work);
		step = e == cudaErrorNotReady ? SOFT__STALLED : SOFT__DONE;
		break;
	case SOFT__OP_GRAPH:
		step = soft__launch_step(s->first->launch, s, &e);
		break;
	}
	s->busy = false;
	if (step == SOFT__DONE)
		soft__pop(s);
	if (step == SOFT__STALLED)
		s->stalled = true;
	else
		clear_stalled();
	if (e != cudaSuccess && e != cudaErrorNotReady)
		fail_device(s->device, e);
	return PROGRESS;
}

static void sleep_unlocked(void)
{
	soft__close_devices();
	soft__unlock();
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	soft__lock();
	clear_stalled();
}

static bool is_done(int device, const struct CUstream_st *s, const struct soft__moment *m)
{
	if (m)
		return m->reached;
	if (s)
		return !s->first;
	for (int i = 0; i < soft__gpu.n_streams; i++) {
		if (soft__gpu.streams[i]->device == device && soft__gpu.streams[i]->first)
			return false;
	}
	return true;
}

static void draw_held(const struct CUstream_st *wanted)
{
	for (int i = 0; i < soft__gpu.n_streams; i++)
		soft__gpu.streams[i]->held = soft__draw(2) && soft__gpu.streams[i] != wanted;
}

cudaError_t soft__wait(int device, cudaStream_t s, struct soft__moment *m)
{
	if (m)
		soft__moment_keep(m);
	draw_held(s);
	while (!is_done(device, s, m)) {
		switch (turn()) {
		case PROGRESS:
			break;
		case LATER:
			sleep_unlocked();
			break;
		case NOTHING:
			soft_gpu_fail("streams wait for each other");
		}
	}
	if (m)
		soft__order_host(m->clock);
	for (int i = 0; !m && i < soft__gpu.n_streams; i++) {
		if (s ? soft__gpu.streams[i] == s : soft__gpu.streams[i]->device == device)
			soft__order_host(soft__gpu.streams[i]->clock);
	}
	soft__moment_drop(m);
	return soft__gpu.devices[device].failed;
}

cudaError_t soft__progress(int device)
{
	unsigned n = soft__draw(4) ? soft__draw(64) : 0;

	draw_held(NULL);
	while (n-- > 0 && turn() == PROGRESS)
		;
	clear_stalled();
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
