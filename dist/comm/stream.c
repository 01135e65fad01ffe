/* Collectives posted to a stream. If the back end does not support streams, the collective runs in a host function of
 * the stream. At that time all earlier work of the stream is done, so nothing else uses the buffer. If the host cannot
 * access the buffer, the collective is staged: the stream copies it to pinned memory before, and back afterwards.
 *
 * If the back end is cooperative and the collective is not staged, the function returns CT_INPROGRESS while the
 * collective is not done, and the device calls it again later; in_stream contains what it needs until then. There is
 * one in_stream and one staging memory for each communicator, so its collectives must not overlap: events must order
 * those in different streams. The arguments of the function never change, so that a recording can replay it. */
#include <string.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"

/* Arguments of the posted function. They do not change, so that it can be replayed. */
struct posted {
	ct_comm *comm;
	struct ct_request want;
};
_Static_assert(sizeof(struct posted) <= CT_STREAM_ARGS_MAX,
	       "a collective does not fit the arguments of a posted function");

static enum ct_status begin(struct ct_in_stream *in, const struct posted *p)
{
	enum ct_status st;

	in->deadline_ns = ct_deadline_in(p->comm->opts.timeout_ns);
	st = ct__comm_post(p->comm, &p->want, &in->work);
	if (st < 0)
		in->args = NULL;
	return st;
}

static enum ct_status run(const void *args)
{
	const struct posted *p = args;
	struct ct_in_stream *in = &p->comm->in_stream;
	const void *running = NULL;
	char other[224] = "another collective", own[128];

	if (atomic_compare_exchange_strong(&in->args, &running, args)) {
		CT_TRY(begin(in, p));
	} else if (running != args) {
		if (!p->comm->stage.device) /* else another thread may be changing it */
			ct__work_text(in->work, other, sizeof(other));
		ct__comm_op_text(p->comm, p->want.kind, p->want.dtype, p->want.op, p->want.n, p->want.root, 0, own,
				 sizeof(own));
		return CT_FAIL(CT_BUG, "%s began in a stream while %s was under way in another: order them by events",
			       own, other);
	}
	/* A back end with its own thread uses the buffer until the operation is done, so wait for it. The thread that
	 * calls functions of a GPU may wait, too. */
	if (p->comm->ops->cooperative && !p->comm->stage.device && ct_now_ns() < in->deadline_ns &&
	    ct_work_test(in->work) == CT_INPROGRESS)
		return CT_INPROGRESS;
	in->args = NULL;
	return ct__work_wait_until(in->work, in->deadline_ns);
}

bool ct_comm_is_staged(const ct_comm *c, const ct_device *d)
{
	const struct ct_device_caps *caps = ct_device_caps(d);

	return c->size > 1 && !c->ops->post_to && caps->async && !caps->host_code;
}

enum ct_status ct_comm_stage(ct_comm *c, ct_device *d, size_t bytes)
{
	if (!ct_comm_is_staged(c, d))
		return CT_OK;
	CT_ASSERT(!c->stage.device && bytes >= sizeof(double));
	CT_TRY(ct_device_host_alloc(d, bytes, &c->stage.memory));
	c->stage.device = d;
	c->stage.bytes = bytes;
	return CT_OK;
}

void ct__comm_stage_release(ct_comm *c)
{
	if (c->stage.device)
		ct_device_host_free(c->stage.device, c->stage.memory);
	c->stage = (struct ct_stage){0};
}

/* Posts a collective with n elements at `at`, which fit into the staging memory. */
static enum ct_status post_part(ct_comm *c, const struct ct_request *want, void *at, size_t n, ct_stream *s)
{
	const struct ct_stage *stage = &c->stage;
	const size_t bytes = n * ct_dtype_bytes(want->dtype);
	const bool sends = want->kind != CT_COMM_BROADCAST || want->root == c->rank;
	const bool receives = want->kind != CT_COMM_BROADCAST || want->root != c->rank;
	struct posted p;

	memset(&p, 0, sizeof(p)); /* padding, too: ct_stream_run */
	p.comm = c;
	p.want.kind = want->kind;
	p.want.src = p.want.dst = stage->memory;
	p.want.n = n;
	p.want.dtype = want->dtype;
	p.want.op = want->op;
	p.want.root = want->root;
	p.want.bucket = want->bucket;
	if (sends)
		CT_TRY(ct_device_copy(stage->device, stage->memory, at, bytes, s));
	CT_TRY(ct_stream_run(s, run, &p, sizeof(p)));
	return receives ? ct_device_copy(stage->device, at, stage->memory, bytes, s) : CT_OK;
}

