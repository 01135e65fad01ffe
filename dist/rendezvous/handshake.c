/* Each rank stores what it knows about itself under introduction/RANK. Rank 0 reads these in rank order, checks them,
 * and publishes one list for all ranks, or the error with which all of them end (ct__consensus_publish). The other
 * ranks wait a little longer than rank 0, because its message about missing ranks has more detail than theirs. In the
 * list, a rank refers to the first one of the same host, since every rank receives the list.
 *
 * Whatever follows is computed by each rank from the same list, so it is the same everywhere: numbers of hosts, local
 * ranks, and the choice of addresses. A rank that has reached the store through loopback publishes another address, but
 * only if the ranks are in several network namespaces, and then all ranks wait for it. */
#include "dist/rendezvous/handshake_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/output.h"
#include "dist/net/net.h"
#include "dist/rendezvous/roll_call.h"
#include "dist/store/failure.h"
#include "dist/store/wire.h"

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"

#define TABLE_ROWS 16
#define SAY_FIRST_NS (2 * CT_SEC) /* interval of the lines that list the missing ranks; it doubles up to SAY_MAX_NS */
#define SAY_MAX_NS (60 * CT_SEC)

struct introduction {
	struct ct_peer peer;
	char net_key[128];
	int world;
	int like; /* the first rank in the list with the same host and address */
};

static unsigned long inode_of(const char *path)
{
	struct stat s;

	return stat(path, &s) == 0 ? (unsigned long)s.st_ino : 0;
}

void ct__host_facts(struct ct__host_facts *out)
{
	char boot[64] = "";
	char *text;
	size_t len;

	*out = (struct ct__host_facts){.pid = (int)getpid()};
	if (gethostname(out->host, sizeof(out->host) - 1) != 0)
		ct_wire_copy(out->host, sizeof(out->host), "unknown");
	if (ct_file_read("/proc/sys/kernel/random/boot_id", 4096, &text, &len) == CT_OK) {
		text[strcspn(text, "\n")] = '\0';
		ct_wire_copy(boot, sizeof(boot), text);
		ct_free(text);
	} else {
		ct_error_clear();
		ct_wire_copy(boot, sizeof(boot), out->host);
	}
	snprintf(out->host_key, sizeof(out->host_key), "%s/%lu", boot, inode_of("/proc/self/ns/pid"));
	snprintf(out->net_key, sizeof(out->net_key), "%s/%lu", boot, inode_of("/proc/self/ns/net"));
}

enum ct_status ct__consensus_publish(struct ct_world *w, const char *key, enum ct_status st, const void *extra,
				     size_t len)
{
	struct ct_error e;
	struct ct_str b = {0};
	enum ct_status set;

	ct_error_save(&e);
	ct_wire_put_u32(&b, (uint32_t)st);
	if (st == CT_OK) {
		ct_str_add_bytes(&b, extra, len);
	} else {
		ct_wire_put_str(&b, e.message);
		ct_wire_put_str(&b, e.hint);
	}
	set = ct_str_status(&b);
	if (set == CT_OK)
		set = ct_store_set(w->store, key, ct_str_text(&b), b.len);
	ct_str_release(&b);
	if (st == CT_OK)
		return set;
	return ct_error_restore(&e);
}

enum ct_status ct__consensus_wait(struct ct_world *w, const char *key, int64_t deadline_ns, bool *received,
				  char **extra, size_t *len)
{
	struct ct_wire_reader r;
	struct ct_error e = {0};
	char *text;
	size_t n;

	*received = false;
	CT_TRY(ct_store_get(w->store, key, deadline_ns, &text, &n));
	*received = true;
	r = (struct ct_wire_reader){.p = (const uint8_t *)text, .left = n};
	e.status = (enum ct_status)ct_wire_u32(&r);
	if (e.status == CT_OK && !r.bad) {
		*len = r.left;
		memmove(text, text + (n - r.left), r.left);
		text[r.left] = '\0';
		*extra = text;
		return CT_OK;
	}
	ct_wire_str(&r, e.message, sizeof(e.message));
	ct_wire_str(&r, e.hint, sizeof(e.hint));
	ct_free(text);
	if (r.bad || !ct_status_is_failure(e.status))
		return CT_FAIL(CT_COMM, "cannot read rank 0's result under \"%s\"", key);
	return ct_error_restore(&e);
}

