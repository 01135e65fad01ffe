/* Internals of the stand-in for NCCL. One lock protects the communicators of the process. No function holds it while it
 * calls the software GPU, because posted work, which runs with the lock of the software GPU held, takes it. */
#ifndef CT_TESTS_SOFT_GPU_NCCL_IMPL_H
#define CT_TESTS_SOFT_GPU_NCCL_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <nccl.h>

#include "tests/soft_gpu/soft_gpu.h"

enum {
	SOFT__MAX_RANKS = 16,
	SOFT__SLOT_BYTES = 256 << 10, /* of one rank in one round of a collective */
	SOFT__PAIR_BYTES = 64 << 10,  /* of one message from one rank to another */
	SOFT__MAX_OPS = 16,           /* of ncclRedOpCreatePreMulSum, per communicator */
	SOFT__MAX_WINDOWS = 16,       /* that are being registered at the same time */
};

/* ---- log.c ------------------------------------------------------------------------------------------ */

void soft__lock(void);
void soft__unlock(void);
/* Print as NCCL does, according to NCCL_DEBUG and NCCL_DEBUG_FILE. soft__warn stores the message for
 * ncclGetLastError. */
void soft__log_device(int device); /* that later lines name */
void soft__log_version(int rank);
void soft__info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void soft__warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "soft nccl: ..." on standard error, and stores the message. */
void soft__report(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *soft__alloc(size_t bytes); /* zeroed; ends the process if there is no memory */
void soft__nap(void);

/* ---- segment.c: memory that the ranks of a communicator share --------------------------------------- */

enum soft__kind {
	SOFT__ALL_REDUCE,
	SOFT__REDUCE,
	SOFT__BROADCAST,
	SOFT__ALL_GATHER,
	SOFT__REDUCE_SCATTER,
	SOFT__SEND,
	SOFT__RECV,
	SOFT__N_KINDS
};

/* What a rank calls. The ranks must agree. */
struct soft__call {
	uint32_t kind, type, op;
	int32_t root;
	uint64_t count;
	uint32_t capture; /* 0: not captured; else, of a collective, the number of the capture (struct soft__tape) */
};

struct soft__member {
	atomic_uint joined, aborted, left; /* left: the rank does not use the memory any more */
	int32_t pid;
	uint64_t host, device;
	/* Collectives proceed in rounds. In each, a rank writes its slot when all members have read the previous
	 * contents, and reads the slots of the others when they have written. */
	atomic_ullong wrote, read;
	struct soft__call call;
	/* Registration of windows: their number, and the sizes of the last ones. */
	atomic_uint windows;
	uint64_t window_bytes[SOFT__MAX_WINDOWS];
	/* Splits: number of calls of ncclCommSplit, number of them for which this rank has read the colors of all
	 * ranks, arguments of the last one, and the id of the new communicator. */
	atomic_uint splits, split_ids;
	int32_t color, key;
	ncclUniqueId split_id;
};

struct soft__pair { /* messages from one rank to another */
	atomic_ullong wrote, read;
	struct soft__call call;
};

struct soft__segment {
	uint64_t nonce;
	atomic_int n_ranks; /* 0: no rank has joined */
	atomic_uint n_joined;
	struct soft__member members[SOFT__MAX_RANKS];
	struct soft__pair pairs[SOFT__MAX_RANKS][SOFT__MAX_RANKS]; /* [from][to] */
};

/* All of these are called with the lock held. */
ncclResult_t soft__segment_create(ncclUniqueId *id);
/* Opens the segment and joins as a rank. */
ncclResult_t soft__segment_join(const ncclUniqueId *id, int n_ranks, int rank, struct soft__segment **out, int *fd);
void soft__segment_leave(struct soft__segment *s, int fd, int rank);
/* Closes the file of a segment that this process created, once all ranks have joined. */
void soft__segment_complete(const struct soft__segment *s);
char *soft__slot(struct soft__segment *s, int rank);
char *soft__pair_data(struct soft__segment *s, int from, int to);
/* Returns whether the process of the rank, which has joined, has ended. */
bool soft__is_lost(int fd, int rank);

/* ---- comm.c, init.c, split.c, end.c ----------------------------------------------------------------- */

enum soft__phase { SOFT__JOINING, SOFT__READY, SOFT__FINALIZING, SOFT__FINALIZED };

struct soft__job;

struct soft__tape { /* the jobs of a communicator in one capture, in order */
	struct soft__tape *next;
	unsigned capture;
	unsigned number; /* among the captures with collectives of the communicator; 0: it has none */
	int n_jobs, at;  /* at: index of the job that runs next */
};

/* Registered memory. NCCL's window is a pointer to it. */
struct ncclWindow_vidmem {
	struct ncclWindow_vidmem *next;
	void *memory;
	size_t bytes;
	unsigned number;   /* of the window, from 1; 0: a buffer that only this rank registered */
	ncclWindow_t *out; /* not NULL: to be stored when all ranks have registered the window */
};

struct soft__op { /* of ncclRedOpCreatePreMulSum */
	bool exists;
	ncclDataType_t type;
	const void *scalar_at; /* on the device; NULL: scalar */
	char scalar[8];
};

struct ncclComm {
	struct ncclComm *next; /* of the communicators that the program can use */
	int refs;              /* by the program and by jobs */
	int rank, n_ranks, device, fd;
	bool blocking, aborted, destroyed;
	enum soft__phase phase;
	struct soft__segment *segment;
	ncclResult_t error; /* of ncclCommGetAsyncError */
	/* Jobs that were posted outside of captures; they run in this order. */
	struct soft__job *first, **end;
	struct soft__tape *tapes;
	unsigned n_captures; /* with collectives */
	int n_captured;      /* jobs in graphs */
	/* For a communicator that does not block: a job that will be posted after this number of polls. */
	struct soft__job *deferred;
	unsigned polls;
	struct ncclWindow_vidmem *registered;
	struct soft__split *split; /* in progress */
	unsigned n_windows;
	struct soft__op ops[SOFT__MAX_OPS];
	unsigned serial; /* number of the communicator in the process */
	unsigned long long rounds, sent[SOFT__MAX_RANKS], received[SOFT__MAX_RANKS];
	int n_ended; /* jobs */
};

/* Returns ncclInProgress or the asynchronous error. Proceeds with what is in progress. */
ncclResult_t soft__poll(ncclComm_t c);
/* Returns an error unless the communicator can be used. Ends the process if there is no such communicator. */
ncclResult_t soft__ready(ncclComm_t c, const char *function);
void soft__check_comm(ncclComm_t c, const char *function);
ncclResult_t soft__wait_ready(ncclComm_t c);
/* Stores the choice of config, which may be NULL. */
ncclResult_t soft__check_config(const ncclConfig_t *config, bool *blocking);
struct soft__place {
	int device;
	uint64_t host, bus;
};
/* With the lock held: creates a communicator, which the program cannot use until it is published. */
ncclResult_t soft__comm_create(ncclComm_t *out, const ncclUniqueId *id, int n_ranks, int rank,
			       const struct soft__place *place);
void soft__comm_publish(ncclComm_t c);
void soft__split_proceed(ncclComm_t c);
void soft__split_free(ncclComm_t c);
/* With the lock held: soft__comm_forget takes the communicator from the program. */
void soft__comm_drop(ncclComm_t c);
void soft__comm_forget(ncclComm_t c);

/* ---- memory.c --------------------------------------------------------------------------------------- */

/* With the lock held: completes the registration of windows that all ranks have registered. */
void soft__windows_proceed(ncclComm_t c);
/* Returns whether a registration is in progress. */
bool soft__windows_pending(const ncclComm_t c);
void soft__registered_free(ncclComm_t c);
/* Returns whether the memory is in a window. */
bool soft__in_window(const ncclComm_t c, const void *memory, size_t bytes);

/* ---- group.c: from calls to posted work ------------------------------------------------------------- */

struct soft__task {
	struct soft__call call;
	const char *name;
	const void *send; /* NULL: this rank sends nothing */
	void *recv;       /* NULL: this rank receives nothing */
	size_t send_bytes, recv_bytes;
	cudaStream_t stream;
	cudaError_t fault; /* with which the work is to fail */
	/* What is sent is multiplied by an element of the call's type: scalar, or *scalar_at on the device. */
	bool scaled;
	const void *scalar_at;
	char scalar[8];
	/* Progress. */
	char *seen; /* [send_bytes] what an operation read that began early; else NULL */
	size_t at;  /* elements */
	bool wrote, ended;
};

struct soft__job { /* the tasks of a group for one communicator: collectives first, then messages */
	struct soft__job *next;
	ncclComm_t comm;
	struct soft__tape *tape; /* NULL: not captured */
	int index;               /* in the tape */
	bool queued;
	unsigned capture; /* when the job was called */
	cudaError_t fault;
	cudaStream_t stream;
	int n_tasks, capacity;
	struct soft__task *tasks;
};

bool soft__in_group(void);
ncclResult_t soft__group_fail(ncclResult_t e);
void soft__group_add_wait(ncclComm_t c);
/* Adds the tasks to the current group or, if there is none, posts them. */
ncclResult_t soft__submit(ncclComm_t c, const struct soft__task *tasks, int n);
ncclResult_t soft__post(struct soft__job *job);

/* ---- redop.c ---------------------------------------------------------------------------------------- */

/* Makes the task a reduction with this operator. */
ncclResult_t soft__set_op(struct soft__task *t, ncclRedOp_t handle, ncclComm_t c);

/* ---- exchange.c, reduce.c: work that runs ----------------------------------------------------------- */

bool soft__is_message(const struct soft__task *t);
cudaError_t soft__run_job(void *args);
void soft__start_job(void *args); /* before the preceding work has ended */
void soft__release_job(void *args);
size_t soft__type_bytes(ncclDataType_t t); /* 0: no such type */
const char *soft__type_name(uint32_t t);
bool soft__can_reduce(ncclDataType_t t);
/* to[i] = from[i] times the scalar, for i < n. */
void soft__scale(uint32_t type, const void *scalar, const char *from, char *to, size_t n);
/* Stores 1 / n_ranks, as ncclAvg needs it. Returns false for types that are divided after the sum. */
bool soft__average(ncclDataType_t type, int n_ranks, char scalar[8]);
/* to[i] = the reduction over the ranks' elements from[r][i], in the order of ranks, for i < n. */
void soft__reduce(const struct soft__call *call, int n_ranks, const char *const *from, char *to, size_t n);

/* ---- fault.c: SOFT_NCCL_* --------------------------------------------------------------------------- */

enum soft__fault {
	SOFT__FAULT_INIT,
	SOFT__FAULT_STUCK,
	SOFT__FAULT_ERROR,
	SOFT__FAULT_WRONG,
	SOFT__FAULT_EARLY,
	SOFT__N_FAULTS
};
/* Returns the number N and the error of the fault that is requested for the rank, or false. */
bool soft__fault_of(enum soft__fault f, int rank, int *n, int *error);
bool soft__mismatch_hangs(void);
bool soft__lost_is_error(void);

#endif