static enum ct_status post_staged(ct_comm *c, const struct ct_request *want, ct_stream *s)
{
	const size_t element = ct_dtype_bytes(want->dtype), max = c->stage.bytes / element;

	CT_ASSERT(c->stage.device == ct_stream_device(s) && want->dst == want->src);
	for (size_t i = 0; i < want->n; i += max) {
		const size_t n = want->n - i < max ? want->n - i : max;

		CT_TRY(post_part(c, want, (char *)want->dst + i * element, n, s));
	}
	return CT_OK;
}

static enum ct_status post(ct_comm *c, const struct ct_request *want, ct_stream *s)
{
	const struct ct_device_caps *caps = ct_device_caps(ct_stream_device(s));
	struct posted p = {.comm = c, .want = *want};
	ct_work own, *w = NULL;

	if (c->ops->post_to) {
		ct__work_init(&own, c, want);
		ct__comm_record(c, &own);
		return c->ops->post_to(c, &own, s);
	}
	if (c->size == 1 && want->src == want->dst) /* nothing to do */
		return CT_OK;
	if (!caps->async) {
		CT_TRY(ct__comm_post(c, want, &w));
		return ct_work_wait(w);
	}
	if (ct_comm_is_staged(c, ct_stream_device(s)))
		return post_staged(c, want, s);
	return ct_stream_run(s, run, &p, sizeof(p));
}

enum ct_status ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, ct_stream *s)
{
	const struct ct_request r = ct__comm_allreduce_of(c, buf, n, t, op);

	return post(c, &r, s);
}

enum ct_status ct_comm_post_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root, ct_stream *s)
{
	return post(c,
		    &(struct ct_request){
			    .kind = CT_COMM_BROADCAST, .src = buf, .dst = buf, .n = n, .dtype = t, .root = root},
		    s);
}

bool ct_comm_is_cooperative(const ct_comm *c)
{
	return c->ops->cooperative || c->ops->post_to || c->stage.device;
}

/* ---- recordings */

struct ct_comm_recorded {
	ct_comm *comm;
	int64_t n;                    /* collectives */
	struct ct_flight_record *ops; /* [n_ops] the last ones, as many as the flight record has */
	int n_ops;
};

bool ct_comm_is_recordable(const ct_comm *c, char *why, size_t len)
{
	return !c->ops->is_recordable || c->ops->is_recordable(c, why, len);
}

enum ct_status ct_comm_recorded_create(ct_comm *c, int64_t first, ct_comm_recorded **out)
{
	const int64_t n = ct_comm_seq(c) - first, n_seq = atomic_load(&c->seq);
	const int n_ops = (int)(n < CT_FLIGHT_RECORDS ? n : CT_FLIGHT_RECORDS);
	ct_comm_recorded *r;

	*out = NULL;
	if (!c->ops->post_to || n == 0)
		return CT_OK;
	atomic_store(&c->seq, n_seq - n);
	ct__comm_count_collectives(c, first);
	CT_TRY_ALLOC(r = CT_NEW(ct_comm_recorded));
	*r = (ct_comm_recorded){.comm = c, .n = n, .n_ops = n_ops};
	if (!(r->ops = CT_NEW_ARRAY(struct ct_flight_record, (size_t)n_ops))) {
		ct_free(r);
		return CT_NOMEM;
	}
	for (int i = 0; i < n_ops; i++)
		CT_ASSERT(ct__flight_at(c->flight, n_seq - n_ops + i, &r->ops[i]));
	*out = r;
	return CT_OK;
}

void ct_comm_recorded_destroy(ct_comm_recorded *r)
{
	if (r)
		ct_free(r->ops);
	ct_free(r);
}

void ct_comm_recorded_count(const ct_comm_recorded *r)
{
	if (!r)
		return;
	atomic_fetch_add(&r->comm->seq, r->n - r->n_ops);
	ct__comm_count_collectives(r->comm, ct_comm_seq(r->comm) + r->n - r->n_ops);
	for (int i = 0; i < r->n_ops; i++) {
		ct_work w = ct__flight_work(r->comm, &r->ops[i]);

		ct__comm_record(r->comm, &w);
	}
}
