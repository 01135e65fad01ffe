/* Checks that all ranks have the same values. The other ranks store their lines, rank 0 compares them with its own, and
 * all ranks read its result, so all of them succeed or fail with the same message. Each call has a number, so that
 * calls do not mix. Keys are deleted when no rank can need them any more: the lines when they have been compared, and a
 * result in the next round, because a rank that has sent its lines for this round has read the result of the one
 * before. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/rendezvous/handshake_impl.h"
#include "dist/store/failure.h"

#define SHOWN 160 /* most bytes of a value that a message shows */

/* One "key=value" line. */
struct line {
	const char *p;
	size_t len, key_len;
};

static bool next_line(const char **at, struct line *l)
{
	const char *eq;

	if (**at == '\0')
		return false;
	l->p = *at;
	l->len = strcspn(l->p, "\n");
	eq = memchr(l->p, '=', l->len);
	l->key_len = eq ? (size_t)(eq - l->p) : l->len;
	*at += l->len + (l->p[l->len] == '\n');
	return true;
}

static bool same(const struct line *a, const struct line *b)
{
	return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}

static bool same_key(const struct line *a, const struct line *b)
{
	return a->key_len == b->key_len && memcmp(a->p, b->p, a->key_len) == 0;
}

static void show_value(struct ct_str *b, const struct line *l)
{
	if (l->key_len < l->len)
		ct_str_add_escaped(b, l->p + l->key_len + 1, l->len - l->key_len - 1, SHOWN);
	else
		ct_str_add(b, "nothing");
}

static void show_line(struct ct_str *b, bool there, const struct line *l)
{
	if (there)
		ct_str_add_escaped(b, l->p, l->len, SHOWN);
	else
		ct_str_add(b, "nothing");
}

/* Makes the message "<key>: rank 1 (...) has <value>, rank 0 (...) has <value>", with the number of further lines that
 * differ. */
static enum ct_status differ(const struct ct_world *w, const char *what, int rank, const char *theirs, const char *ours)
{
	const struct ct_peer *p = &w->peers[rank], *q = &w->peers[0];
	struct line a = {0}, b = {0};
	char who[CT_MEMBER_TEXT], who0[CT_MEMBER_TEXT];
	struct ct_str s = {0};
	bool has_a, has_b;
	int n = 0;

	ct_member_text(who, sizeof(who), rank, p->pid, p->host);
	ct_member_text(who0, sizeof(who0), 0, q->pid, q->host);
	do {
		has_a = next_line(&theirs, &a);
		has_b = next_line(&ours, &b);
		if ((!has_a && !has_b) || (has_a && has_b && same(&a, &b)))
			continue;
		if (n++ > 0)
			continue;
		if (has_a && has_b && same_key(&a, &b)) {
			ct_str_add_escaped(&s, a.p, a.key_len, SHOWN);
			ct_str_addf(&s, " differs: %s has ", who);
			show_value(&s, &a);
			ct_str_addf(&s, ", %s has ", who0);
			show_value(&s, &b);
		} else {
			ct_str_addf(&s, "%s has ", who);
			show_line(&s, has_a, &a);
			ct_str_addf(&s, " where %s has ", who0);
			show_line(&s, has_b, &b);
		}
	} while (has_a || has_b);
	if (n > 1)
		ct_str_addf(&s, ", and %d more", n - 1);
	CT_FAIL(CT_MISMATCH, "%s: %s", what, ct_str_text(&s));
	ct_error_hint("start all ranks with the same files, the same options and the same version of ctrain");
	ct_str_release(&s);
	return CT_MISMATCH;
}

/* Runs on rank 0. */
static enum ct_status compare(struct ct_world *w, const char *what, const char *lines, int round, int64_t deadline_ns)
{
	enum ct_status st = CT_OK;
	char key[64];

	for (int rank = 1; rank < w->id.world && st == CT_OK; rank++) {
		char *theirs;
		size_t len;

		snprintf(key, sizeof(key), "agree/%d/%d", round, rank);
		st = ct_store_get(w->store, key, deadline_ns, &theirs, &len);
		if (st == CT_TIMEOUT)
			ct_error_wrap("%s: rank %d on host %s is late", what, rank, w->peers[rank].host);
		if (st != CT_OK)
			break;
		if (strlen(theirs) != len || strcmp(theirs, lines) != 0)
			st = differ(w, what, rank, theirs, lines);
		ct_free(theirs);
		if (st == CT_OK)
			st = ct_store_delete(w->store, key);
	}
	snprintf(key, sizeof(key), "agree/%d", round - 1);
	if (st == CT_OK)
		st = ct_store_delete(w->store, key);
	return st;
}

enum ct_status ct_world_agree(struct ct_world *w, const char *what, const char *lines, int64_t deadline_ns)
{
	int round = w->n_agreed++;
	char key[64], *extra;
	size_t len;
	bool received;

	if (w->id.world == 1)
		return CT_OK;
	if (w->id.rank == 0) {
		snprintf(key, sizeof(key), "agree/%d", round);
		return ct__consensus_publish(w, key, compare(w, what, lines, round, deadline_ns), NULL, 0);
	}
	snprintf(key, sizeof(key), "agree/%d/%d", round, w->id.rank);
	CT_TRY(ct_store_set(w->store, key, lines, strlen(lines)));
	snprintf(key, sizeof(key), "agree/%d", round);
	/* Rank 0's deadline is earlier than ours, because its message has more detail. */
	CT_TRY(ct__consensus_wait(w, key, deadline_ns == CT_FOREVER ? CT_FOREVER : deadline_ns + 2 * CT_SEC, &received,
				  &extra, &len));
	ct_free(extra);
	return CT_OK;
}
