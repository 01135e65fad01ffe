/* The lock, the call counts, injected faults, the log and the number of live objects. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { MAX_FUNCTIONS = 256, MAX_FAULTS = 32 };

static struct {
	pthread_mutex_t mutex;
	pthread_once_t once;
	FILE *log;
	int n_functions, n_faults;
	struct {
		char name[64];
		int calls;
	} functions[MAX_FUNCTIONS];
	struct {
		char function[64];
		int call, error;
		bool of_work; /* else of the call itself */
	} faults[MAX_FAULTS];
	int live[SOFT__N_OBJECTS];
} calls = {
	/* Recursive: stand-in libraries call back from posted work. */
	.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
	.once = PTHREAD_ONCE_INIT,
};

_Thread_local struct soft__self soft__self;

void soft__lock(void)
{
	pthread_mutex_lock(&calls.mutex);
}

void soft__unlock(void)
{
	pthread_mutex_unlock(&calls.mutex);
}

void soft__log(const char *format, ...)
{
	va_list args;

	if (!calls.log)
		return;
	va_start(args, format);
	vfprintf(calls.log, format, args);
	va_end(args);
	fputc('\n', calls.log);
	fflush(calls.log);
}

void soft_gpu_fail(const char *format, ...)
{
	va_list args;

	fputs("soft gpu: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}
extern __typeof__(soft_gpu_fail) fake_fail __attribute__((alias("soft_gpu_fail")));

void *fake_new(size_t bytes)
{
	return calloc(1, bytes);
}

void fake_delete(void *p)
{
	free(p);
}

/* FUNCTION:N:ERROR or FUNCTION@N:ERROR, separated by commas. */
static void parse_faults(const char *spec)
{
	calls.n_faults = 0;
	while (spec && *spec) {
		size_t name = strcspn(spec, ":@"), whole = strcspn(spec, ",");
		int end = 0, i = calls.n_faults;

		if (i == MAX_FAULTS || name >= whole || name >= sizeof(calls.faults[0].function) ||
		    sscanf(spec + name + 1, "%d:%d%n", &calls.faults[i].call, &calls.faults[i].error, &end) != 2 ||
		    name + 1 + (size_t)end != whole)
			soft_gpu_fail("SOFT_GPU_FAULT: cannot read \"%s\"", spec);
		memcpy(calls.faults[i].function, spec, name);
		calls.faults[i].function[name] = 0;
		calls.faults[i].of_work = spec[name] == '@';
		calls.n_faults++;
		spec += whole + (spec[whole] == ',');
	}
}

static void write_live(void)
{
	if (calls.log)
		soft__log("live memory %d pinned %d streams %d events %d graphs %d execs %d", calls.live[SOFT__MEMORY],
			  calls.live[SOFT__PINNED], calls.live[SOFT__STREAM], calls.live[SOFT__EVENT],
			  calls.live[SOFT__GRAPH], calls.live[SOFT__EXEC]);
}

static void start(void)
{
	const char *seed = getenv("SOFT_GPU_SEED"), *log = getenv("SOFT_GPU_LOG");

	fake_seed(&soft__gpu.machine, seed ? strtoull(seed, NULL, 10) : 1);
	parse_faults(getenv("SOFT_GPU_FAULT"));
	if (log && *log) {
		calls.log = fopen(log, "ae");
		if (!calls.log)
			soft_gpu_fail("SOFT_GPU_LOG: cannot open %s", log);
		atexit(write_live);
	}
	soft__read_environment();
}

/* Counts the call. Returns the error it must return, and stores the one that its work must end with. */
static int count_call(const char *function, int *work_error)
{
	int i = 0, error = 0;

	while (i < calls.n_functions && strcmp(calls.functions[i].name, function) != 0)
		i++;
	if (i == MAX_FUNCTIONS)
		soft_gpu_fail("more than %d different functions", MAX_FUNCTIONS);
	if (i == calls.n_functions) {
		snprintf(calls.functions[i].name, sizeof(calls.functions[i].name), "%s", function);
		calls.functions[i].calls = 0;
		calls.n_functions++;
	}
	calls.functions[i].calls++;
	*work_error = 0;
	for (int f = 0; f < calls.n_faults; f++) {
		if (strcmp(calls.faults[f].function, function) != 0 ||
		    (calls.faults[f].call != 0 && calls.faults[f].call != calls.functions[i].calls))
			continue;
		if (calls.faults[f].of_work)
			*work_error = calls.faults[f].error;
		else
			error = calls.faults[f].error;
	}
	return error;
}

cudaError_t soft__enter(const char *function, unsigned flags)
{
	int work_error, error;

	pthread_once(&calls.once, start);
	soft__lock();
	if (soft__self.in_work)
		soft_gpu_fail("posted work calls %s", function);
	soft__self.function = function;
	error = count_call(function, &work_error);
	soft__self.work_fault = (cudaError_t)work_error;
	if (error)
		return (cudaError_t)error;
	if (soft__self.in_host_function)
		return cudaErrorNotPermitted;
	if (!(flags & SOFT__NO_DEVICE)) {
		if (soft__gpu.driver < CUDART_VERSION / 1000 * 1000)
			return cudaErrorInsufficientDriver;
		if (soft__gpu.n_devices == 0)
			return cudaErrorNoDevice;
		if (soft__current()->failed)
			return soft__current()->failed;
	}
	return flags & SOFT__UNSAFE ? soft__capture_unsafe() : cudaSuccess;
}

cudaError_t soft__leave(cudaError_t e)
{
	soft__close_devices();
	soft__self.work_fault = cudaSuccess;
	if (e != cudaSuccess)
		soft__self.last = e;
	soft__log("call %s -> %d", soft__self.function, (int)e);
	soft__unlock();
	return e;
}

int soft_gpu_call(const char *function)
{
	int work_error, error;

	pthread_once(&calls.once, start);
	soft__lock();
	error = count_call(function, &work_error);
	soft__self.work_fault = (cudaError_t)work_error;
	soft__log("call %s -> %d", function, error);
	soft__unlock();
	return error;
}

cudaError_t soft_gpu_take_fault(void)
{
	cudaError_t e = soft__self.work_fault;

	soft__self.work_fault = cudaSuccess;
	return e;
}

void soft_gpu_set_seed(uint64_t seed)
{
	pthread_once(&calls.once, start);
	soft__lock();
	fake_seed(&soft__gpu.machine, seed);
	soft__unlock();
}

void soft_gpu_set_faults(const char *faults)
{
	pthread_once(&calls.once, start);
	soft__lock();
	parse_faults(faults);
	calls.n_functions = 0;
	soft__unlock();
}

int soft_gpu_calls(const char *function)
{
	int n = 0;

	pthread_once(&calls.once, start);
	soft__lock();
	for (int i = 0; i < calls.n_functions; i++) {
		if (strcmp(calls.functions[i].name, function) == 0)
			n = calls.functions[i].calls;
	}
	soft__unlock();
	return n;
}

int soft_gpu_live(void)
{
	int n = 0;

	pthread_once(&calls.once, start);
	soft__lock();
	for (int i = 0; i < SOFT__N_OBJECTS; i++)
		n += calls.live[i];
	soft__unlock();
	return n;
}

void soft__created(enum soft__object o)
{
	calls.live[o]++;
	soft__use_device();
}

void soft__destroyed(enum soft__object o)
{
	calls.live[o]--;
}

unsigned soft_gpu_draw(unsigned n)
{
	unsigned drawn;

	pthread_once(&calls.once, start);
	soft__lock();
	drawn = fake_draw(&soft__gpu.machine, n);
	soft__unlock();
	return drawn;
}
