/* Jobs that run: as work of the software GPU, a job proceeds as far as its peers allow, and is called again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

static const char *const kinds[SOFT__N_KINDS] = {"AllReduce",     "Reduce", "Broadcast", "AllGather",
						 "ReduceScatter", "Send",   "Recv"};

static void describe(char *to, size_t bytes, const struct soft__call *c)
{
	char capture[32] = "not captured";

	if (c->capture)
		snprintf(capture, sizeof(capture), "capture %u", c->capture);
	if (c->kind >= SOFT__N_KINDS)
		snprintf(to, bytes, "nothing");
	else
		snprintf(to, bytes, "%s of %llu %s (op %u, root %d, %s)", kinds[c->kind], (unsigned long long)c->count,
			 soft__type_name(c->type), c->op, c->root, capture);
}

static void report_mismatch(ncclComm_t c, const struct soft__call *mine, int other, const struct soft__call *theirs)
{
	char a[128], b[128];

	describe(a, sizeof(a), mine);
	describe(b, sizeof(b), theirs);
	if (soft__mismatch_hangs())
		return;
	soft__report("the ranks of a communicator disagree: rank %d calls %s, and rank %d calls %s", c->rank, a, other,
		     b);
	c->error = ncclInvalidUsage;
}

static bool same_call(const struct soft__call *a, const struct soft__call *b)
{
	return a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root &&
	       a->count == b->count && a->capture == b->capture;
}

static bool writes_slot(const ncclComm_t c, const struct soft__call *call)
{
	return call->kind != SOFT__BROADCAST || c->rank == call->root;
}

/* Copies elements to shared memory, scaled if the task says so. */
static void put(const struct soft__task *t, size_t first, char *to, size_t n)
{
	size_t bytes = soft__type_bytes((ncclDataType_t)t->call.type);
	const char *from = (t->seen ? t->seen : (const char *)t->send) + first * bytes;

	if (t->scaled)
		soft__scale(t->call.type, t->scalar_at ? t->scalar_at : t->scalar, from, to, n);
	else if (n)
		memcpy(to, from, n * bytes);
}

/* A rank's slot contains the next n elements of what it sends or, in a ReduceScatter, of each block of it. */
static size_t elements_of_round(const ncclComm_t c, const struct soft__task *t)
{
	size_t room = SOFT__SLOT_BYTES / soft__type_bytes((ncclDataType_t)t->call.type), left = t->call.count - t->at;

	if (t->call.kind == SOFT__REDUCE_SCATTER)
		room /= (size_t)c->n_ranks;
	return left < room ? left : room;
}

static void write_slot(ncclComm_t c, struct soft__task *t, size_t n)
{
	size_t bytes = soft__type_bytes((ncclDataType_t)t->call.type);
	char *slot = soft__slot(c->segment, c->rank);

	if (t->call.kind == SOFT__REDUCE_SCATTER) {
		for (int r = 0; r < c->n_ranks; r++)
			put(t, (size_t)r * t->call.count + t->at, slot + (size_t)r * n * bytes, n);
	} else if (writes_slot(c, &t->call)) {
		put(t, t->at, slot, n);
	}
}

static void read_slots(ncclComm_t c, const struct soft__task *t, size_t n)
{
	size_t bytes = soft__type_bytes((ncclDataType_t)t->call.type);
	char *to = (char *)t->recv + t->at * bytes;
	const char *from[SOFT__MAX_RANKS];

	if (!t->recv)
		return;
	for (int r = 0; r < c->n_ranks; r++)
		from[r] = soft__slot(c->segment, r);
	switch (t->call.kind) {
	case SOFT__BROADCAST:
		memcpy(to, from[t->call.root], n * bytes);
		break;
	case SOFT__ALL_GATHER:
		for (int r = 0; r < c->n_ranks; r++)
			memcpy(to + (size_t)r * t->call.count * bytes, from[r], n * bytes);
		break;
	case SOFT__REDUCE_SCATTER:
		for (int r = 0; r < c->n_ranks; r++)
			from[r] += (size_t)c->rank * n * bytes;
		soft__reduce(&t->call, c->n_ranks, from, to, n);
		break;
	default:
		soft__reduce(&t->call, c->n_ranks, from, to, n);
	}
}

