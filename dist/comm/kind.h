/* The communicators, and what the program must know about them before one is opened. To add one, add it to CT_COMMS:
 * its name is then a choice of `dist.backend`, and registry.c does not compile without its row. comm.h describes them.
 *
 * This header has no other parts, so that the config can include it without the library. */
#ifndef CT_DIST_COMM_KIND_H
#define CT_DIST_COMM_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
	CT_COMM_USES_GLOO = 1, /* the environment variables of gloo apply (dist/settings) */
	CT_COMM_USES_NCCL = 2, /* those of NCCL apply */
	/* It always contains all ranks of the run, so the ranks of a part of it cannot have one. */
	CT_COMM_ALL_RANKS = 4,
	CT_COMM_OWN_PORTS = 8, /* its library chooses the ports of connections between hosts */
	CT_COMM_DEV_SHM = 16,  /* its library has buffers in /dev/shm */
	CT_COMM_RING = 32,     /* sums in a ring of all ranks, even if several of them are on one host */
	CT_COMM_TUNED = 64,    /* its library chooses the fastest of several algorithms */
};

/* X(name, traits) */
#define CT_COMMS(X)                                                                    \
	X(self, 0)                                                                     \
	X(shm, 0)                                                                      \
	X(gloo, CT_COMM_USES_GLOO | CT_COMM_RING)                                      \
	X(hier, CT_COMM_USES_GLOO)                                                     \
	X(mpi, CT_COMM_ALL_RANKS | CT_COMM_OWN_PORTS | CT_COMM_DEV_SHM | CT_COMM_RING) \
	X(nccl, CT_COMM_USES_NCCL | CT_COMM_OWN_PORTS | CT_COMM_DEV_SHM | CT_COMM_TUNED)
#define CT_COMM_NAME(name, traits) , #name

/* Returns whether the communicator has one of the traits. "auto", and a name that does not exist, have none. */
static inline bool ct_comm_has(const char *name, unsigned traits)
{
#define CT_COMM_ROW_(id, bits) {#id, (bits)},
	static const struct {
		const char *name;
		unsigned traits;
	} rows[] = {CT_COMMS(CT_COMM_ROW_)};

#undef CT_COMM_ROW_

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].name, name) == 0)
			return (rows[i].traits & traits) != 0;
	}
	return false;
}

#endif