static void put_introduction(struct ct_str *b, const struct introduction *h)
{
	ct_wire_put_u32(b, (uint32_t)h->peer.pid);
	ct_wire_put_u32(b, (uint32_t)h->world);
	ct_wire_put_str(b, h->peer.host);
	ct_wire_put_str(b, h->peer.host_key);
	ct_wire_put_str(b, h->peer.addr);
	ct_wire_put_str(b, h->net_key);
}

static void read_introduction(struct ct_wire_reader *r, int rank, struct introduction *h)
{
	*h = (struct introduction){.peer.rank = rank};
	h->peer.pid = (int)ct_wire_u32(r);
	h->world = (int)ct_wire_u32(r);
	ct_wire_str(r, h->peer.host, sizeof(h->peer.host));
	ct_wire_str(r, h->peer.host_key, sizeof(h->peer.host_key));
	ct_wire_str(r, h->peer.addr, sizeof(h->peer.addr));
	ct_wire_str(r, h->net_key, sizeof(h->net_key));
}

static bool same_host(const struct introduction *a, const struct introduction *b)
{
	return strcmp(a->peer.host_key, b->peer.host_key) == 0 && strcmp(a->peer.host, b->peer.host) == 0 &&
	       strcmp(a->peer.addr, b->peer.addr) == 0 && strcmp(a->net_key, b->net_key) == 0;
}

/* In the list of all ranks, a rank refers to the first one that has the same host and address: every rank receives the
 * list, so its size matters in large runs. */
static void put_listed(struct ct_str *b, const struct introduction *all, int rank)
{
	const struct introduction *h = &all[rank];
	int first = 0;

	while (!same_host(&all[first], h))
		first++;
	ct_wire_put_u32(b, (uint32_t)h->peer.pid);
	ct_wire_put_u32(b, (uint32_t)first);
	if (first < rank)
		return;
	ct_wire_put_str(b, h->peer.host);
	ct_wire_put_str(b, h->peer.host_key);
	ct_wire_put_str(b, h->peer.addr);
	ct_wire_put_str(b, h->net_key);
}

static void read_listed(struct ct_wire_reader *r, int rank, struct introduction *all)
{
	int pid = (int)ct_wire_u32(r);
	uint32_t first = ct_wire_u32(r);
	struct introduction *h = &all[rank];

	if (first < (uint32_t)rank) {
		*h = all[first];
	} else {
		ct_wire_str(r, h->peer.host, sizeof(h->peer.host));
		ct_wire_str(r, h->peer.host_key, sizeof(h->peer.host_key));
		ct_wire_str(r, h->peer.addr, sizeof(h->peer.addr));
		ct_wire_str(r, h->net_key, sizeof(h->net_key));
	}
	h->peer.rank = rank;
	h->peer.pid = pid;
	h->like = first < (uint32_t)rank ? (int)first : rank;
}

static void member_row(struct ct_str *b, int rank, const struct ct_member_state *m)
{
	if (m)
		ct_str_addf(b, "\n  rank %-4d host %-20s pid %-8d %s", rank, m->host, m->pid,
			    m->left        ? "left"
			    : m->connected ? "here"
					   : "gone");
	else
		ct_str_addf(b, "\n  rank %-4d MISSING", rank);
}

/* Replaces the message of a store timeout with a table of the ranks that have arrived. */
static enum ct_status name_missing(struct ct_world *w, double waited_s)
{
	struct ct_str missing = {0}, table = {0}, nodes = {0};
	struct ct_member_state *m;
	struct ct_roll roll;
	int n, at = 0, n_missing = 0, rows = 0;

