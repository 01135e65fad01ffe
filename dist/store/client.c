/* The requests of a store client. Each builds a frame, passes it to call.c, and reads the reply with a reader that must
 * be at its end. A wait for a key that times out is still pending on the server, so it is cancelled there; the answer
 * to this also shows whether the server is alive, and thus which of two messages is true: no rank has set the key, or
 * the store does not answer. After a request that was not answered, further ones that need not succeed wait only for a
 * moment. */
#include <inttypes.h>
#include <string.h>

#include "base/hash/sha256.h"
#include "dist/store/call_impl.h"
#include "dist/store/failure.h"

#define REPORT_NS (2 * CT_SEC)
#define CANCEL_NS CT_SEC
#define SILENT_NS (200 * CT_MS) /* if the server has not answered the call before */

static enum ct_status check_key(const char *key)
{
	size_t len = strlen(key);

	if (len == 0 || len > CT_STORE_MAX_KEY)
		return CT_FAIL(CT_USAGE, "a store key has %zu bytes, but 1 to %d are allowed", len, CT_STORE_MAX_KEY);
	return CT_OK;
}

static enum ct_status check_value(const char *key, size_t len)
{
	if (len > CT_STORE_MAX_VALUE)
		return CT_FAIL(CT_UNSUPPORTED,
			       "the value of key \"%s\" has %zu bytes, but the store allows at most %zu", key, len,
			       CT_STORE_MAX_VALUE);
	return CT_OK;
}

/* Sends the request in b, frees b, and sets *reader to read the body of the reply. The caller must free call->body. */
static enum ct_status request_by(ct_store *s, struct ct_str *b, int64_t deadline_ns, struct ct_call *call,
				 struct ct_wire_reader *r)
{
	enum ct_status st = ct__call_do(s, b, NULL, 0, deadline_ns, call);

	ct_str_release(b);
	if (st == CT_OK)
		*r = (struct ct_wire_reader){.p = (const uint8_t *)call->body, .left = call->len};
	return st;
}

static enum ct_status request(ct_store *s, struct ct_str *b, struct ct_call *call, struct ct_wire_reader *r)
{
	return request_by(s, b, ct_deadline_in(CT_STORE_CALL_NS), call, r);
}

/* Ends a request: frees the body, and fails if the reply is malformed. */
static enum ct_status finish(struct ct_call *call, const struct ct_wire_reader *r, const char *what)
{
	bool good = ct_wire_done(r);

	ct_free(call->body);
	return good ? CT_OK : CT_FAIL(CT_COMM, "cannot read the store's reply to %s", what);
}

double ct_store_silent_s(ct_store *s)
{
	int64_t since;

	pthread_mutex_lock(&s->lock);
	since = s->silent_since;
	pthread_mutex_unlock(&s->lock);
	return since ? ct_seconds_since(since) : 0;
}

int64_t ct_store_patience(ct_store *s, int64_t ns)
{
	return ct_deadline_in(ns > SILENT_NS && ct_store_silent_s(s) > 0 ? SILENT_NS : ns);
}

enum ct_status ct_store_set(ct_store *s, const char *key, const void *value, size_t len)
{
	return ct_store_set_by(s, key, value, len, ct_deadline_in(CT_STORE_CALL_NS));
}

enum ct_status ct_store_set_by(ct_store *s, const char *key, const void *value, size_t len, int64_t deadline_ns)
{
	struct ct_str b = {0};
	struct ct_call call;
	enum ct_status st;

	CT_TRY(check_key(key));
	CT_TRY(check_value(key, len));
	ct_wire_begin(&b, CT_WIRE_SET, CT_OK, 0);
	ct_wire_put_str(&b, key);
	ct_wire_put_u32(&b, (uint32_t)len);
	st = ct__call_do(s, &b, value, len, deadline_ns, &call);
	ct_str_release(&b);
	if (st == CT_OK)
		ct_free(call.body);
	return st;
}

/* Cancels a wait on the server. Returns false if the server does not answer. Does not change the error chain. */
static bool cancel(ct_store *s, uint64_t tag)
{
	struct ct_wire_reader r;
	struct ct_error before;
	struct ct_str b = {0};
	struct ct_call call;
	bool answered;

	ct_error_save(&before);
	ct_wire_begin(&b, CT_WIRE_CANCEL, CT_OK, 0);
	ct_wire_put_i64(&b, (int64_t)tag);
	answered = request_by(s, &b, ct_deadline_in(CANCEL_NS), &call, &r) == CT_OK;
	if (answered)
		ct_free(call.body);
	(void)ct_error_restore(&before);
	return answered;
}

enum ct_status ct_store_get(ct_store *s, const char *key, int64_t deadline_ns, char **value, size_t *len)
{
	int64_t start = ct_now_ns();
	struct ct_str b = {0};
	struct ct_call call;
	enum ct_status st;

