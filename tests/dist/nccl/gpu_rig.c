#include "tests/dist/nccl/gpu_rig.h"

#include <string.h>
#include <unistd.h>

void open_gpu(struct ct_world *w, struct rig *r)
{
	void *p;

	memset(r, 0, sizeof(*r));
	CHECK(ct_device_open("cuda", w->id.rank, &r->d) == CT_OK);
	CHECK(ct_stream_create(r->d, false, &r->a) == CT_OK);
	CHECK(ct_stream_create(r->d, true, &r->b) == CT_OK);
	CHECK(ct_event_create(r->d, false, &r->e) == CT_OK);
	CHECK(ct_device_mem_alloc(r->d, N * sizeof(float), true, &p) == CT_OK);
	r->x = p;
	CHECK(ct_device_host_alloc(r->d, N * sizeof(float), &p) == CT_OK);
	r->host = p;
}

enum ct_status open_nccl(struct ct_world *w, const struct scene *s, struct rig *r)
{
	struct ct_comm_opts o = {.timeout_ns = s->timeout_ns, .device = r->d};

	return ct_comm_open("nccl", w, &o, &r->c);
}

struct rig open_rig(struct ct_world *w, const struct scene *s)
{
	struct rig r;

	open_gpu(w, &r);
	CHECK(open_nccl(w, s, &r) == CT_OK);
	return r;
}

void close_rig(struct rig *r)
{
	ct_comm_close(r->c);
	ct_device_drain(r->d);
	ct_device_host_free(r->d, r->host);
	ct_device_mem_free(r->d, r->x);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
}

void hand_over(struct rig *r, ct_stream *from, ct_stream *to)
{
	CHECK(ct_event_record(r->e, from) == CT_OK);
	CHECK(ct_stream_wait_event(to, r->e) == CT_OK);
}