/* Returns whether the round has proceeded. */
static bool write_round(ncclComm_t c, struct soft__task *t)
{
	struct soft__member *me = &c->segment->members[c->rank];

	for (int r = 0; r < c->n_ranks; r++) {
		if (c->segment->members[r].read < c->rounds)
			return false;
	}
	write_slot(c, t, elements_of_round(c, t));
	me->call = t->call;
	me->wrote = c->rounds + 1;
	t->wrote = true;
	return true;
}

static bool read_round(ncclComm_t c, struct soft__task *t)
{
	struct soft__segment *s = c->segment;
	size_t n = elements_of_round(c, t);

	for (int r = 0; r < c->n_ranks; r++) {
		if (s->members[r].wrote <= c->rounds)
			return false;
	}
	for (int r = 0; r < c->n_ranks; r++) {
		if (same_call(&s->members[r].call, &t->call))
			continue;
		report_mismatch(c, &t->call, r, &s->members[r].call);
		return false;
	}
	read_slots(c, t, n);
	t->wrote = false;
	t->at += n;
	t->ended = t->at == t->call.count;
	s->members[c->rank].read = ++c->rounds;
	return true;
}

/* A message is split into parts. A Send ends when the receiver has read the last one: programs must not rely on buffers
 * in the library. */
static bool send_part(ncclComm_t c, struct soft__task *t)
{
	struct soft__pair *p = &c->segment->pairs[c->rank][t->call.root];
	size_t bytes = soft__type_bytes((ncclDataType_t)t->call.type), left = t->call.count - t->at, n;

	if (p->read < c->sent[t->call.root])
		return false;
	if (t->wrote && left == 0) {
		t->ended = true;
		return true;
	}
	n = left < SOFT__PAIR_BYTES / bytes ? left : SOFT__PAIR_BYTES / bytes;
	put(t, t->at, soft__pair_data(c->segment, c->rank, t->call.root), n);
	p->call = t->call;
	t->at += n;
	t->wrote = true;
	p->wrote = ++c->sent[t->call.root];
	return true;
}

static bool receive_part(ncclComm_t c, struct soft__task *t)
{
	int peer = t->call.root;
	struct soft__pair *p = &c->segment->pairs[peer][c->rank];
	size_t bytes = soft__type_bytes((ncclDataType_t)t->call.type), left = t->call.count - t->at, n;

	if (p->wrote <= c->received[peer])
		return false;
	if (p->call.count != t->call.count || p->call.type != t->call.type || p->call.capture != t->call.capture) {
		report_mismatch(c, &t->call, peer, &p->call);
		return false;
	}
	n = left < SOFT__PAIR_BYTES / bytes ? left : SOFT__PAIR_BYTES / bytes;
	if (n)
		memcpy((char *)t->recv + t->at * bytes, soft__pair_data(c->segment, peer, c->rank), n * bytes);
	t->at += n;
	t->ended = t->at == t->call.count;
	p->read = ++c->received[peer];
	return true;
}

bool soft__is_message(const struct soft__task *t)
{
	return t->call.kind == SOFT__SEND || t->call.kind == SOFT__RECV;
}

/* Messages to the same rank, or from it, proceed in order. */
static bool is_next(const struct soft__job *job, int i)
{
	for (int k = 0; k < i; k++) {
		if (!job->tasks[k].ended && job->tasks[k].call.kind == job->tasks[i].call.kind &&
		    job->tasks[k].call.root == job->tasks[i].call.root)
			return false;
	}
	return true;
}

/* Collectives proceed one after the other, and then all messages at the same time. */
static bool proceed(struct soft__job *job)
{
	bool any = false, collectives = true;

	for (int i = 0; i < job->n_tasks && !job->comm->error; i++) {
		struct soft__task *t = &job->tasks[i];

		if (t->ended)
			continue;
		if (!soft__is_message(t)) {
			if (collectives)
				any |= t->wrote ? read_round(job->comm, t) : write_round(job->comm, t);
			collectives = false;
		} else if (collectives && is_next(job, i)) {
			any |= t->call.kind == SOFT__SEND ? send_part(job->comm, t) : receive_part(job->comm, t);
		}
	}
	return any;
}

