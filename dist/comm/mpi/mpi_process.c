/* MPI must be initialized and finalized by the same thread, and each of the two may block until all ranks do the same.
 * So a thread of its own does both, and callers wait for it with a deadline. The states are passed through in this
 * order: NONE, STARTING, READY or BROKEN; then, at the exit of the program, FINALIZING, FINALIZED. MPI is not finalized
 * if an engine is open or has failed, and if it takes too long, the thread is left behind.
 *
 * Calls of MPI are serialized by a mutex, which is skipped as long as there has been only one engine. Between lock and
 * unlock this must not change; therefore no other thread may use MPI while the second engine is opened. */
#include "dist/comm/mpi/mpi_process.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"

/* How long the end of the program waits for MPI_Finalize, which waits for all ranks. */
#define FINALIZE_NS (10 * CT_SEC)

enum state { NONE, STARTING, READY, BROKEN, FINALIZING, FINALIZED };

static struct {
	pthread_mutex_t lock;  /* of this struct */
	pthread_mutex_t calls; /* held during calls of MPI */
	pthread_cond_t changed;
	enum state state;
	int provided; /* level of thread support */
	int n_open;
	_Atomic bool shared; /* there has been more than one engine at a time */
	bool failed;
	struct ct_thread thread;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

/* Usually there is only one engine, and a mutex takes a considerable part of the time of the fastest operations. */
void ct__mpi_lock(void)
{
	if (atomic_load_explicit(&process.shared, memory_order_relaxed))
		pthread_mutex_lock(&process.calls);
}

void ct__mpi_unlock(void)
{
	if (atomic_load_explicit(&process.shared, memory_order_relaxed))
		pthread_mutex_unlock(&process.calls);
}

static void set_state(enum state s)
{
	pthread_mutex_lock(&process.lock);
	process.state = s;
	pthread_cond_broadcast(&process.changed);
	pthread_mutex_unlock(&process.lock);
}

static bool initialize(void)
{
	int provided = MPI_THREAD_SINGLE;

	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
		return false;
	process.provided = provided;
	/* The default handler ends the process without a message of ours. */
	return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

/* The thread that initializes MPI must also finalize it. */
static void *life(void *unused)
{
	(void)unused;
	if (!initialize()) {
		set_state(BROKEN);
		return NULL;
	}
	set_state(READY);
	pthread_mutex_lock(&process.lock);
	while (process.state != FINALIZING)
		pthread_cond_wait(&process.changed, &process.lock);
	pthread_mutex_unlock(&process.lock);
	ct__mpi_lock();
	MPI_Finalize();
	ct__mpi_unlock();
	set_state(FINALIZED);
	return NULL;
}

static void finalize_at_exit(void)
{
	int64_t deadline = ct_deadline_in(FINALIZE_NS);
	bool ended;

	pthread_mutex_lock(&process.lock);
	if (process.state == READY && process.n_open == 0 && !process.failed) {
		process.state = FINALIZING;
		pthread_cond_broadcast(&process.changed);
		while (process.state == FINALIZING &&
		       ct_cond_wait_until(&process.changed, &process.lock, deadline) == 0)
			;
	}
	ended = process.state == FINALIZED;
	pthread_mutex_unlock(&process.lock);
	/* Otherwise the thread is blocked, in MPI or because there is nothing to do. */
	if (ended)
		ct_thread_join(&process.thread);
	else
		pthread_detach(process.thread.id);
}

/* Called with process.lock. */
static enum ct_status start(void)
{
	ct_cond_init(&process.changed);
	CT_TRY(ct_thread_start(&process.thread, "ct-mpi", life, NULL));
	process.state = STARTING;
	if (atexit(finalize_at_exit) != 0)
		return CT_FAIL(CT_NOMEM, "cannot register a function to run at exit");
	return CT_OK;
}

/* Called with process.lock. */
static enum ct_status await(int64_t deadline_ns)
{
	while (process.state == STARTING) {
		if (ct_cond_wait_until(&process.changed, &process.lock, deadline_ns) != 0) {
			CT_FAIL(CT_TIMEOUT, "MPI_Init did not return in time");
			return ct_error_hint("check that all ranks are running, and that they use dist.backend=mpi");
		}
	}
	if (process.state != READY)
		return CT_FAIL(CT_COMM, process.state == BROKEN ? "MPI_Init failed" : "MPI has ended");
	if (process.provided < MPI_THREAD_SERIALIZED)
		return CT_FAIL(CT_UNSUPPORTED, "this MPI library does not support calls from several threads");
	return CT_OK;
}

enum ct_status ct__mpi_process_init(int64_t deadline_ns)
{
	enum ct_status st;

	pthread_mutex_lock(&process.lock);
	st = process.state == NONE ? start() : CT_OK;
	if (st == CT_OK)
		st = await(deadline_ns);
	pthread_mutex_unlock(&process.lock);
	return st;
}

void ct__mpi_process_retain(void)
{
	pthread_mutex_lock(&process.lock);
	process.n_open++;
	if (process.n_open > 1)
		atomic_store(&process.shared, true);
	pthread_mutex_unlock(&process.lock);
}

void ct__mpi_process_release(bool failed)
{
	pthread_mutex_lock(&process.lock);
	process.n_open--;
	process.failed |= failed;
	pthread_mutex_unlock(&process.lock);
}
