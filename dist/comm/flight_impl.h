/* The flight record: the latest operations of a communicator. When a run fails, it shows which rank has posted what.
 * The thread that posts writes it without locks, a worker thread adds times, and any thread may read it. */
#ifndef CT_DIST_COMM_FLIGHT_IMPL_H
#define CT_DIST_COMM_FLIGHT_IMPL_H

#include <stdatomic.h>

#include "base/json.h"
#include "dist/comm/comm_op_impl.h"

#define CT_FLIGHT_RECORDS 512
#define CT_FLIGHT_BUCKETS 256
#define CT_FLIGHT_BUCKET_NAME 80

struct ct_flight_record {
	int64_t seq; /* number of the operation */
	/* The number of the collective, or -1 - k for the k-th message of this kind with the same peer and tag. Both
	 * ranks have the same number for a message. */
	int64_t number;
	int64_t step; /* the step that was being posted (ct_rank_page_post_step); -1: none */
	int bucket;   /* of the reducer; -1: none */
	enum ct_comm_kind kind;
	enum ct_dtype dtype;
	enum ct_redop op;
	int root, tag;
	uint64_t n;
	/* begun: the back end has begun to move data; done: it is complete on this rank; 0: not yet. */
	int64_t posted_ns, begun_ns, done_ns;
};

struct ct_flight_slot {
	_Atomic int64_t stamp; /* seq + 1; 0: it is being written */
	_Atomic int64_t number, step, bucket, what, root_tag, n, posted_ns, begun_ns, done_ns;
};

/* It is in the page of the rank (base/process/rank_page.h) if that has space. */
struct ct_flight {
	char scope[96], backend[16];                            /* of the communicator */
	char buckets[CT_FLIGHT_BUCKETS][CT_FLIGHT_BUCKET_NAME]; /* "gradients of fc2.bias to fc1.weight"; "": unknown */
	struct ct_flight_slot slots[CT_FLIGHT_RECORDS];
};

/* Returns NULL if there is not enough memory. */
struct ct_flight *ct__flight_create(void);
void ct__flight_destroy(struct ct_flight *f);
void ct__flight_add(struct ct_flight *f, const struct ct_flight_record *r);
/* These may be called by any thread. If the record has been overwritten, they do nothing. */
void ct__flight_begun(struct ct_flight *f, int64_t seq, int64_t now_ns);
void ct__flight_done(struct ct_flight *f, int64_t seq); /* reads the clock */
void ct__flight_done_at(struct ct_flight *f, int64_t seq, int64_t now_ns);
/* Returns false if there is no record of operation seq (any more). */
bool ct__flight_at(const struct ct_flight *f, int64_t seq, struct ct_flight_record *out);
/* Finds the record of a collective. n_seq is the number of operations posted so far. */
bool ct__flight_find(const struct ct_flight *f, int64_t n_seq, int64_t number, struct ct_flight_record *out);
/* Finds the first of the latest operations that is not done. */
bool ct__flight_pending(const struct ct_flight *f, int64_t n_seq, struct ct_flight_record *out);

/* Returns the operation of a record, without its buffers. */
ct_work ct__flight_work(ct_comm *c, const struct ct_flight_record *r);

/* Returns the name of the parameters of a bucket, or "". */
const char *ct__flight_bucket(const struct ct_flight *f, int bucket);
/* Writes "bucket 2 of step 118 (allreduce sum f32[1024], gradients of fc2.bias to fc1.weight)", or "barrier" if bucket
 * and step are unknown. */
void ct__flight_name(const ct_comm *c, const struct ct_flight_record *r, char *buf, size_t len);
/* Writes "allreduce sum f32[1024] (bucket 2 of step 118, gradients of fc2.bias to fc1.weight)". */
void ct__flight_text(const ct_comm *c, const struct ct_flight_record *r, char *buf, size_t len);

#endif
