/* The client's connection: many threads, one socket, no thread of its own. A thread that waits for an answer reads
 * the socket for all of them if no other thread does (leader and followers). */
#ifndef CT_DIST_STORE_CALL_IMPL_H
#define CT_DIST_STORE_CALL_IMPL_H

#include <pthread.h>

#include "base/clock.h"
#include "dist/store/wire.h"

#define CT_STORE_CALL_NS (30 * CT_SEC) /* calls without a deadline of their own */

/* A request under way, on its caller's stack. */
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
	char *host; /* of the server, as given to connect */
	int port;
	struct ct_store_opts opts;
	int owner_rank, owner_pid;
	char owner_host[64];

	pthread_mutex_t send_lock; /* one frame after the other */
	pthread_mutex_t lock;      /* guards what follows */
	pthread_cond_t changed;
	bool reading;      /* a thread is in poll for all */
	bool cancelled;    /* watch */
	bool failed, dead; /* failed: `failure` is set. dead: the connection has ended; then failed is set, too */
	struct ct_failure failure;
	struct ct_call *calls;
	uint64_t last_tag;
	uint8_t *in;
	size_t in_len, in_cap;
};

/* Once, after the handshake: what followed it (a failure record) is in the buffer already. False: the bytes are not
 * frames of our protocol. */
bool ct__call_begin(ct_store *s);
/* Sends the frame built in b (its tag is set here) followed by `extra` bytes, and waits for the answer. A reply with a
 * failed status becomes the error chain; so does CT_TIMEOUT, where call->tag names the request that is still under way.
 * call->body is the caller's to free when CT_OK. */
enum ct_status ct__call_do(ct_store *s, struct ct_str *b, const void *extra, size_t extra_len, int64_t deadline_ns,
			   struct ct_call *call) CT_MUST_CHECK;
/* Sends a frame that has no answer; drops it when the socket's buffer is full. */
enum ct_status ct__call_post(ct_store *s, struct ct_str *b) CT_MUST_CHECK;
/* Until the run has failed, the watch is cancelled or the deadline is past. */
enum ct_status ct__call_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out) CT_MUST_CHECK;
/* Wakes every thread inside. */
void ct__call_wake(ct_store *s);

#endif
