/* A segment of shared memory between ranks of one host: a memfd of one rank, its owner, which the others open through
 * /proc/PID/fd/FD. So nothing is left behind when the ranks end, however they end. */
#ifndef CT_DIST_COMM_SEGMENT_IMPL_H
#define CT_DIST_COMM_SEGMENT_IMPL_H

#include "dist/comm/comm.h"

/* The beginning of the segment, by which it can be recognized. */
struct ct_segment_head {
	uint64_t magic, nonce, bytes;
};

struct ct_segment {
	char *map; /* NULL: not open */
	size_t bytes;
	int fd;
};

/* Creates a segment of `bytes` zeroed bytes, and writes its name to the store under `key`. Allocates the pages of the
 * first `reserved` bytes now, because running out of memory later would raise SIGBUS; the others are allocated at first
 * use. Fails with CT_NOMEM if there is not enough memory, and with CT_IO. After a failure, *out is closed. */
enum ct_status ct__segment_create(ct_comm *c, const char *key, size_t bytes, size_t reserved,
				  struct ct_segment *out) CT_MUST_CHECK;
/* Opens the segment of rank `owner`. Fails with CT_TIMEOUT if it does not exist within limit_ns, with CT_MISMATCH if it
 * has another size, with CT_PEER_LOST if the owner has ended, and with CT_UNSUPPORTED if this process may not open it.
 * After a failure, *out is closed. */
enum ct_status ct__segment_attach(ct_comm *c, const char *key, int owner, size_t bytes, int64_t limit_ns,
				  struct ct_segment *out) CT_MUST_CHECK;
void ct__segment_close(struct ct_segment *s); /* may be called again */

#endif
