/* Internals of the stand-in for the CUDA runtime. Every function of the CUDA API is SOFT__CALL(flags, static
 * function), which runs an implementation with a lock held. All functions below run with that lock held. */
#ifndef CT_TESTS_SOFT_GPU_RUNTIME_IMPL_H
#define CT_TESTS_SOFT_GPU_RUNTIME_IMPL_H

#include "tests/fake_device/fake_device.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { SOFT__MAX_DEVICES = 8 };

/* ---- call.c: the beginning and the end of a call ---------------------------------------------------- */

enum {
	SOFT__PLAIN = 0,
	SOFT__NO_DEVICE = 1, /* works without a device and after the device's error */
	SOFT__UNSAFE = 2,    /* not allowed in a thread that is capturing */
};
/* Takes the lock, even if it fails. If it fails, the CUDA function does nothing and returns this error. */
cudaError_t soft__enter(const char *function, unsigned flags);
/* Closes device memory, stores e as the thread's last error if it is not cudaSuccess, releases the lock and returns
 * e. */
cudaError_t soft__leave(cudaError_t e);
#define SOFT__CALL(flags, expression)                                 \
	do {                                                          \
		cudaError_t soft__e = soft__enter(__func__, flags);   \
		return soft__leave(soft__e ? soft__e : (expression)); \
	} while (0)
void soft__log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Release the lock, and take it again, around code of the program under test and around sleeping. */
void soft__unlock(void);
void soft__lock(void);

/* The state of one host thread. */
struct soft__self {
	cudaError_t last;       /* cudaGetLastError */
	int device;             /* cudaSetDevice */
	bool in_work;           /* the thread is running posted work */
	bool in_host_function;  /* the thread calls the functions of cudaLaunchHostFunc */
	cudaError_t work_fault; /* the error with which work posted by the current call is to fail */
	const char *function;   /* name of the current call */
};
extern _Thread_local struct soft__self soft__self;

enum soft__object { SOFT__MEMORY, SOFT__PINNED, SOFT__STREAM, SOFT__EVENT, SOFT__GRAPH, SOFT__EXEC, SOFT__N_OBJECTS };
void soft__created(enum soft__object o);
void soft__destroyed(enum soft__object o);

/* ---- device.c --------------------------------------------------------------------------------------- */

struct soft__device {
	struct fake_memory memory;
	bool context;       /* this process has one on the device */
	cudaError_t failed; /* the sticky error of the device */
	cudaStream_t legacy;
};

struct soft__gpu {
	int driver, n_devices; /* number of visible devices */
	int first_old;         /* this physical device and those after it are old (SOFT_GPU_OLD) */
	int order;             /* SOFT_GPU_ORDER, or -1 if it is not set */
	const char *skip;      /* SOFT_GPU_SKIP, or NULL */
	bool blocking;         /* CUDA_LAUNCH_BLOCKING */
	int physical[SOFT__MAX_DEVICES];
	struct soft__device devices[SOFT__MAX_DEVICES];
	struct fake_machine machine;
	uint64_t host_clock[FAKE_MAX_STREAMS]; /* order.c */
};
extern struct soft__gpu soft__gpu;
void soft__read_environment(void);
struct soft__device *soft__current(void);
/* The first use of the current device: CUDA creates a context, which occupies device memory. */
void soft__use_device(void);

/* ---- memory.c, host_memory.c ------------------------------------------------------------------------ */

void soft__close_devices(void);
/* Returns the allocation that contains p, or NULL if there is none. */
struct fake_block *soft__find_block(const void *p, struct soft__device **device);
void soft__check_guards(const char *after);
/* Returns whether [p, p + bytes) is in pinned memory. */
bool soft__is_pinned(const void *p, size_t bytes);
/* Ends the process unless the range is in one allocation of device or pinned memory. */
void soft__check_range(const char *what, const void *p, size_t bytes);

/* ---- work.c: what waits in a stream or is a node of a graph ----------------------------------------- */

