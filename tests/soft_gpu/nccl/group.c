/* Groups of calls, and the jobs that they post. A call outside of a group is a group of one call. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

enum { MAX_WAITS = 64 };

static _Thread_local struct {
	int depth;
	ncclResult_t error;
	struct soft__job *jobs; /* at most one for each communicator */
	int n_waits;
	ncclComm_t waits[MAX_WAITS]; /* communicators for which the end of the group waits */
} group;

bool soft__in_group(void)
{
	return group.depth > 0;
}

ncclResult_t soft__group_fail(ncclResult_t e)
{
	if (group.depth > 0 && e != ncclSuccess && e != ncclInProgress)
		group.error = e;
	return e;
}

void soft__group_add_wait(ncclComm_t c)
{
	if (group.n_waits == MAX_WAITS)
		soft_gpu_fail("nccl: more than %d communicators in a group", MAX_WAITS);
	group.waits[group.n_waits++] = c;
}

static struct soft__job *job_of(ncclComm_t c)
{
	struct soft__job **link = &group.jobs;

	while (*link && (*link)->comm != c)
		link = &(*link)->next;
	if (!*link) {
		*link = soft__alloc(sizeof(**link));
		(*link)->comm = c;
		soft__lock();
		c->refs++;
		soft__unlock();
	}
	return *link;
}

static void add_task(struct soft__job *job, const struct soft__task *t)
{
	if (job->n_tasks == job->capacity) {
		job->capacity = job->capacity ? 2 * job->capacity : 4;
		job->tasks = realloc(job->tasks, sizeof(*job->tasks) * (size_t)job->capacity);
		if (!job->tasks)
			soft_gpu_fail("nccl: no host memory");
	}
	job->tasks[job->n_tasks++] = *t;
	if (!job->fault)
		job->fault = t->fault;
}

/* All ranks make the same captures, so these have the same numbers. Messages concern only two of the ranks. */
static void number_capture(struct soft__job *job, struct soft__tape *tape)
{
	for (int i = 0; i < job->n_tasks; i++) {
		const bool message = soft__is_message(&job->tasks[i]);

		if (!message && !tape->number)
			tape->number = ++job->comm->n_captures;
		job->tasks[i].call.capture = message ? 1 : tape->number;
	}
}

/* Appends the job to the queue of its communicator, or to the tape of the capture. */
static void enqueue(struct soft__job *job)
{
	ncclComm_t c = job->comm;
	struct soft__tape *tape = c->tapes;

	job->next = NULL;
	if (!job->capture) {
		job->queued = true;
		*c->end = job;
		c->end = &job->next;
		return;
	}
	while (tape && tape->capture != job->capture)
		tape = tape->next;
	if (!tape) {
		tape = soft__alloc(sizeof(*tape));
		tape->capture = job->capture;
		tape->next = c->tapes;
		c->tapes = tape;
	}
	number_capture(job, tape);
	job->tape = tape;
	job->index = tape->n_jobs++;
	c->n_captured++;
}

static int list_ranges(const struct soft__job *job, struct soft_range *out)
{
	int n = 0;

	for (int i = 0; i < job->n_tasks; i++) {
		const struct soft__task *t = &job->tasks[i];

		if (t->recv && t->recv_bytes)
			out[n++] = (struct soft_range){t->recv, t->recv_bytes, true};
		if (t->send && t->send_bytes)
			out[n++] = (struct soft_range){t->send, t->send_bytes, false};
		if (t->scalar_at)
			out[n++] = (struct soft_range){t->scalar_at, soft__type_bytes((ncclDataType_t)t->call.type),
						       false};
	}
	return n;
}

static bool overlap(const void *p, size_t p_bytes, const void *q, size_t q_bytes)
{
	const char *a = p, *b = q;

	return a && b && a < b + q_bytes && b < a + p_bytes;
}

/* A message from the rank to itself, in place. */
static bool is_own_message(const struct soft__job *job, const struct soft__task *a, const struct soft__task *b)
{
	return a->recv == b->send && a->call.kind == SOFT__RECV && b->call.kind == SOFT__SEND &&
	       a->call.root == job->comm->rank && b->call.root == job->comm->rank;
}

/* The program cannot know in which order the tasks of a group run. */
static void check_overlaps(const struct soft__job *job)
{
	for (int i = 0; i < job->n_tasks; i++) {
		const struct soft__task *a = &job->tasks[i];

		for (int k = 0; k < job->n_tasks; k++) {
			const struct soft__task *b = &job->tasks[k];

			if (k < i && overlap(a->recv, a->recv_bytes, b->recv, b->recv_bytes))
				soft_gpu_fail("nccl: in a group, %s writes memory that %s writes", a->name, b->name);
			if (k != i && overlap(a->recv, a->recv_bytes, b->send, b->send_bytes) &&
			    !is_own_message(job, a, b))
				soft_gpu_fail("nccl: in a group, %s writes memory that %s reads", a->name, b->name);
		}
	}
}

