/* The flight record as JSON. docs/FORMATS.md describes it. */
#include <math.h>

#include "base/clock.h"
#include "dist/comm/comm_impl.h"

/* Milliseconds from a to b, or null if b has not been reached. */
static void set_ms(ct_json *o, const char *key, int64_t a_ns, int64_t b_ns)
{
	ct_json_set_f64(o, key, b_ns > 0 ? (double)(b_ns - a_ns) * 1e-6 : NAN);
}

static ct_json *record_json(const ct_comm *c, const struct ct_flight_record *r, int64_t now_ns)
{
	ct_json *o = ct_json_object();

	ct_json_set_i64(o, "seq", r->seq);
	if (r->number >= 0)
		ct_json_set_i64(o, "collective", r->number + 1);
	ct_json_set_str(o, "op", ct__comm_kind_name(r->kind));
	ct_json_set_str(o, "type", ct_dtype_name(r->dtype));
	ct_json_set_i64(o, "count", (int64_t)r->n);
	ct_json_set_i64(o, "bytes", (int64_t)(r->n * ct_dtype_bytes(r->dtype)));
	if (r->number < 0)
		ct_json_set_i64(o, "peer", ct__comm_world_rank(c, r->root));
	if (r->step >= 0)
		ct_json_set_i64(o, "step", r->step);
	if (r->bucket >= 0)
		ct_json_set_i64(o, "bucket", r->bucket);
	ct_json_set_str(o, "state", r->done_ns ? "done" : r->begun_ns ? "begun" : "posted");
	set_ms(o, "posted_ms_ago", r->posted_ns, now_ns);
	set_ms(o, "begun_ms", r->posted_ns, r->begun_ns);
	set_ms(o, "done_ms", r->posted_ns, r->done_ns);
	return o;
}

ct_json *ct_comm_flight(const ct_comm *c)
{
	const int64_t n = atomic_load(&c->seq), now_ns = ct_now_ns();
	ct_json *o = ct_json_object(), *list = ct_json_array();
	struct ct_flight_record r;

	ct_json_set_str(o, "scope", c->scope);
	ct_json_set_str(o, "backend", c->ops->name);
	ct_json_set_i64(o, "collectives", ct_comm_seq(c));
	for (int64_t seq = n > CT_FLIGHT_RECORDS ? n - CT_FLIGHT_RECORDS : 0; seq < n; seq++) {
		if (ct__flight_at(c->flight, seq, &r))
			ct_json_push(list, record_json(c, &r, now_ns));
	}
	ct_json_set(o, "records", list);
	return o;
}