	if (ct_store_members_by(w->store, ct_deadline_in(2 * CT_SEC), &m, &n) != CT_OK)
		return ct_error_status();
	for (int rank = 0; rank < w->id.world; rank++) {
		bool here;

		while (at < n && m[at].rank < rank)
			at++;
		here = at < n && m[at].rank == rank && m[at].connected;
		if (!here && n_missing++ < TABLE_ROWS)
			ct_str_addf(&missing, "%s%d", missing.len ? ", " : "", rank);
		/* If the table is too long, show only the missing ranks. */
		if (rows < TABLE_ROWS && (!here || w->id.world <= TABLE_ROWS)) {
			member_row(&table, rank, at < n && m[at].rank == rank ? &m[at] : NULL);
			rows++;
		}
	}
	/* With our launcher, the user thinks in nodes. */
	if (w->id.by == CT_LAUNCHER_CTRAIN && w->id.n_nodes > 1 &&
	    ct_roll_read(w->store, w->id.world, &roll) == CT_OK) {
		ct_str_add(&nodes, " (");
		ct_roll_call(&roll, m, n, &nodes);
		ct_str_add(&nodes, ")");
		ct_roll_release(&roll);
	}
	CT_FAIL(CT_TIMEOUT, "after %.1f s, %d of %d ranks are missing: %s%s%s%s", waited_s, n_missing, w->id.world,
		ct_str_text(&missing), n_missing > TABLE_ROWS ? ", ..." : "", ct_str_text(&nodes), ct_str_text(&table));
	ct_error_hint(
		"check the output of the missing ranks: they must have started, and their hosts must be able to reach %s",
		w->id.init);
	ct_str_release(&missing);
	ct_str_release(&table);
	ct_str_release(&nodes);
	ct_free(m);
	return CT_TIMEOUT;
}

static enum ct_status check_introduction(const struct ct_world *w, const struct introduction *h)
{
	char who[CT_MEMBER_TEXT];

	if (h->world == w->id.world)
		return CT_OK;
	ct_member_text(who, sizeof(who), h->peer.rank, h->peer.pid, h->peer.host);
	CT_FAIL(CT_MISMATCH, "%s was started for a world of %d ranks, but rank 0 for %d", who, h->world, w->id.world);
	ct_error_hint("start all ranks with the same number of processes and nodes");
	return ct_error_caused_by(h->peer.rank, h->peer.pid);
}

/* Prints which ranks have joined. Our launcher does this itself. */
static void say_missing(struct ct_world *w)
{
	const struct ct_roll roll = {.world = w->id.world};
	struct ct_member_state *m;
	struct ct_str text = {0};
	int n;

	if (w->id.by == CT_LAUNCHER_CTRAIN)
		return;
	if (ct_store_members_by(w->store, ct_deadline_in(CT_SEC), &m, &n) != CT_OK) {
		ct_error_clear();
		return;
	}
	ct_roll_call(&roll, m, n, &text);
	ct_output_print(STDERR_FILENO, "ctrain: waiting for the other ranks: %s\n", ct_str_text(&text));
	ct_str_release(&text);
	ct_free(m);
}

/* When rank 0 logs which ranks are missing. */
struct say {
	int64_t at_ns;
	struct ct_backoff pause;
};

/* Gets the handshake of a rank; logs at intervals which ranks are missing. */
static enum ct_status get_introduction(struct ct_world *w, int rank, int64_t deadline_ns, struct say *say, char **text,
				       size_t *len)
{
	enum ct_status st;
	char key[32];

	snprintf(key, sizeof(key), "introduction/%d", rank);
	for (;;) {
		st = ct_store_get(w->store, key, say->at_ns < deadline_ns ? say->at_ns : deadline_ns, text, len);
		if (st != CT_TIMEOUT || ct_now_ns() >= deadline_ns)
			return st;
		say_missing(w);
		say->at_ns = ct_deadline_in(ct_backoff_ns(&say->pause));
	}
}

/* Collects the handshakes of all ranks. Runs on rank 0. */
static enum ct_status collect(struct ct_world *w, int64_t deadline_ns, struct introduction *all)
{
	int64_t start = ct_now_ns();
	struct say say = {ct_deadline_in(SAY_FIRST_NS), {2 * SAY_FIRST_NS, SAY_MAX_NS}};

