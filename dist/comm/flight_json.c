/* The flight record as JSON. docs/FORMATS.md describes it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/process/rank_page.h"
#include "dist/comm/comm_impl.h"

/* Milliseconds from a to b, or null if b has not been reached. */
static void set_ms(ct_json *o, const char *key, int64_t a_ns, int64_t b_ns)
{
	ct_json_set_f64(o, key, b_ns > 0 ? (double)(b_ns - a_ns) * 1e-6 : NAN);
}

/* c: NULL if the communicator belonged to another process. */
static ct_json *record_json(const ct_comm *c, const struct ct_flight *f, const struct ct_flight_record *r,
			    int64_t now_ns)
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
		ct_json_set_i64(o, "peer", c ? ct__comm_world_rank(c, r->root) : r->root);
	if (r->step >= 0)
		ct_json_set_i64(o, "step", r->step);
	if (r->bucket >= 0)
		ct_json_set_i64(o, "bucket", r->bucket);
	if (ct__flight_bucket(f, r->bucket)[0])
		ct_json_set_str(o, "parameters", ct__flight_bucket(f, r->bucket));
	ct_json_set_str(o, "state", r->done_ns ? "done" : r->begun_ns ? "begun" : "posted");
	set_ms(o, "posted_ms_ago", r->posted_ns, now_ns);
	set_ms(o, "begun_ms", r->posted_ns, r->begun_ns);
	set_ms(o, "done_ms", r->posted_ns, r->done_ns);
	return o;
}

/* n: how many operations have been posted. Returns at most the last `last` ones. */
static ct_json *flight_json(const ct_comm *c, const struct ct_flight *f, int64_t n, int64_t collectives, int64_t last)
{
	const int64_t now_ns = ct_now_ns();
	ct_json *o = ct_json_object(), *list = ct_json_array();
	struct ct_flight_record r;

	ct_json_set_str(o, "scope", f->scope);
	ct_json_set_str(o, "backend", f->backend);
	ct_json_set_i64(o, "collectives", collectives);
	for (int64_t seq = n > last ? n - last : 0; seq < n; seq++) {
		if (ct__flight_at(f, seq, &r))
			ct_json_push(list, record_json(c, f, &r, now_ns));
	}
	ct_json_set(o, "records", list);
	return o;
}

ct_json *ct_comm_flight(const ct_comm *c)
{
	return flight_json(c, c->flight, atomic_load(&c->seq), ct_comm_seq(c), CT_FLIGHT_RECORDS);
}

/* The strings come from another process, so they may have no end. */
static bool is_flight(const struct ct_flight *f)
{
	return f->backend[0] && memchr(f->backend, 0, sizeof(f->backend)) && memchr(f->scope, 0, sizeof(f->scope));
}

ct_json *ct_flights_of_page(const struct ct_rank_page *p, int last)
{
	ct_json *list = ct_json_array();

	for (int i = 0; i < CT_RANK_AREAS; i++) {
		const struct ct_flight *f = (const void *)p->areas[i].data;
		int64_t n = 0, collectives = 0;
		struct ct_flight_record r;

		if (atomic_load(&p->areas[i].used) == 0 || !is_flight(f))
			continue;
		for (int k = 0; k < CT_FLIGHT_RECORDS; k++) {
			const int64_t stamp = atomic_load(&f->slots[k].stamp);

			n = stamp > n ? stamp : n;
			if (stamp > 0 && ct__flight_at(f, stamp - 1, &r) && r.number >= collectives)
				collectives = r.number + 1;
		}
		ct_json_push(list, flight_json(NULL, f, n, collectives, last));
	}
	return list;
}
