/* The flight record is a ring of slots with a single writer, the thread that posts; operation seq uses slot seq %
 * CT_FLIGHT_RECORDS. The writer sets the stamp to 0, writes the members, and sets the stamp to seq + 1. A reader
 * accepts what it has read only if the stamp was seq + 1 before and after. It thus needs no lock, and it can read the
 * record of a rank that hangs. All members are atomic, so a reader that loses this race reads values that it discards,
 * and there is no data race.
 *
 * The times at which an operation began and was done are added later, by any thread, if the slot still belongs to the
 * operation. The record contains no pointers, because it may be in the page of the rank, where another process
 * reads it after this one has ended. */
#include "dist/comm/flight_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process/rank_page.h"
#include "dist/comm/comm_impl.h"

static struct ct_flight_slot *slot_of(struct ct_flight *f, int64_t seq)
{
	return &f->slots[(uint64_t)seq % CT_FLIGHT_RECORDS];
}

struct ct_flight *ct__flight_create(void)
{
	_Static_assert(sizeof(struct ct_flight) <= CT_RANK_AREA_BYTES,
		       "a flight record fits into an area of a rank page");
	struct ct_flight *f = ct_rank_area_take(sizeof(*f));

	return f ? f : CT_NEW(struct ct_flight);
}

void ct__flight_destroy(struct ct_flight *f)
{
	if (!ct_rank_area_return(f))
		ct_free(f);
}

static void put(_Atomic int64_t *at, int64_t v)
{
	atomic_store_explicit(at, v, memory_order_relaxed);
}

