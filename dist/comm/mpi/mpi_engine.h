/* An interface to MPI: messages between the ranks of MPI_COMM_WORLD. The implementations of MPI have different ABIs.
 * Therefore mpi_engine.c and mpi_process.c, the only files that include mpi.h, are compiled once for each of them, as
 * the shared objects ctrain_mpi_openmpi.so and ctrain_mpi_mpich.so. One of them is loaded when the first engine is
 * opened (base/process/module.h). No function but `open` blocks. MPI is initialized once in a process. It is finalized
 * when the program exits, unless an engine has failed or is still open: MPI_Finalize would wait for ranks that have
 * ended. Engines may be used by different threads at the same time; one engine, by one thread. While the second engine
 * is opened, no other thread may use the first one. */
#ifndef CT_DIST_COMM_MPI_MPI_ENGINE_H
#define CT_DIST_COMM_MPI_MPI_ENGINE_H

#include <stdint.h>

#include "base/process/module.h"

/* The largest number of bytes in one message; MPI counts in int. */
#define CT_MPI_MESSAGE_MAX ((size_t)1 << 30)

struct ct_mpi_engine;
struct ct_mpi_batch; /* messages that were started together */

struct ct_mpi_message {
	void *buf; /* a message that is sent is only read */
	size_t bytes;
	int peer;
	bool sending;
	bool same_host;   /* as this rank; both sides must agree */
	bool synchronous; /* a send that is not done before the receiver has posted the matching receive */
};

struct ct_mpi_facts {
	char library[64]; /* "Open MPI 4.1.4" */
	int cuda;         /* whether the library accepts addresses of GPU memory: 1 yes, 0 no, -1 unknown */
};

/* Messages of different channels never match. */
enum ct_mpi_channel { CT_MPI_COLLECTIVES, CT_MPI_MESSAGES };

/* The table that the shared objects export as ct_mpi_module. */
struct ct_mpi_module {
	struct ct_module_head head;
	/* Does not initialize MPI. */
	void (*describe)(struct ct_mpi_facts *out);
	/* Collective: all ranks of MPI_COMM_WORLD must call it, in the same order. Fails with CT_MISMATCH if this
	 * process is not rank `rank` of `size` ranks there. */
	enum ct_status (*open)(int rank, int size, int64_t deadline_ns, struct ct_mpi_engine **out);
	/* `failed`: some ranks may have ended, so nothing may wait for them. NULL is allowed. */
	void (*close)(struct ct_mpi_engine *e, bool failed);
	int (*tag_max)(const struct ct_mpi_engine *e); /* tags are 0 to this number */
	/* Creates a batch for up to `max` messages. */
	enum ct_status (*batch_create)(struct ct_mpi_engine *e, size_t max, struct ct_mpi_batch **out);
	void (*batch_destroy)(struct ct_mpi_batch *b);
	/* Starts n messages with the same tag, and then does the same as `test`. Messages with the same peer, tag and
	 * channel match in this order. The batch must be empty or done. */
	enum ct_status (*start)(struct ct_mpi_batch *b, enum ct_mpi_channel channel, int tag,
				const struct ct_mpi_message *m, size_t n, int polls);
	/* Returns CT_OK if all messages of the batch are done, else CT_INPROGRESS after `polls` calls of MPI_Testall.
	 * Fails with CT_MISMATCH if a message does not have the size that its receiver expects, and with CT_COMM if MPI
	 * reports an error. */
	enum ct_status (*test)(struct ct_mpi_batch *b, int polls);
	/* Continues sends that MPI reports as done although it has not passed all of their data on. Call it while
	 * waiting for something other than a batch. */
	void (*progress)(struct ct_mpi_engine *e);
};
extern const struct ct_mpi_module ct_mpi_module;

#endif
