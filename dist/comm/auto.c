/* The choice of "auto" between communicators that not all ranks may be able to use. Each rank writes an answer to the
 * store: the UUID of its GPU, and why it cannot use nccl, if so. Rank 0 reads all answers and writes the result, which
 * the others wait for. No rank decides by its own answer, because then some ranks would open nccl and others a
 * different communicator. Ranks without a GPU answer, too, because a rank with a GPU does not know that there are any:
 * with `device: auto`, each host chooses by itself. They need not wait for the result, which their answer determines.
 * The keys contain how many times this rank has chosen so far, so a choice never reads the answers of an earlier
 * one. */
#include <stdio.h>
#include <string.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"

struct answer {
	char gpu[64];
	char why[256]; /* why this rank cannot use nccl; "": it can */
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

static enum ct_status read_answer(const struct ct_world *w, const char *prefix, int q, int64_t deadline_ns,
				  struct answer *out)
{
	char key[128], *value;
	size_t len;

	snprintf(key, sizeof(key), "%s/%d", prefix, w->peers[q].rank);
	if (ct_store_get(w->store, key, deadline_ns, &value, &len) < 0) {
		ct_error_wrap("rank %d (pid %d on %s) has not opened the communicator", w->peers[q].rank,
			      w->peers[q].pid, w->peers[q].host);
		return ct_error_caused_by(w->peers[q].rank, w->peers[q].pid);
	}
	memset(out, 0, sizeof(*out));
	memcpy(out, value, len < sizeof(*out) ? len : sizeof(*out));
	ct_free(value);
	return CT_OK;
}

/* Writes why the ranks cannot use nccl, or "". */
static enum ct_status judge(const struct ct_world *w, const char *prefix, int64_t deadline_ns, char *why, size_t len)
{
	struct answer *all;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct answer, (size_t)w->id.world));
	snprintf(why, len, "%s", "");
	for (int q = 0; st == CT_OK && q < w->id.world; q++) {
		st = read_answer(w, prefix, q, deadline_ns, &all[q]);
		if (st == CT_OK && !why[0] && all[q].why[0])
			snprintf(why, len, "rank %d: %.*s", w->peers[q].rank, (int)sizeof(all[q].why) - 1, all[q].why);
		for (int i = 0; st == CT_OK && !why[0] && i < q; i++)
			if (strcmp(all[i].gpu, all[q].gpu) == 0)
				snprintf(why, len, "rank %d and rank %d share a GPU", w->peers[i].rank,
					 w->peers[q].rank);
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

static enum ct_status publish(struct ct_world *w, const char *prefix, const char *why)
{
	char key[128];

	snprintf(key, sizeof(key), "%s/result", prefix);
	return ct_store_set(w->store, key, why, strlen(why));
}

enum ct_status ct__comm_decline_nccl(struct ct_world *w, const struct ct_comm_opts *opts)
{
	struct answer own = {.why = "its device is not a GPU"};
	char prefix[96], why[320];

	CT_TRY(post_answer(w, opts->scope, &own, prefix, sizeof(prefix)));
	if (w->id.rank > 0)
		return CT_OK;
	snprintf(why, sizeof(why), "rank %d: %s", w->peers[0].rank, own.why);
	return publish(w, prefix, why);
}

enum ct_status ct__comm_agree_on_nccl(struct ct_world *w, const struct ct_comm_opts *opts, const char *own_why,
				      char *why, size_t len)
{
	const int64_t deadline = ct_deadline_in(opts->timeout_ns > 0 ? opts->timeout_ns : CT_FOREVER);
	struct answer own = {0};
	struct ct_device_info info;
	char prefix[96], key[128], *value;
	size_t got;

	CT_TRY(ct_device_info(opts->device, &info));
	snprintf(own.gpu, sizeof(own.gpu), "%s", info.uuid);
	snprintf(own.why, sizeof(own.why), "%s", own_why);
	CT_TRY(post_answer(w, opts->scope, &own, prefix, sizeof(prefix)));
	if (w->id.rank == 0) {
		CT_TRY(judge(w, prefix, deadline, why, len));
		return publish(w, prefix, why);
	}
	snprintf(key, sizeof(key), "%s/result", prefix);
	if (ct_store_get(w->store, key, deadline, &value, &got) < 0)
		return ct_error_wrap("rank %d has not chosen the communicator", w->peers[0].rank);
	snprintf(why, len, "%s", value);
	ct_free(value);
	return CT_OK;
}
