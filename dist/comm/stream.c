/* Collectives posted to a stream. If the back end does not support streams, the collective runs in a host function of
 * the stream. At that time all earlier work of the stream is done, so nothing else uses the buffer. */
#include "base/device/device.h"
#include "dist/comm/comm_impl.h"

/* Arguments of the posted function. They do not change, so that it can be replayed. */
struct posted {
	ct_comm *comm;
	ct_work want;
};
_Static_assert(sizeof(struct posted) <= CT_STREAM_ARGS_MAX,
	       "a collective does not fit the arguments of a posted function");

static enum ct_status begin(struct ct_in_stream *in, const struct posted *p)
{
	in->deadline_ns = ct_deadline_in(p->comm->opts.timeout_ns);
	CT_TRY(ct__comm_post(p->comm, &p->want, &in->work));
	in->args = p;
	return CT_OK;
}

static enum ct_status run(const void *args)
{
	const struct posted *p = args;
	struct ct_in_stream *in = &p->comm->in_stream;
	char other[128], own[128];

	if (in->args && in->args != args) {
		ct__work_text(in->work, other, sizeof(other));
		ct__comm_op_text(p->comm, p->want.kind, p->want.dtype, p->want.op, p->want.n, p->want.root, 0, own,
				 sizeof(own));
		return CT_FAIL(CT_BUG, "%s began in a stream while %s was under way in another: order them by events",
			       own, other);
	}
	if (!in->args)
		CT_TRY(begin(in, p));
	/* A back end with its own thread uses the buffer until the operation is done, so wait for it. */
	if (p->comm->ops->cooperative && ct_now_ns() < in->deadline_ns && ct_work_test(in->work) == CT_INPROGRESS)
		return CT_INPROGRESS;
	in->args = NULL;
	return ct__work_wait_until(in->work, in->deadline_ns);
}

static enum ct_status post(ct_comm *c, const ct_work *want, ct_stream *s)
{
	const struct ct_device_caps *caps = ct_device_caps(ct_stream_device(s));
	const struct posted p = {.comm = c, .want = *want};
	ct_work *w = NULL;

	if (c->ops->post_to)
		return c->ops->post_to(c, want, s);
	if (c->size == 1 && want->src == want->dst) /* nothing to do */
		return CT_OK;
	if (!caps->async) {
		CT_TRY(ct__comm_post(c, want, &w));
		return ct_work_wait(w);
	}
	if (!caps->host_code)
		return CT_FAIL(CT_UNSUPPORTED, "communicator %s does not support streams of a %s device", c->ops->name,
			       ct_device_kind(ct_stream_device(s)));
	return ct_stream_run(s, run, &p, sizeof(p));
}

enum ct_status ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, ct_stream *s)
{
	return post(c, &(ct_work){.kind = CT_COMM_ALLREDUCE, .src = buf, .dst = buf, .n = n, .dtype = t, .op = op}, s);
}

enum ct_status ct_comm_post_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root, ct_stream *s)
{
	return post(c, &(ct_work){.kind = CT_COMM_BROADCAST, .src = buf, .dst = buf, .n = n, .dtype = t, .root = root},
		    s);
}

bool ct_comm_is_cooperative(const ct_comm *c)
{
	return c->ops->cooperative || c->ops->post_to;
}
