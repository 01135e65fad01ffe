/* Errors of CUDA, and the wait that finds them. CUDA has two kinds of errors. Those of a call are returned once and
 * must be removed with cudaGetLastError, or an unrelated call would return them again. Those of work that ran on the
 * GPU (ct__cuda_is_permanent) are returned by every later call, so they are reported where they are first seen, with
 * the names of the work that may have failed (notes.c), and not repeated when something is released.
 *
 * ct__cuda_wait calls the checks of the device once more after the work is done, because work that a communicator has
 * aborted also ends without an error, but with wrong results. A host function that has failed shortens the deadline of
 * a wait in progress: what is left does not wait for the host any more, and needs little time. */
#define CT_LOG_COMPONENT "cuda"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/device/cuda/cuda_impl.h"
#include "base/log.h"
#include "base/mem.h"

enum { SPIN_NS = 200 * 1000, PAUSE_NS = 50 * 1000 };
#define FAILED_NS CT_SEC /* how long work may take that does not wait for the host any more */

static enum ct_status status_of(cudaError_t e)
{
	switch (e) {
	case cudaSuccess:
		return CT_OK;
	case cudaErrorMemoryAllocation:
		return CT_NOMEM;
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorSystemNotReady:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorCompatNotSupportedOnDevice:
		return CT_UNSUPPORTED;
	default:
		return CT_DEVICE;
	}
}

bool ct__cuda_is_permanent(cudaError_t e)
{
	switch (e) {
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchFailure:
	case cudaErrorLaunchTimeout:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorInvalidPc:
	case cudaErrorIllegalInstruction:
	case cudaErrorAssert:
	case cudaErrorECCUncorrectable:
	case cudaErrorHardwareStackError:
	case cudaErrorNvlinkUncorrectable:
	case cudaErrorContained:
	case cudaErrorExternalDevice:
		return true;
	default:
		return false;
	}
}

static const char *hint_of(cudaError_t e)
{
	switch (e) {
	case cudaErrorMemoryAllocation:
		return "use a smaller batch.per_rank (train.accumulate keeps the global batch; batch.eval is the batch of evaluations); `nvidia-smi` lists the processes that use the GPU";
	case cudaErrorDevicesUnavailable:
		return "another process uses the GPU exclusively: `nvidia-smi` lists the processes";
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchFailure:
	case cudaErrorMisalignedAddress:
	case cudaErrorIllegalInstruction:
		return "this is a bug in ctrain or in a library; `CUDA_LAUNCH_BLOCKING=1 ctrain CONFIG train.cuda_graph=off` names the kernel; compute-sanitizer finds its line";
	case cudaErrorECCUncorrectable:
	case cudaErrorHardwareStackError:
	case cudaErrorNvlinkUncorrectable:
	case cudaErrorContained:
		return "the GPU reports a hardware error: see `nvidia-smi -q` and the system log";
	case cudaErrorNoKernelImageForDevice:
		return CT__CUDA_NEEDS;
	default:
		return NULL;
	}
}

enum ct_status ct_cuda_check(int error, const char *what)
{
	const cudaError_t e = (cudaError_t)error;
	enum ct_status st = status_of(e);

	if (st == CT_OK)
		return CT_OK;
	(void)cudaGetLastError(); /* an error that is not sticky is reported once */
	CT_FAIL(st, "CUDA: %s: %s: %s", what, cudaGetErrorName(e), cudaGetErrorString(e));
	if (hint_of(e))
		ct_error_hint("%s", hint_of(e));
	return st;
}

void ct_cuda_explain(int error, const char *function, char *why, size_t why_len)
{
	const cudaError_t e = (cudaError_t)error;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = 0, runtime = 0;

	(void)cudaGetLastError();
	if (e == cudaErrorInsufficientDriver) {
		(void)cudaDriverGetVersion(&driver);
		(void)cudaRuntimeGetVersion(&runtime);
	}
	if (e == cudaErrorInsufficientDriver && driver == 0)
		snprintf(why, why_len, "no NVIDIA driver is installed");
	else if (e == cudaErrorInsufficientDriver)
		snprintf(why, why_len,
			 "the NVIDIA driver supports CUDA up to %d.%d, but the CUDA runtime is %d.%d (on data-center "
			 "GPUs, the package cuda-compat-13-0 may help: see docs/GPU.md)",
			 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	else if (e == cudaErrorSystemDriverMismatch)
		snprintf(why, why_len,
			 "the NVIDIA driver and libcuda.so.1 do not belong together: use the package cuda-compat only "
			 "with older drivers (LD_LIBRARY_PATH)");
	else if (e == cudaErrorNoDevice && visible)
		snprintf(why, why_len, "no GPU is visible (CUDA_VISIBLE_DEVICES=%.40s)", visible);
	else if (e == cudaErrorNoDevice)
		snprintf(why, why_len, "the NVIDIA driver finds no GPU");
	else
		snprintf(why, why_len, "%s: %s: %s", function, cudaGetErrorName(e), cudaGetErrorString(e));
}

enum ct_status ct__cuda_not_recording(const struct cuda_device *d, const char *what)
{
	return d->recording ? CT_FAIL(CT_BUG, "%s while CUDA device %d records", what, d->index) : CT_OK;
}

void ct__cuda_released(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	(void)cudaGetLastError();
	if (ct_error_status() == CT_OK && !ct__cuda_is_permanent(e))
		CT_WARN("CUDA: %s: %s: %s", what, cudaGetErrorName(e), cudaGetErrorString(e));
}

enum ct_status ct__cuda_work_failed(const struct cuda_device *d, cudaError_t e, const char *function)
{
	struct ct_str what = {0};

	ct_str_add(&what, function);
	ct__cuda_suspects(d, &what);
	enum ct_status st = ct_cuda_check(e, ct_str_text(&what));
	ct_str_release(&what);
	return st;
}

static enum ct_status run_checks(const struct cuda_device *d, int64_t waited_ns)
{
	for (int i = 0; i < d->base.n_checks; i++)
		CT_TRY(d->base.checks[i].check(d->base.checks[i].arg, waited_ns));
	return CT_OK;
}

enum ct_status ct__cuda_wait(struct cuda_device *d, cudaError_t (*poll)(void *object), void *object,
			     const char *function, int64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	const int64_t start = ct_now_ns();
	int64_t now = start;
	bool failed = false;

	for (;;) {
		cudaError_t e = poll(object);

		if (e != cudaErrorNotReady && e != cudaSuccess)
			return ct__cuda_work_failed(d, e, function);
		CT_TRY(run_checks(d, now - start));
		if (e == cudaSuccess)
			return ct__cuda_failure(d);
		now = ct_now_ns();
		if (!failed && atomic_load(&d->failed)) {
			failed = true;
			deadline_ns = deadline_ns < now + FAILED_NS ? deadline_ns : now + FAILED_NS;
		}
		if (failed && now >= deadline_ns)
			return ct__cuda_failure(d);
		if (deadline_ns != CT_FOREVER && now >= deadline_ns)
			return CT_FAIL(CT_TIMEOUT, "the GPU has not finished in time (%s)", function);
		if (now - start > SPIN_NS)
			nanosleep(&pause, NULL);
	}
}