/* The work is posted to one stream. It waits for the other streams of the group, and they wait for it. */
static cudaError_t order(cudaStream_t first, cudaStream_t then)
{
	cudaEvent_t event;
	cudaError_t e = cudaSuccess;

	if (first == then)
		return e;
	e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	if (e != cudaSuccess)
		return e;
	e = cudaEventRecord(event, first);
	if (e == cudaSuccess)
		e = cudaStreamWaitEvent(then, event, 0);
	cudaEventDestroy(event);
	return e;
}

static cudaError_t post_to_streams(struct soft__job *job, const struct soft_work *w)
{
	int n = job->n_tasks;
	cudaStream_t stream = job->stream, *others = soft__alloc(sizeof(cudaStream_t) * (size_t)n);
	cudaError_t e = cudaSuccess;

	for (int i = 0; i < n; i++) {
		others[i] = job->tasks[i].stream;
		e = e ? e : order(others[i], stream);
	}
	if (e == cudaSuccess) {
		soft__lock();
		enqueue(job);
		soft__unlock();
		e = soft_gpu_post(stream, w);
	} else {
		soft__release_job(&job);
	}
	for (int i = 0; i < n && e == cudaSuccess; i++)
		e = order(stream, others[i]);
	free(others);
	return e;
}

/* NCCL has kernels of their own for reductions in windows. */
static bool starts_early(const struct soft__job *job)
{
	const struct soft__task *t = &job->tasks[0];
	int n, error;

	if (!job->capture || !soft__fault_of(SOFT__FAULT_EARLY, job->comm->rank, &n, &error))
		return false;
	soft__lock();
	const bool in_window = t->send && soft__in_window(job->comm, t->send, t->send_bytes) &&
			       soft__in_window(job->comm, t->recv, t->recv_bytes);
	soft__unlock();
	return in_window;
}

static const char *name_of(const struct soft__job *job)
{
	for (int i = 1; i < job->n_tasks; i++) {
		if (job->tasks[i].name != job->tasks[0].name)
			return "ncclGroupEnd";
	}
	return job->tasks[0].name;
}

ncclResult_t soft__post(struct soft__job *job)
{
	ncclComm_t c = job->comm;
	struct soft_range *ranges = soft__alloc(sizeof(*ranges) * 3 * (size_t)job->n_tasks);
	struct soft_work w = {.name = name_of(job),
			      .run = soft__run_job,
			      .start = starts_early(job) ? soft__start_job : NULL,
			      .args = &job,
			      .args_bytes = sizeof(job),
			      .release = soft__release_job,
			      .ranges = ranges,
			      .n_ranges = list_ranges(job, ranges),
			      .fault = job->fault};
	cudaError_t e;

	if (soft_gpu_capture(job->stream) != job->capture)
		soft_gpu_fail("%s: a capture has begun or ended before ncclCommGetAsyncError returned ncclSuccess",
			      w.name);
	check_overlaps(job);
	e = post_to_streams(job, &w);
	free(ranges);
	if (e == cudaSuccess)
		return ncclSuccess;
	soft__warn("Cuda failure '%s'", cudaGetErrorString(e));
	soft__lock();
	c->error = ncclUnhandledCudaError;
	soft__unlock();
	return ncclUnhandledCudaError;
}

static ncclResult_t start(struct soft__job *job)
{
	ncclComm_t c = job->comm;

	job->stream = job->tasks[0].stream;
	job->capture = soft_gpu_capture(job->stream);
	/* NCCL posts the work of a communicator that does not block in another thread. */
	if (!c->blocking && c->n_ranks > 1 && soft_gpu_draw(4) > 0) {
		soft__lock();
		c->polls = soft_gpu_draw(3);
		c->deferred = job;
		soft__unlock();
		return ncclInProgress;
	}
	return soft__post(job);
}

static void discard(struct soft__job *job)
{
	soft__release_job(&job);
}

/* nccl.h declares these functions without their parameters. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
	int e = soft_gpu_call(__func__);

	if (!e)
		group.depth++;
	return (ncclResult_t)e;
}

static ncclResult_t end_group(void)
{
	ncclResult_t e = group.error, got;
	struct soft__job *jobs = group.jobs;

	if (group.depth == 0) {
		soft__warn("ncclGroupEnd: not in a group call.");
		return ncclInvalidUsage;
	}
	if (--group.depth > 0)
		return ncclSuccess;
	group.error = ncclSuccess;
	group.jobs = NULL;
	for (int i = 0; i < group.n_waits; i++) {
		got = soft__wait_ready(group.waits[i]);
		e = e ? e : got;
	}
	group.n_waits = 0;
	while (jobs) {
		struct soft__job *next = jobs->next;

		if (e && e != ncclInProgress) {
			discard(jobs);
		} else {
			got = start(jobs);
			e = got ? got : e;
		}
		jobs = next;
	}
	return e;
}

ncclResult_t ncclGroupEnd(void)
{
	int e = soft_gpu_call(__func__);

	return e ? (ncclResult_t)e : end_group();
}

ncclResult_t soft__submit(ncclComm_t c, const struct soft__task *tasks, int n)
{
	group.depth++;
	for (int i = 0; i < n; i++)
		add_task(job_of(c), &tasks[i]);
	return end_group();
}
