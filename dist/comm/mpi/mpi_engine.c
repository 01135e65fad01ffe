/* MPI has no deadlines, and a rank that is lost would block a call forever. So messages are only started and tested,
 * and even the duplicates of MPI_COMM_WORLD, which separate the channels from each other and from other users of MPI,
 * are made by the non-blocking MPI_Comm_idup. After a failure they are not freed.
 *
 * A message of medium length to a rank of the same host is sent in parts (PART_BYTES). Parts have the same tag and
 * match in the order in which they are started, so both sides must agree on the length and on `same_host`. A message
 * that is shorter than expected is no error for MPI, so lengths are compared afterwards. */
#include "dist/comm/mpi/mpi_engine.h"

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/comm/mpi/mpi_process.h"

#define N_CHANNELS 2
/* On one host, the libraries copy a message of at most PART_BYTES through shared memory. For a longer one, sender and
 * receiver first agree, and one of them copies it with a system call. That takes several microseconds, so messages of
 * medium length are sent in up to PARTS_MAX parts. The limits are the defaults of the libraries, less a header. */
#define PARTS_MAX 24
#ifdef OPEN_MPI
#define PART_BYTES 4032
#else
#define PART_BYTES 8128
#endif

struct ct_mpi_engine {
	MPI_Comm channels[N_CHANNELS]; /* duplicates of MPI_COMM_WORLD */
	int tag_max;
};

struct ct_mpi_batch {
	struct ct_mpi_engine *engine;
	size_t n, max;
	MPI_Request *requests; /* [max] */
	MPI_Status *statuses;  /* [max] */
	int *expected;         /* [max] bytes of a receive; -1: a send */
};

static enum ct_status fail(const char *call, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "unknown error";
	int len = 0;

	if (MPI_Error_string(code, text, &len) != MPI_SUCCESS)
		snprintf(text, sizeof(text), "error %d", code);
	for (char *p = text; *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	return CT_FAIL(CT_COMM, "%s: %s", call, text);
}

static void describe(struct ct_mpi_facts *out)
{
	/* MPICH answers this question only when it is initialized. */
	*out = (struct ct_mpi_facts){.cuda = -1};
#ifdef OPEN_MPI
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int len, major = 0, minor = 0, patch = 0;

	/* "Open MPI v4.1.4, package: ..." */
	if (MPI_Get_library_version(text, &len) != MPI_SUCCESS ||
	    sscanf(text, "Open MPI v%d.%d.%d", &major, &minor, &patch) != 3)
		snprintf(out->library, sizeof(out->library), "Open MPI");
	else
		snprintf(out->library, sizeof(out->library), "Open MPI %d.%d.%d", major, minor, patch);
#if defined(MPIX_CUDA_AWARE_SUPPORT)
	out->cuda = MPIX_Query_cuda_support() == 1;
#endif
#else
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "", version[32] = "";
	int len;

	/* "MPICH Version:\t4.0.2\n..." */
	if (MPI_Get_library_version(text, &len) == MPI_SUCCESS)
		(void)sscanf(text, "MPICH Version: %31s", version);
	snprintf(out->library, sizeof(out->library), "MPICH%s%s", version[0] ? " " : "", version);
#endif
}

/* ---- opening */

static enum ct_status check_world(int rank, int size)
{
	int own = -1, all = -1;

	MPI_Comm_rank(MPI_COMM_WORLD, &own);
	MPI_Comm_size(MPI_COMM_WORLD, &all);
	if (own == rank && all == size)
		return CT_OK;
	CT_FAIL(CT_MISMATCH, "this process is rank %d of %d for MPI, but rank %d of %d of the run", own, all, rank,
		size);
	return ct_error_hint(
		"start all ranks of the run with one mpirun, and unset RANK and WORLD_SIZE if they are set");
}

static enum ct_status poll_until_done(MPI_Request *r, int64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = 100000};
	int done = 0, rc;

	for (;;) {
		ct__mpi_lock();
		rc = MPI_Test(r, &done, MPI_STATUS_IGNORE);
		ct__mpi_unlock();
		if (rc != MPI_SUCCESS)
			return fail("MPI_Comm_idup", rc);
		if (done)
			return CT_OK;
		if (ct_now_ns() >= deadline_ns)
			return CT_FAIL(CT_TIMEOUT, "not all ranks have opened the communicator in time");
		nanosleep(&pause, NULL);
	}
}

