/* Collectives posted to a stream. If the back end does not support streams, the collective runs in a host function of
 * the stream. At that time all earlier work of the stream is done, so nothing else uses the buffer. */
#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"

/* A collective that has been posted to a stream and is not complete. */
struct ct_posted {
	ct_comm *comm;
	ct_work want, *work; /* work: NULL until it has started */
	int64_t deadline_ns;
	struct ct_posted *next;
};

static enum ct_status finish(struct ct_posted *p, enum ct_status st)
{
	p->next = p->comm->free_posted;
	p->comm->free_posted = p;
	return st;
}

static enum ct_status run(const void *args)
{
	struct ct_posted *p = *(struct ct_posted *const *)args;
	enum ct_status st;

	if (!p->work) {
		p->deadline_ns = ct_deadline_in(p->comm->opts.timeout_ns);
		st = ct__comm_post(p->comm, &p->want, &p->work);
		if (st < 0)
			return finish(p, st);
	}
	/* A back end with its own thread uses the buffer until the operation is done, so wait for it. */
	if (p->comm->ops->cooperative && ct_now_ns() < p->deadline_ns && ct_work_test(p->work) == CT_INPROGRESS)
		return CT_INPROGRESS;
	return finish(p, ct__work_wait_until(p->work, p->deadline_ns));
}

static enum ct_status post(ct_comm *c, const ct_work *want, ct_stream *s)
{
	const struct ct_device_caps *caps = ct_device_caps(ct_stream_device(s));
	struct ct_posted *p = c->free_posted;
	ct_work *w = NULL;

	if (c->ops->post_to)
		return c->ops->post_to(c, want, s);
	if (!caps->async) {
		CT_TRY(ct__comm_post(c, want, &w));
		return ct_work_wait(w);
	}
	if (!caps->host_code)
		return CT_FAIL(CT_UNSUPPORTED, "communicator %s does not support streams of a %s device", c->ops->name,
			       ct_device_kind(ct_stream_device(s)));
	if (p)
		c->free_posted = p->next;
	else
		CT_TRY_ALLOC(p = CT_NEW(struct ct_posted));
	*p = (struct ct_posted){.comm = c, .want = *want};
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

void ct__comm_release_posted(ct_comm *c)
{
	while (c->free_posted) {
		struct ct_posted *p = c->free_posted;
		c->free_posted = p->next;
		ct_free(p);
	}
}
