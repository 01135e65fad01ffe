/* The client's connection: many threads share one socket, and no separate thread serves it. A thread that waits for a
 * reply reads the socket for all threads, unless another thread already does (leader/followers pattern). */
#ifndef CT_DIST_STORE_CALL_IMPL_H
#define CT_DIST_STORE_CALL_IMPL_H

#include <pthread.h>

#include "base/clock.h"
#include "dist/store/wire.h"

#define CT_STORE_CALL_NS (30 * CT_SEC) /* for calls without a deadline */

/* A pending request, on its caller's stack. */
struct ct_call {
	struct ct_call *next;
	uint64_t tag;
	bool done;
	enum ct_status status;
	char *body; /* of the reply, owned (ct_free), NUL-terminated */
	size_t len;
};

struct ct_store {
	int fd, wake_fd;
	char *host;    /* of the server, as passed to ct_store_connect */
	char peer[64]; /* the numeric address of the server that has answered */
	int port;
	struct ct_store_opts opts;
	int owner_rank, owner_pid;
	char owner_host[64];

	pthread_mutex_t send_lock; /* held while a frame is sent */
	pthread_mutex_t lock;      /* guards the members below */
	pthread_cond_t changed;
	bool reading;      /* a thread reads the socket for all threads */
	bool cancelled;    /* the watch has been cancelled */
	bool failed, dead; /* failed: `failure` is set. dead: the connection has ended; implies failed */
	struct ct_failure failure;
	int64_t silent_since; /* when a call began that was not answered in time; 0: something has been received since
				 then */
	struct ct_call *calls;
	uint64_t last_tag;
	uint8_t *in;
	size_t in_len, in_cap;
};

/* Does the handshake over the new connection s->fd. After CT_MISMATCH, another attempt at the same address is useless.
 */
enum ct_status ct__call_handshake(ct_store *s, enum ct_wire_role role, int64_t deadline_ns) CT_MUST_CHECK;
/* Call it once, after the handshake. Data that followed the handshake (a failure record) may already be in the buffer.
 * Returns false if this data does not consist of frames of the store protocol. */
bool ct__call_begin(ct_store *s);
/* Sends the frame in b, after setting its tag, and then the extra_len bytes of `extra`; waits for the reply. If the
 * reply has a failure status, the function returns it with an error chain. After CT_TIMEOUT the request is still
 * pending on the server under call->tag. After CT_OK the caller owns call->body. */
enum ct_status ct__call_do(ct_store *s, struct ct_str *b, const void *extra, size_t extra_len, int64_t deadline_ns,
			   struct ct_call *call) CT_MUST_CHECK;
/* Sends a frame that has no reply. Drops the frame if the socket's buffer is full. */
enum ct_status ct__call_post(ct_store *s, struct ct_str *b) CT_MUST_CHECK;
/* Waits until the run has failed, the watch is cancelled, or the deadline has passed. */
enum ct_status ct__call_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out) CT_MUST_CHECK;
/* Wakes all threads that wait in one of the functions above. */
void ct__call_wake(ct_store *s);

#endif
