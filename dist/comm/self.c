/* With one rank, each collective copies its source to its destination, or does nothing if they are the same. The
 * operation is done when it is posted, so there is nothing to test, to wait for or to abort. */
#include <string.h>

#include "base/mem.h"
#include "dist/comm/comm_impl.h"

static enum ct_status self_supports(const struct ct_world *w)
{
	if (w->id.world <= 1)
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "communicator \"self\" is for one rank, but this run has %d", w->id.world);
	return ct_error_hint("set dist.backend=auto");
}

static enum ct_status self_open(struct ct_world *w, const struct ct_comm_opts *opts, ct_comm **out)
{
	enum ct_status st;
	ct_comm *c;

	CT_TRY_ALLOC(c = CT_NEW(ct_comm));
	st = ct__comm_init(c, &ct__comm_ops_self, w, opts);
	if (st < 0) {
		ct__comm_release(c);
		ct_free(c);
		return st;
	}
	*out = c;
	return CT_OK;
}

static void self_close(ct_comm *c)
{
	ct__comm_release(c);
	ct_free(c);
}

static enum ct_status self_post(ct_comm *c, ct_work *w)
{
	(void)c;
	if (w->n > 0 && w->src != w->dst)
		memmove(w->dst, w->src, w->n * ct_dtype_bytes(w->dtype));
	atomic_store_explicit(&w->status, CT_OK, memory_order_relaxed);
	return CT_OK;
}

static enum ct_status self_test(ct_comm *c, ct_work *w)
{
	(void)c;
	return (enum ct_status)atomic_load_explicit(&w->status, memory_order_relaxed);
}

static enum ct_status self_wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	(void)deadline_ns;
	return self_test(c, w);
}

static void self_abort(ct_comm *c)
{
	(void)c;
}

const struct ct_comm_ops ct__comm_ops_self = {
	.name = "self",
	.cooperative = true,
	.supports = self_supports,
	.open = self_open,
	.close = self_close,
	.post = self_post,
	.test = self_test,
	.wait = self_wait,
	.abort = self_abort,
};