static bool has_ended(const struct soft__job *job)
{
	for (int i = 0; i < job->n_tasks; i++) {
		if (!job->tasks[i].ended)
			return false;
	}
	return true;
}

static void unqueue(struct soft__job *job)
{
	struct soft__job **link = &job->comm->first;

	if (!job->queued)
		return;
	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (!*link)
		job->comm->end = link;
	job->queued = false;
}

static void forget(struct soft__task *t)
{
	free(t->seen);
	t->seen = NULL;
}

static void finish(struct soft__job *job)
{
	unqueue(job);
	if (job->tape)
		job->tape->at = (job->tape->at + 1) % job->tape->n_jobs;
	for (int i = 0; i < job->n_tasks; i++) {
		job->tasks[i].at = 0;
		job->tasks[i].wrote = job->tasks[i].ended = false;
		forget(&job->tasks[i]);
	}
	job->comm->n_ended++;
}

/* After an abort, what the job would have written is undefined. */
static cudaError_t give_up(struct soft__job *job)
{
	for (int i = 0; i < job->n_tasks; i++) {
		if (job->tasks[i].recv)
			memset(job->tasks[i].recv, 0xFF, job->tasks[i].recv_bytes);
	}
	finish(job);
	return cudaSuccess;
}

/* Changes a byte of what the job has written. `percent` of the bytes are after it. */
static void spoil(const struct soft__job *job, int percent)
{
	for (int i = 0; i < job->n_tasks; i++) {
		const size_t n = job->tasks[i].recv_bytes;

		if (job->tasks[i].recv && n > 0)
			((char *)job->tasks[i].recv)[n - 1 - n * (size_t)percent / 100] ^= 0x40;
	}
}

static bool may_run(const struct soft__job *job)
{
	const ncclComm_t c = job->comm;
	int n, error;

	if (c->error)
		return false; /* until the communicator is aborted */
	if (soft__fault_of(SOFT__FAULT_STUCK, c->rank, &n, &error) && c->n_ended >= n - 1)
		return false;
	return job->tape ? job->tape->at == job->index : c->first == job;
}

static cudaError_t run_locked(struct soft__job *job)
{
	ncclComm_t c = job->comm;
	int n, error;

	if (c->aborted)
		return give_up(job);
	if (c->destroyed && job->tape)
		soft_gpu_fail("nccl: a graph uses a communicator that was destroyed");
	if (!may_run(job))
		return cudaErrorNotReady;
	while (proceed(job))
		;
	if (!has_ended(job) || c->error)
		return cudaErrorNotReady;
	if (soft__fault_of(SOFT__FAULT_WRONG, c->rank, &n, &error) && c->n_ended >= n - 1)
		spoil(job, error);
	finish(job);
	if (soft__fault_of(SOFT__FAULT_ERROR, c->rank, &n, &error) && c->n_ended >= n)
		c->error = (ncclResult_t)error;
	return cudaSuccess;
}

cudaError_t soft__run_job(void *args)
{
	cudaError_t e;

	soft__lock();
	e = run_locked(*(struct soft__job **)args);
	soft__unlock();
	return e;
}

void soft__start_job(void *args)
{
	const struct soft__job *job = *(struct soft__job **)args;

	for (int i = 0; i < job->n_tasks; i++) {
		struct soft__task *t = &job->tasks[i];

		if (!t->send)
			continue;
		forget(t);
		t->seen = soft__alloc(t->send_bytes);
		memcpy(t->seen, t->send, t->send_bytes);
	}
}

void soft__release_job(void *args)
{
	struct soft__job *job = *(struct soft__job **)args;
	ncclComm_t c = job->comm;

	soft__lock();
	unqueue(job);
	if (job->tape) {
		c->n_captured--;
		if (--job->tape->n_jobs == 0) {
			struct soft__tape **link = &c->tapes;

			while (*link != job->tape)
				link = &(*link)->next;
			*link = job->tape->next;
			free(job->tape);
		}
	}
	for (int i = 0; i < job->n_tasks; i++)
		forget(&job->tasks[i]);
	free(job->tasks);
	free(job);
	soft__comm_drop(c);
	soft__unlock();
}