struct soft__work {
	struct fake_work base;
	bool host; /* a function of cudaLaunchHostFunc */
	char *name;
	cudaError_t (*run)(void *args);
	void (*start)(void *args);
	void (*release)(void *args);
	void *args;
	struct soft_range *ranges;
	int n_ranges;
	cudaError_t fault; /* the error that SOFT_GPU_FAULT requests */
};
struct soft__work *soft__work_create(const struct soft_work *from);
/* Adds work to the end of the stream, or to its capture. Takes ownership of the caller's reference. */
cudaError_t soft__post(cudaStream_t s, struct soft__work *w);

/* ---- order.c: which work is ordered ----------------------------------------------------------------- */

/* Vector clocks: clock[i] = n means that the first n operations of the stream in slot i precede the operation. */
struct soft__access { /* a range that an operation of a stream declared */
	uint64_t seq;
	struct soft_range range;
	char *name;
};
void soft__merge(uint64_t *clock, const uint64_t *from);
/* soft__order_post adds an operation to the stream's clock, and soft__order_ranges declares the ranges that it
 * accesses. It is a mistake if they overlap with those of another operation and the order of the two operations is not
 * defined. */
void soft__order_post(cudaStream_t s);
void soft__order_ranges(cudaStream_t s, const char *name, const struct soft_range *ranges, int n);
/* Called after the host has waited for the operations that precede this clock. */
void soft__order_host(const uint64_t *clock);
bool soft__overlap(const struct soft_range *a, const struct soft_range *b);

/* ---- stream.c, event.c, schedule.c ------------------------------------------------------------------ */

struct CUstream_st {
	struct fake_stream queue;
	unsigned magic;
	int priority;
	unsigned flags;
	bool dead; /* destroyed, but not yet empty */
	uint64_t seq;
	uint64_t clock[FAKE_MAX_STREAMS];
	struct soft__access *accesses;
	int n_accesses, accesses_capacity;
};

struct CUevent_st {
	unsigned magic, flags;
	int device;
	struct fake_event last; /* its last recording */
};

/* The stream in this slot of soft__gpu.machine. */
cudaStream_t soft__stream_in(int slot);
/* Returns cudaErrorInvalidResourceHandle if the handle is not a stream. NULL means the legacy stream of the current
 * device. */
cudaError_t soft__stream(cudaStream_t handle, cudaStream_t *out);
cudaStream_t soft__stream_create(int device, unsigned flags, int priority);
/* Called before work is posted. Work of the legacy stream waits for all blocking streams, and blocking streams wait for
 * the legacy stream. */
cudaError_t soft__legacy_order(cudaStream_t s);
cudaError_t soft__event_record(cudaEvent_t e, cudaStream_t s);

/* Runs work until the moment m is reached or, if m is NULL, the stream s is empty or, if both are NULL, all streams of
 * the device are empty. Returns the device's error. */
cudaError_t soft__wait(int device, cudaStream_t s, struct fake_moment *m);
/* Runs a random amount of work. Called when the host queries instead of waiting. */
cudaError_t soft__progress(int device);

/* ---- capture.c, graph.c ----------------------------------------------------------------------------- */

struct soft__capture {
	struct fake_capture base;
	enum cudaStreamCaptureMode mode;
	struct soft__self *thread;
	bool invalid;
};
/* Adds the work as a node to the capture of s, which must be capturing. Fails if the capture is invalid. */
cudaError_t soft__capture_work(cudaStream_t s, struct soft__work *w);
cudaError_t soft__capture_record(cudaStream_t s, cudaEvent_t e);
cudaError_t soft__capture_wait(cudaStream_t s, cudaEvent_t e);
/* If a capture forbids an unsafe call by this thread, invalidates the capture and returns the error of the call. */
cudaError_t soft__capture_unsafe(void);
/* Returns the error that posting to the legacy stream causes during a capture. */
cudaError_t soft__capture_implicit(int device);

/* host_function.c: lets the thread of host functions call w, the first work of s. Returns cudaErrorNotReady until it
 * has been called. */
cudaError_t soft__host_run(cudaStream_t s, struct soft__work *w);

/* ---- exec/ ------------------------------------------------------------------------------------------ */

struct soft__grid {
	struct soft_kernel kernel;
	dim3 grid, block;
	size_t shared_bytes;
	int order; /* 0, 1 or 2; see SOFT_GPU_ORDER */
	_Alignas(16) const void *args;
};
/* Executes all blocks of the grid. */
void soft__run_grid(const struct soft__grid *g);

#endif