	for (int rank = 0; rank < w->id.world; rank++) {
		struct ct_wire_reader r;
		enum ct_status st;
		struct introduction *h = &all[rank];
		char *text;
		size_t len;

		st = get_introduction(w, rank, deadline_ns, &say, &text, &len);
		if (st == CT_TIMEOUT)
			return name_missing(w, ct_seconds_since(start));
		CT_TRY(st);
		r = (struct ct_wire_reader){.p = (const uint8_t *)text, .left = len};
		read_introduction(&r, rank, h);
		ct_free(text);
		if (!ct_wire_done(&r))
			return CT_FAIL(CT_COMM, "cannot read the handshake of rank %d", rank);
		CT_TRY(check_introduction(w, h));
	}
	return CT_OK;
}

/* Collects the handshakes, and writes the list of all ranks to b. */
static enum ct_status make_list(struct ct_world *w, int64_t deadline_ns, struct ct_str *b)
{
	struct introduction *all;
	enum ct_status st;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct introduction, (size_t)w->id.world));
	st = collect(w, deadline_ns, all);
	ct_wire_put_u32(b, (uint32_t)w->id.world);
	for (int i = 0; st == CT_OK && i < w->id.world; i++)
		put_listed(b, all, i);
	ct_free(all);
	return st == CT_OK ? ct_str_status(b) : st;
}

static enum ct_status introduce(struct ct_world *w, const struct introduction *me, int64_t deadline_ns)
{
	struct ct_str b = {0}, all = {0};
	enum ct_status st;
	char key[32];

	put_introduction(&b, me);
	st = ct_str_status(&b);
	snprintf(key, sizeof(key), "introduction/%d", w->id.rank);
	if (st == CT_OK)
		st = ct_store_set(w->store, key, ct_str_text(&b), b.len);
	ct_str_release(&b);
	CT_TRY(st);
	if (w->id.rank != 0)
		return CT_OK;
	st = make_list(w, deadline_ns, &all);
	st = ct__consensus_publish(w, "world", st, ct_str_text(&all), all.len);
	ct_str_release(&all);
	return st;
}

/* Receives the handshakes of all ranks, in rank order. */
static enum ct_status receive_list(struct ct_world *w, int64_t deadline_ns, struct introduction *all)
{
	int64_t start = ct_now_ns();
	struct ct_wire_reader r;
	enum ct_status st;
	uint32_t world;
	char *text;
	size_t len;
	bool received;

	/* Rank 0's own deadline is earlier, because its message has more detail than ours. */
	st = ct__consensus_wait(w, "world", deadline_ns == CT_FOREVER ? CT_FOREVER : deadline_ns + 2 * CT_SEC,
				&received, &text, &len);
	if (st == CT_TIMEOUT && !received)
		return name_missing(w, ct_seconds_since(start));
	CT_TRY(st);
	r = (struct ct_wire_reader){.p = (const uint8_t *)text, .left = len};
	world = ct_wire_u32(&r);
	for (int i = 0; world == (uint32_t)w->id.world && i < w->id.world; i++)
		read_listed(&r, i, all);
	ct_free(text);
	if (world != (uint32_t)w->id.world) {
		CT_FAIL(CT_MISMATCH, "rank %d was started for a world of %d ranks, but rank 0 for %u", w->id.rank,
			w->id.world, (unsigned)world);
		return ct_error_hint("start all ranks with the same number of processes and nodes");
	}
	return ct_wire_done(&r) ? CT_OK : CT_FAIL(CT_COMM, "rank 0's list of ranks cannot be read");
}

static bool spans_networks(const struct introduction *all, int n)
{
	for (int i = 1; i < n; i++) {
		if (strcmp(all[i].net_key, all[0].net_key) != 0)
			return true;
	}
	return false;
}

static const char *first_routable(const struct introduction *all, int n)
{
	for (int i = 0; i < n; i++) {
		if (!ct_net_is_loopback(all[i].peer.addr))
			return all[i].peer.addr;
	}
	return NULL;
}