	CT_TRY(check_key(key));
	ct_wire_begin(&b, CT_WIRE_GET, CT_OK, 0);
	ct_wire_put_str(&b, key);
	ct_wire_put_u8(&b, 1);
	st = ct__call_do(s, &b, NULL, 0, deadline_ns, &call);
	ct_str_release(&b);
	if (st == CT_TIMEOUT && cancel(s, call.tag))
		return CT_FAIL(CT_TIMEOUT, "waited %.1f s for key \"%s\" in the store: no rank set it",
			       ct_seconds_since(start), key);
	CT_TRY(st);
	*value = call.body;
	*len = call.len;
	return CT_OK;
}

enum ct_status ct_store_add(ct_store *s, const char *key, int64_t delta, int64_t *result)
{
	return ct_store_add_by(s, key, delta, ct_deadline_in(CT_STORE_CALL_NS), result);
}

enum ct_status ct_store_add_by(ct_store *s, const char *key, int64_t delta, int64_t deadline_ns, int64_t *result)
{
	struct ct_wire_reader r;
	struct ct_str b = {0};
	struct ct_call call;

	CT_TRY(check_key(key));
	ct_wire_begin(&b, CT_WIRE_ADD, CT_OK, 0);
	ct_wire_put_str(&b, key);
	ct_wire_put_i64(&b, delta);
	CT_TRY(request_by(s, &b, deadline_ns, &call, &r));
	*result = ct_wire_i64(&r);
	return finish(&call, &r, "add");
}

enum ct_status ct_store_delete(ct_store *s, const char *key)
{
	struct ct_wire_reader r;
	struct ct_str b = {0};
	struct ct_call call;

	CT_TRY(check_key(key));
	ct_wire_begin(&b, CT_WIRE_DELETE, CT_OK, 0);
	ct_wire_put_str(&b, key);
	CT_TRY(request(s, &b, &call, &r));
	return finish(&call, &r, "delete");
}

enum ct_status ct_store_beat(ct_store *s, const struct ct_position *at)
{
	struct ct_str b = {0};
	enum ct_status st;

	ct_wire_begin(&b, CT_WIRE_BEAT, CT_OK, 0);
	ct_wire_put_position(&b, at);
	st = ct__call_post(s, &b);
	ct_str_release(&b);
	return st;
}

enum ct_status ct_store_members(ct_store *s, struct ct_member_state **out, int *n)
{
	return ct_store_members_by(s, ct_deadline_in(CT_STORE_CALL_NS), out, n);
}

enum ct_status ct_store_members_by(ct_store *s, int64_t deadline_ns, struct ct_member_state **out, int *n)
{
	struct ct_member_state *m;
	struct ct_wire_reader r;
	struct ct_str b = {0};
	struct ct_call call;
	enum ct_status st;
	uint32_t count;

	ct_wire_begin(&b, CT_WIRE_MEMBERS, CT_OK, 0);
	CT_TRY(request_by(s, &b, deadline_ns, &call, &r));
	count = ct_wire_u32(&r);
	if (count > r.left)
		r.bad = true;
	m = CT_NEW_ARRAY(struct ct_member_state, r.bad ? 0 : count);
	for (uint32_t i = 0; m && i < count && !r.bad; i++)
		ct_wire_read_member(&r, &m[i]);
	st = finish(&call, &r, "members");
	if (!m)
		st = CT_NOMEM;
	if (st != CT_OK) {
		ct_free(m);
		return st;
	}
	*out = m;
	*n = (int)count;
	return CT_OK;
}

enum ct_status ct_store_report(ct_store *s, const struct ct_failure *f)
{
	struct ct_wire_reader r;
	struct ct_str b = {0};
	struct ct_call call;

	ct_wire_begin(&b, CT_WIRE_REPORT, CT_OK, 0);
	ct_wire_put_failure(&b, f);
	CT_TRY(request_by(s, &b, ct_store_patience(s, REPORT_NS), &call, &r));
	return finish(&call, &r, "report");
}

enum ct_status ct_store_watch(ct_store *s, int64_t deadline_ns, struct ct_failure *out)
{
	return ct__call_watch(s, deadline_ns, out);
}

void ct_store_cancel_watch(ct_store *s)
{
	pthread_mutex_lock(&s->lock);
	s->cancelled = true;
	ct__call_wake(s);
	pthread_mutex_unlock(&s->lock);
}

void ct_store_derive_key(const ct_store *s, const char *purpose, char key[CT_TOKEN_HEX])
{
	static const char label[] = "ctrain derived key";
	/* Each NUL separates a string from the next one. */
	const struct ct_hmac_part parts[] = {
		{label, sizeof(label)}, {s->opts.run_id, strlen(s->opts.run_id) + 1}, {purpose, strlen(purpose)}};
	uint8_t digest[CT_SHA256_BYTES];

	ct_hmac_sha256(s->opts.token, strlen(s->opts.token), parts, CT_ARRAY_LEN(parts), digest);
	ct_hex(digest, sizeof(digest), key);
}