static int64_t get(const _Atomic int64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

void ct__flight_add(struct ct_flight *f, const struct ct_flight_record *r)
{
	struct ct_flight_slot *s = slot_of(f, r->seq);

	put(&s->stamp, 0);
	/* Pairs with the fence in ct__flight_at: whoever reads one of the new values also reads the new stamp. */
	atomic_thread_fence(memory_order_release);
	put(&s->number, r->number);
	put(&s->step, r->step);
	put(&s->bucket, r->bucket);
	put(&s->what, (int64_t)r->kind | (int64_t)r->dtype << 8 | (int64_t)r->op << 16);
	put(&s->root_tag, (int64_t)((uint64_t)(uint32_t)r->root << 32 | (uint32_t)r->tag));
	put(&s->n, (int64_t)r->n);
	put(&s->posted_ns, r->posted_ns);
	put(&s->begun_ns, 0);
	put(&s->done_ns, 0);
	atomic_store_explicit(&s->stamp, r->seq + 1, memory_order_release);
}

void ct__flight_begun(struct ct_flight *f, int64_t seq, int64_t now_ns)
{
	struct ct_flight_slot *s = slot_of(f, seq);

	if (get(&s->stamp) == seq + 1)
		put(&s->begun_ns, now_ns);
}

static bool is_pending(const struct ct_flight_slot *s, int64_t seq)
{
	return get(&s->stamp) == seq + 1 && get(&s->done_ns) == 0;
}

void ct__flight_done(struct ct_flight *f, int64_t seq)
{
	struct ct_flight_slot *s = slot_of(f, seq);

	if (is_pending(s, seq))
		put(&s->done_ns, ct_now_ns());
}

void ct__flight_done_at(struct ct_flight *f, int64_t seq, int64_t now_ns)
{
	struct ct_flight_slot *s = slot_of(f, seq);

	if (is_pending(s, seq))
		put(&s->done_ns, now_ns);
}

bool ct__flight_at(const struct ct_flight *f, int64_t seq, struct ct_flight_record *out)
{
	const struct ct_flight_slot *s = &f->slots[(uint64_t)seq % CT_FLIGHT_RECORDS];
	int64_t what;

	if (seq < 0 || atomic_load_explicit(&s->stamp, memory_order_acquire) != seq + 1)
		return false;
	what = get(&s->what);
	*out = (struct ct_flight_record){.seq = seq,
					 .number = get(&s->number),
					 .step = get(&s->step),
					 .bucket = (int)get(&s->bucket),
					 .kind = (enum ct_comm_kind)(what & 0xff),
					 .dtype = (enum ct_dtype)(what >> 8 & 0xff),
					 .op = (enum ct_redop)(what >> 16 & 0xff),
					 .root = (int)(get(&s->root_tag) >> 32),
					 .tag = (int)(uint32_t)get(&s->root_tag),
					 .n = (uint64_t)get(&s->n),
					 .posted_ns = get(&s->posted_ns),
					 .begun_ns = get(&s->begun_ns),
					 .done_ns = get(&s->done_ns)};
	atomic_thread_fence(memory_order_acquire);
	return get(&s->stamp) == seq + 1;
}

bool ct__flight_find(const struct ct_flight *f, int64_t n_seq, int64_t number, struct ct_flight_record *out)
{
	for (int64_t seq = n_seq - 1; seq >= 0 && n_seq - seq <= CT_FLIGHT_RECORDS; seq--) {
		if (ct__flight_at(f, seq, out) && out->number == number)
			return true;
	}
	return false;
}

bool ct__flight_pending(const struct ct_flight *f, int64_t n_seq, struct ct_flight_record *out)
{
	struct ct_flight_record r;
	bool found = false;

	for (int64_t seq = n_seq - 1; seq >= 0 && n_seq - seq <= CT_FLIGHT_RECORDS; seq--) {
		if (!ct__flight_at(f, seq, &r) || r.done_ns != 0)
			continue;
		*out = r;
		found = true;
	}
	return found;
}

ct_work ct__flight_work(ct_comm *c, const struct ct_flight_record *r)
{
	return (ct_work){.comm = c,
			 .kind = r->kind,
			 .n = r->n,
			 .dtype = r->dtype,
			 .op = r->op,
			 .root = r->root,
			 .tag = r->tag,
			 .bucket = r->bucket + 1,
			 .number = r->number,
			 .seq = r->seq};
}

/* Writes "bucket 2 of step 118", "bucket 2", "step 118" or "". */
static void label_of(int bucket, int64_t step, char *buf, size_t len)
{
	if (bucket >= 0 && step >= 0)
		snprintf(buf, len, "bucket %d of step %lld", bucket, (long long)step);
	else if (bucket >= 0)
		snprintf(buf, len, "bucket %d", bucket);
	else if (step >= 0)
		snprintf(buf, len, "step %lld", (long long)step);
	else
		snprintf(buf, len, "%s", "");
}

void ct_comm_name_bucket(ct_comm *c, int bucket, const char *first, const char *last)
{
	const bool one = strcmp(first, last) == 0;

	if (bucket >= 0 && bucket < CT_FLIGHT_BUCKETS)
		snprintf(c->flight->buckets[bucket], CT_FLIGHT_BUCKET_NAME, "gradients of %.30s%s%.30s", first,
			 one ? "" : " to ", one ? "" : last);
}

const char *ct__flight_bucket(const struct ct_flight *f, int bucket)
{
	return bucket >= 0 && bucket < CT_FLIGHT_BUCKETS ? f->buckets[bucket] : "";
}

void ct__flight_text(const ct_comm *c, const struct ct_flight_record *r, char *buf, size_t len)
{
	char op[128], label[64];
	const char *params = ct__flight_bucket(c->flight, r->bucket);

	ct__comm_op_text(c, r->kind, r->dtype, r->op, r->n, r->root, r->tag, op, sizeof(op));
	label_of(r->bucket, r->step, label, sizeof(label));
	if (label[0])
		snprintf(buf, len, "%s (%s%s%s)", op, label, params[0] ? ", " : "", params);
	else
		snprintf(buf, len, "%s", op);
}

void ct__flight_name(const ct_comm *c, const struct ct_flight_record *r, char *buf, size_t len)
{
	char op[128], label[64];
	const char *params = ct__flight_bucket(c->flight, r->bucket);

	ct__comm_op_text(c, r->kind, r->dtype, r->op, r->n, r->root, r->tag, op, sizeof(op));
	label_of(r->bucket, r->step, label, sizeof(label));
	if (label[0])
		snprintf(buf, len, "%s (%s%s%s)", label, op, params[0] ? ", " : "", params);
	else
		snprintf(buf, len, "%s", op);
}

void ct_comm_ops_since(const ct_comm *c, int64_t step, void (*fn)(void *user, const struct ct_comm_op *op), void *user)
{
	const int64_t n = atomic_load(&c->seq);
	struct ct_flight_record r;

	for (int64_t seq = n > CT_FLIGHT_RECORDS ? n - CT_FLIGHT_RECORDS : 0; seq < n; seq++) {
		if (!ct__flight_at(c->flight, seq, &r) || r.step < step)
			continue;
		fn(user, &(struct ct_comm_op){.name = ct__comm_kind_name(r.kind),
					      .bytes = r.n * ct_dtype_bytes(r.dtype),
					      .step = r.step,
					      .bucket = r.bucket,
					      .parameters = ct__flight_bucket(c->flight, r.bucket),
					      .posted_ns = r.posted_ns,
					      .done_ns = r.done_ns});
	}
}