/* A rank may have reached the store through loopback (Debian maps a host's own name to 127.0.1.1). It then gives the
 * others the address from which it reaches a rank that is not on loopback. */
static enum ct_status fix_loopback(struct ct_world *w, struct introduction *all, int64_t deadline_ns)
{
	const char *target = first_routable(all, w->id.world);
	struct introduction *me = &all[w->id.rank];
	char key[32];

	if (!spans_networks(all, w->id.world))
		return CT_OK;
	if (!target) {
		CT_FAIL(CT_COMM, "the ranks are on several hosts, but all of them have reached %s through loopback",
			w->id.init);
		return ct_error_hint(
			"check whether the port is forwarded, and use the address that rank 0 has on the network (--master-addr)");
	}
	if (ct_net_is_loopback(me->peer.addr)) {
		CT_TRY(ct_net_route_source(target, me->peer.addr, sizeof(me->peer.addr)));
		CT_INFO("using address %s, from which this rank reaches %s, because it has reached the store through loopback",
			me->peer.addr, target);
		snprintf(key, sizeof(key), "addr/%d", w->id.rank);
		CT_TRY(ct_store_set(w->store, key, me->peer.addr, strlen(me->peer.addr)));
	}
	for (int i = 0; i < w->id.world; i++) {
		char *text;
		size_t len;

		if (!ct_net_is_loopback(all[i].peer.addr))
			continue;
		snprintf(key, sizeof(key), "addr/%d", i);
		CT_TRY(ct_store_get(w->store, key, deadline_ns, &text, &len));
		ct_wire_copy(all[i].peer.addr, sizeof(all[i].peer.addr), text);
		ct_free(text);
	}
	return CT_OK;
}

/* Numbers the hosts in rank order, and fills in the values that the environment did not provide. */
static void number_hosts(struct ct_world *w, const struct introduction *all)
{
	struct ct_identity *id = &w->id;
	int local_rank = 0, local_world = 0;

	for (int i = 0; i < id->world; i++) {
		int first = all[i].like;

		/* Ranks of one host may have several addresses. */
		if (first == i)
			first = 0;
		while (strcmp(w->peers[first].host_key, w->peers[i].host_key) != 0)
			first++;
		w->peers[i].node = first == i ? w->n_hosts++ : w->peers[first].node;
	}
	for (int i = 0; i < id->world; i++) {
		bool here = w->peers[i].node == w->peers[id->rank].node;

		local_world += here;
		local_rank += here && i < id->rank;
	}
	id->local_rank = id->local_rank < 0 ? local_rank : id->local_rank;
	id->local_world = id->local_world < 0 ? local_world : id->local_world;
	id->node = id->node < 0 ? w->peers[id->rank].node : id->node;
	id->n_nodes = id->n_nodes < 0 ? w->n_hosts : id->n_nodes;
}

enum ct_status ct__handshake(struct ct_world *w, const struct ct__host_facts *facts, int64_t deadline_ns)
{
	struct introduction me = {.peer = {.rank = w->id.rank, .pid = facts->pid}, .world = w->id.world}, *all;
	enum ct_status st;

	ct_wire_copy(me.peer.host, sizeof(me.peer.host), facts->host);
	ct_wire_copy(me.peer.host_key, sizeof(me.peer.host_key), facts->host_key);
	ct_wire_copy(me.net_key, sizeof(me.net_key), facts->net_key);
	CT_TRY(ct_store_local_addr(w->store, me.peer.addr, sizeof(me.peer.addr)));
	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct introduction, (size_t)w->id.world));
	CT_TRY_GOTO(introduce(w, &me, deadline_ns), st, out);
	CT_TRY_GOTO(receive_list(w, deadline_ns, all), st, out);
	CT_TRY_GOTO(fix_loopback(w, all, deadline_ns), st, out);
	for (int i = 0; i < w->id.world; i++)
		w->peers[i] = all[i].peer;
	number_hosts(w, all);
out:
	ct_free(all);
	return st;
}