static enum ct_status open_channels(struct ct_mpi_engine *e, int64_t deadline_ns)
{
	for (int i = 0; i < N_CHANNELS; i++) {
		MPI_Request r;
		int rc;

		ct__mpi_lock();
		rc = MPI_Comm_idup(MPI_COMM_WORLD, &e->channels[i], &r);
		ct__mpi_unlock();
		if (rc != MPI_SUCCESS)
			return fail("MPI_Comm_idup", rc);
		CT_TRY(poll_until_done(&r, deadline_ns));
	}
	return CT_OK;
}

static void close_engine(struct ct_mpi_engine *e, bool failed)
{
	if (!e)
		return;
	ct__mpi_lock();
	for (int i = 0; i < N_CHANNELS && !failed; i++)
		MPI_Comm_free(&e->channels[i]);
	ct__mpi_unlock();
	ct__mpi_process_release(failed);
	ct_free(e);
}

static int find_tag_max(void)
{
	int *max = NULL, found = 0;

	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max, &found);
	return found ? *max : 32767; /* the minimum that the standard requires */
}

static enum ct_status open_engine(int rank, int size, int64_t deadline_ns, struct ct_mpi_engine **out)
{
	struct ct_mpi_engine *e;
	enum ct_status st;

	*out = NULL;
	CT_TRY(ct__mpi_process_init(deadline_ns));
	CT_TRY_ALLOC(e = CT_NEW(struct ct_mpi_engine));
	ct__mpi_process_retain();
	ct__mpi_lock();
	st = check_world(rank, size);
	e->tag_max = find_tag_max();
	ct__mpi_unlock();
	if (st == CT_OK)
		st = open_channels(e, deadline_ns);
	if (st < 0)
		close_engine(e, true);
	else
		*out = e;
	return st;
}

static int tag_max(const struct ct_mpi_engine *e)
{
	return e->tag_max;
}

/* ---- messages */

static void batch_destroy(struct ct_mpi_batch *b)
{
	if (!b)
		return;
	ct_free(b->expected);
	ct_free(b->statuses);
	ct_free(b->requests);
	ct_free(b);
}

static enum ct_status batch_create(struct ct_mpi_engine *e, size_t max, struct ct_mpi_batch **out)
{
	struct ct_mpi_batch *b;

	*out = NULL;
	CT_TRY_ALLOC(b = CT_NEW(struct ct_mpi_batch));
	b->engine = e;
	b->max = max * PARTS_MAX;
	b->requests = CT_NEW_ARRAY(MPI_Request, b->max);
	b->statuses = CT_NEW_ARRAY(MPI_Status, b->max);
	b->expected = CT_NEW_ARRAY(int, b->max);
	if (!b->requests || !b->statuses || !b->expected) {
		batch_destroy(b);
		return CT_NOMEM;
	}
	*out = b;
	return CT_OK;
}

/* The number of messages of MPI for a message. */
static size_t n_parts(const struct ct_mpi_message *m)
{
	size_t n;

	if (!m->same_host || m->bytes <= PART_BYTES)
		return 1;
	n = (m->bytes + PART_BYTES - 1) / PART_BYTES;
	return n <= PARTS_MAX ? n : 1;
}

/* Called with the lock. */
static enum ct_status start_one(struct ct_mpi_batch *b, enum ct_mpi_channel channel, int tag,
				const struct ct_mpi_message *m)
{
	MPI_Comm comm = b->engine->channels[channel];
	MPI_Request *r = &b->requests[b->n];
	int rc, n = (int)m->bytes;

	CT_ASSERT(m->bytes <= CT_MPI_MESSAGE_MAX && b->n < b->max);
	b->expected[b->n] = m->sending ? -1 : n;
	if (!m->sending)
		rc = MPI_Irecv(m->buf, n, MPI_BYTE, m->peer, tag, comm, r);
	else if (m->synchronous)
		rc = MPI_Issend(m->buf, n, MPI_BYTE, m->peer, tag, comm, r);
	else
		rc = MPI_Isend(m->buf, n, MPI_BYTE, m->peer, tag, comm, r);
	if (rc != MPI_SUCCESS)
		return fail(m->sending ? "MPI_Isend" : "MPI_Irecv", rc);
	b->n++;
	return CT_OK;
}

