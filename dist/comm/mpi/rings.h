/* Short messages between the ranks of a host, through shared memory. They do not use MPI, which takes several times as
 * long. From each rank of the host to each other one, there is a ring of slots, which one rank writes and
 * the other one reads. The sender fills a slot and stores the number of the message in it; the receiver waits for this
 * number. A message of a few bytes moves one cache line from one CPU to the other. The technique is known as a
 * single-producer, single-consumer queue (for example, FastForward, Giacomoni et al., PPoPP 2008).
 *
 * A receive matches the first message with its key. If the next message in the ring has another key, it is copied to
 * private memory, where it waits for its receive. If all slots are full, a send waits until the receiver makes progress
 * on a receive from this rank. Only `open` blocks. All functions are called by the thread that uses the communicator.
 */
#ifndef CT_DIST_COMM_MPI_RINGS_H
#define CT_DIST_COMM_MPI_RINGS_H

#include "dist/comm/comm.h"

/* The longest message in bytes. */
#define CT_RING_MESSAGE_MAX ((size_t)8192)
/* Messages that fit into a ring. If the receiver makes no progress, a sender has to wait after this many messages, and
 * so it notices. */
#define CT_RING_SLOTS 4
/* The number of limited messages to a peer that may be sent before they are received. */
#define CT_RING_LIMIT 64

struct ct_rings;

struct ct_ring_request {
	struct ct_ring_request *next; /* of the implementation */
	void *buf;                    /* a message that is sent is only read */
	size_t bytes;
	uint64_t key;
	int peer;
	bool sending, done;
	bool limited; /* only for a send: it counts towards CT_RING_LIMIT */
};

/* Opens the rings of this host. *out is NULL if they are not available: this rank is alone on its host, or there are
 * more than 32 ranks on it, or they cannot share memory. All ranks of the host get the same answer. Fails with
 * CT_TIMEOUT if another rank has not called this function within limit_ns, and with CT_PEER_LOST if the run has failed.
 * Borrows c. */
enum ct_status ct__rings_open(ct_comm *c, int64_t limit_ns, struct ct_rings **out) CT_MUST_CHECK;
/* Messages that are not done are lost. NULL is allowed. */
void ct__rings_close(struct ct_rings *r);
/* Returns whether there are rings to and from a peer. r may be NULL. */
bool ct__rings_reach(const struct ct_rings *r, int peer);
/* Returns whether there are more ranks than CPUs on this host. If r is NULL, affinities and quotas of other ranks are
 * not known. */
bool ct__rings_crowded(const struct ct_rings *r, ct_comm *c);
/* Starts a message of at most CT_RING_MESSAGE_MAX bytes. Sets `done` if it is done already. A send is done when the
 * message is in a slot. q and its buffer must stay valid until it is done, or the rings are closed. Fails with
 * CT_MISMATCH if the message that a receive matches has another size, and with CT_NOMEM. */
enum ct_status ct__rings_start(struct ct_rings *r, struct ct_ring_request *q) CT_MUST_CHECK;
/* Continues all messages from and to a peer. Fails as ct__rings_start. */
enum ct_status ct__rings_poll(struct ct_rings *r, int peer) CT_MUST_CHECK;

#endif
