/* The choice of "auto" between communicators that not all ranks may be able to use. Each rank writes an answer to the
 * store: whether it can use nccl, the UUID of its GPU, and the reason if it cannot. Rank 0 reads all answers and writes
 * the result, which the others wait for. Ranks decide by the codes; a reason is only for messages. No rank decides by
 * its own answer, because then some ranks would open nccl and others a different communicator. Ranks without a GPU
 * answer, too, because a rank with a GPU does not know that there are any: with `device: auto`, each host chooses by
 * itself. They need not wait for the result, which their answer determines. The keys contain how many times this rank
 * has chosen so far, so a choice never reads the answers of an earlier one. */
#include <stdio.h>
#include <string.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"

enum { CAN_USE = 1, CANNOT_USE }; /* codes in the store; no answer and no result begins with another byte */

struct answer {
	uint8_t code;
	char gpu[64];
	char why[256]; /* if code is CANNOT_USE */
};
struct result {
	uint8_t code;
	char why[320]; /* if code is CANNOT_USE */
};

/* Makes the prefix of the keys. All ranks of the communicator call this equally often. Other parts of the world use the
 * same store, so it contains the scope and ranks of the complete world. */
static enum ct_status choose_prefix(const struct ct_world *w, const char *scope, char *buf, size_t len)
{
	char key[128];
	int64_t n;

	if (!scope)
		scope = CT_COMM_DEFAULT_SCOPE;
	snprintf(key, sizeof(key), "auto/%s/%d/opened/%d", scope, w->id.restart, w->peers[w->id.rank].rank);
	CT_TRY(ct_store_add(w->store, key, 1, &n));
	snprintf(buf, len, "auto/%s/%d/%lld", scope, w->id.restart, (long long)n);
	return CT_OK;
}

/* Gets a struct answer or result of `size` bytes, all of which are char, so there is no padding. */
static enum ct_status get(const struct ct_world *w, const char *key, int64_t deadline_ns, void *out, size_t size)
{
	char *value;
	size_t len;
	enum ct_status st = CT_OK;

	CT_TRY(ct_store_get(w->store, key, deadline_ns, &value, &len));
	if (len != size || (value[0] != CAN_USE && value[0] != CANNOT_USE) || value[size - 1] != '\0')
		st = CT_FAIL(CT_COMM, "the key %s of the store has %zu bytes that are not valid", key, len);
	else
		memcpy(out, value, size);
	ct_free(value);
	return st;
}

static enum ct_status read_answer(const struct ct_world *w, const char *prefix, int q, int64_t deadline_ns,
				  struct answer *out)
{
	char key[128];

	snprintf(key, sizeof(key), "%s/%d", prefix, w->peers[q].rank);
	if (get(w, key, deadline_ns, out, sizeof(*out)) < 0) {
		ct_error_wrap("rank %d (pid %d on %s) has not opened the communicator", w->peers[q].rank,
			      w->peers[q].pid, w->peers[q].host);
		return ct_error_caused_by(w->peers[q].rank, w->peers[q].pid);
	}
	return CT_OK;
}

static CT_PRINTF(2, 3) void cannot_use(struct result *r, const char *fmt, ...)
{
	va_list ap;

	r->code = CANNOT_USE;
	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
}

/* Determines from all answers whether the ranks can use nccl. */
static enum ct_status judge(const struct ct_world *w, const char *prefix, int64_t deadline_ns, struct result *r)
{
	struct answer *all;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct answer, (size_t)w->id.world));
	*r = (struct result){.code = CAN_USE};
	for (int q = 0; st == CT_OK && q < w->id.world; q++) {
		st = read_answer(w, prefix, q, deadline_ns, &all[q]);
		if (st == CT_OK && r->code == CAN_USE && all[q].code == CANNOT_USE)
			cannot_use(r, "rank %d: %s", w->peers[q].rank, all[q].why);
		for (int i = 0; st == CT_OK && r->code == CAN_USE && i < q; i++)
			if (strcmp(all[i].gpu, all[q].gpu) == 0)
				cannot_use(r, "rank %d and rank %d share a GPU", w->peers[i].rank, w->peers[q].rank);
	}
	ct_free(all);
	return st;
}

/* Publishes the answer of this rank. Writes the prefix of the keys of this choice. */
static enum ct_status post_answer(struct ct_world *w, const char *scope, const struct answer *own, char *prefix,
				  size_t len)
{
	char key[128];

	CT_TRY(choose_prefix(w, scope, prefix, len));
	snprintf(key, sizeof(key), "%s/%d", prefix, w->peers[w->id.rank].rank);
	return ct_store_set(w->store, key, own, sizeof(*own));
}

static enum ct_status publish(struct ct_world *w, const char *prefix, const struct result *r)
{
	char key[128];

	snprintf(key, sizeof(key), "%s/result", prefix);
	return ct_store_set(w->store, key, r, sizeof(*r));
}

enum ct_status ct__comm_decline_nccl(struct ct_world *w, const struct ct_comm_opts *opts)
{
	struct answer own = {.code = CANNOT_USE, .why = "its device is not a GPU"};
	struct result r = {0};
	char prefix[96];

	CT_TRY(post_answer(w, opts->scope, &own, prefix, sizeof(prefix)));
	if (w->id.rank > 0)
		return CT_OK;
	cannot_use(&r, "rank %d: %s", w->peers[0].rank, own.why);
	return publish(w, prefix, &r);
}

enum ct_status ct__comm_agree_on_nccl(struct ct_world *w, const struct ct_comm_opts *opts, const char *own_why,
				      bool *can_use, char *why, size_t len)
{
	const int64_t deadline = ct_deadline_in(opts->timeout_ns > 0 ? opts->timeout_ns : CT_FOREVER);
	struct answer own = {.code = own_why ? CANNOT_USE : CAN_USE};
	struct ct_device_info info;
	struct result r;
	char prefix[96], key[128];

	CT_TRY(ct_device_info(opts->device, &info));
	snprintf(own.gpu, sizeof(own.gpu), "%s", info.uuid);
	if (own_why)
		snprintf(own.why, sizeof(own.why), "%s", own_why);
	CT_TRY(post_answer(w, opts->scope, &own, prefix, sizeof(prefix)));
	if (w->id.rank == 0) {
		CT_TRY(judge(w, prefix, deadline, &r));
		CT_TRY(publish(w, prefix, &r));
	} else {
		snprintf(key, sizeof(key), "%s/result", prefix);
		if (get(w, key, deadline, &r, sizeof(r)) < 0)
			return ct_error_wrap("rank %d has not chosen the communicator", w->peers[0].rank);
	}
	*can_use = r.code == CAN_USE;
	snprintf(why, len, "%s", r.why);
	return CT_OK;
}