static enum ct_status start_parts(struct ct_mpi_batch *b, enum ct_mpi_channel channel, int tag,
				  const struct ct_mpi_message *m)
{
	const size_t n = n_parts(m);

	if (n == 1)
		return start_one(b, channel, tag, m);
	for (size_t i = 0; i < n; i++) {
		const size_t from = i * PART_BYTES, len = i + 1 < n ? PART_BYTES : m->bytes - from;
		struct ct_mpi_message part = *m;

		part.buf = (char *)m->buf + from;
		part.bytes = len;
		part.synchronous = m->synchronous && i + 1 == n; /* parts match in this order */
		CT_TRY(start_one(b, channel, tag, &part));
	}
	return CT_OK;
}

static enum ct_status wrong_size(void)
{
	return CT_FAIL(CT_MISMATCH, "a message does not have the size that this rank expects");
}

/* Called with the lock. */
static enum ct_status find_error(const struct ct_mpi_batch *b, int code)
{
	int class = MPI_SUCCESS;

	for (size_t i = 0; i < b->n && code == MPI_ERR_IN_STATUS; i++) {
		int own = b->statuses[i].MPI_ERROR;

		if (own != MPI_SUCCESS && own != MPI_ERR_PENDING)
			code = own;
	}
	MPI_Error_class(code, &class);
	return class == MPI_ERR_TRUNCATE ? wrong_size() : fail("MPI", code);
}

/* Called with the lock. A shorter message is no error for MPI. */
static enum ct_status check_sizes(const struct ct_mpi_batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		int bytes = 0;

		if (b->expected[i] < 0)
			continue;
		MPI_Get_count(&b->statuses[i], MPI_BYTE, &bytes);
		if (bytes != b->expected[i])
			return wrong_size();
	}
	return CT_OK;
}

/* Called with the lock. */
static enum ct_status poll_batch(struct ct_mpi_batch *b, int polls)
{
	int done = 0, rc = MPI_SUCCESS;

	for (int i = 0; i < polls && !done && rc == MPI_SUCCESS; i++)
		rc = MPI_Testall((int)b->n, b->requests, &done, b->statuses);
	if (rc != MPI_SUCCESS)
		return find_error(b, rc);
	return done ? check_sizes(b) : CT_INPROGRESS;
}

static enum ct_status start(struct ct_mpi_batch *b, enum ct_mpi_channel channel, int tag,
			    const struct ct_mpi_message *m, size_t n, int polls)
{
	enum ct_status st = CT_OK;

	b->n = 0;
	ct__mpi_lock();
	/* Receives first, so that data need not be buffered. */
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		if (!m[i].sending)
			st = start_parts(b, channel, tag, &m[i]);
	}
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		if (m[i].sending)
			st = start_parts(b, channel, tag, &m[i]);
	}
	if (st == CT_OK)
		st = poll_batch(b, polls);
	ct__mpi_unlock();
	return st;
}

static enum ct_status test(struct ct_mpi_batch *b, int polls)
{
	enum ct_status st;

	ct__mpi_lock();
	st = poll_batch(b, polls);
	ct__mpi_unlock();
	return st;
}

static void progress(struct ct_mpi_engine *e)
{
	int found;

	/* Whether there is such a message does not matter: MPI_Iprobe makes progress and receives nothing. */
	ct__mpi_lock();
	MPI_Iprobe(MPI_ANY_SOURCE, e->tag_max, e->channels[0], &found, MPI_STATUS_IGNORE);
	ct__mpi_unlock();
}

const struct ct_mpi_module ct_mpi_module = {
	{CT_MODULE_ABI, CT_BUILD_ID},
	describe,
	open_engine,
	close_engine,
	tag_max,
	batch_create,
	batch_destroy,
	start,
	test,
	progress,
};
