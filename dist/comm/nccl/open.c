/* The ranks exchange NCCL's unique id through the store, check that they have the same version of NCCL, and compare
 * their settings of NCCL. The store also knows which ranks have begun to connect, and which have finished, because NCCL
 * does not report it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/nccl/nccl_impl.h"
#include "dist/net/net.h"
#include "dist/settings/nccl_defects.h"
#include "dist/settings/settings.h"

/* Rank 0 sees first which rank is missing, and informs the others. */
#define LATER_NS (5 * CT_SEC)
#define ASK_NS (2 * CT_SEC)
#define MAX_NAMES 4 /* ranks that a message names */

/* What rank 0 publishes: the id, or why there is none. */
struct invitation {
	int32_t version, status;
	ncclUniqueId id;
	char why[512];
};

static void key_of(const ct_comm *c, const char *what, int q, char *buf, size_t len)
{
	snprintf(buf, len, "%s/nccl/%s/%d", c->scope, what, q);
}

static enum ct_status has_not_come(const ct_comm *c, int q)
{
	char who[128];

	if (ct_error_status() != CT_TIMEOUT)
		return ct_error_status();
	ct__comm_peer_text(c, q, who, sizeof(who));
	CT_FAIL(CT_TIMEOUT, "%s has not opened the communicator within %.1f s", who, (double)c->opts.timeout_ns * 1e-9);
	ct_error_hint("check whether that process is stopped, or busy for longer than dist.timeout");
	return ct__comm_caused_by(c, q, CT_TIMEOUT);
}

static enum ct_status versions_differ(const ct_comm *c, int q, int other, int own)
{
	char who[128], who0[128], theirs[32], ours[32];

	ct__comm_peer_text(c, q, who, sizeof(who));
	ct__comm_peer_text(c, 0, who0, sizeof(who0));
	ct_nccl_version_text(other, theirs, sizeof(theirs));
	ct_nccl_version_text(own, ours, sizeof(ours));
	CT_FAIL(CT_MISMATCH, "%s has NCCL %s, but %s has NCCL %s", who, theirs, who0, ours);
	return ct_error_hint("install the same version of NCCL for all ranks; `ctrain info` shows its path");
}

/* Rank 0: waits until all ranks have come. answers[q] is the version of rank q, then its settings, one a line. */
static enum ct_status gather(struct comm_nccl *n, int64_t deadline_ns, char **answers)
{
	const ct_comm *c = &n->base;
	char key[160];
	size_t len;

	for (int q = 1; q < c->size; q++) {
		key_of(c, "version", q, key, sizeof(key));
		if (ct_store_get(c->world->store, key, deadline_ns, &answers[q], &len) < 0)
			return has_not_come(c, q);
	}
	return CT_OK;
}

static enum ct_status compare_versions(const struct comm_nccl *n, char *const *answers)
{
	for (int q = 1; q < n->base.size; q++) {
		const int version = (int)strtol(answers[q], NULL, 10);

		if (version != n->api.version)
			return versions_differ(&n->base, q, version, n->api.version);
	}
	return CT_OK;
}

/* Different settings may be intended, but some make NCCL wait forever. */
static void compare_settings(const ct_comm *c, char *const *answers, const char *own)
{
	const char **lines = CT_NEW_ARRAY(const char *, (size_t)c->size);
	struct ct_str report = {0};

	for (int q = 1; lines && q < c->size; q++)
		lines[q] = answers[q] + strcspn(answers[q], "\n") + (strchr(answers[q], '\n') != NULL);
	if (lines) {
		lines[0] = own;
		ct_settings_compare(lines, c->size, &report);
	}
	for (const char *p = ct_str_text(&report); *p; p += strcspn(p, "\n") + 1)
		CT_WARN("the ranks have different settings of NCCL: %.*s", (int)strcspn(p, "\n"), p);
	ct_str_release(&report);
	ct_free(lines);
}

static enum ct_status compare_ranks(struct comm_nccl *n, int64_t deadline_ns)
{
	struct ct_str own = {0};
	char **answers;
	enum ct_status st;

	CT_TRY_ALLOC(answers = CT_NEW_ARRAY(char *, (size_t)n->base.size));
	CT_TRY_GOTO(gather(n, deadline_ns, answers), st, out);
	CT_TRY_GOTO(compare_versions(n, answers), st, out);
	CT_TRY_GOTO(ct_settings_common(&own), st, out);
	compare_settings(&n->base, answers, ct_str_text(&own));
out:
	for (int q = 1; q < n->base.size; q++)
		ct_free(answers[q]);
	ct_free(answers);
	ct_str_release(&own);
	return st;
}

static enum ct_status send_version(const struct comm_nccl *n)
{
	struct ct_str text = {0};
	char key[160];
	enum ct_status st;

	ct_str_addf(&text, "%d\n", n->api.version);
	key_of(&n->base, "version", n->base.rank, key, sizeof(key));
	st = ct_settings_common(&text);
	if (st == CT_OK)
		st = ct_store_set(n->base.world->store, key, text.s, text.len);
	ct_str_release(&text);
	return st;
}

static enum ct_status invite(struct comm_nccl *n, int64_t deadline_ns, ncclUniqueId *id)
{
	struct invitation i = {.version = n->api.version};
	struct ct_error e;
	enum ct_status st = compare_ranks(n, deadline_ns);
	char key[160];

	if (st == CT_OK)
		st = ct__nccl_check(&n->api, NULL, n->api.GetUniqueId(&i.id), "ncclGetUniqueId");
	ct_error_save(&e);
	i.status = st;
	snprintf(i.why, sizeof(i.why), "%.500s", st < 0 ? e.message : "");
	*id = i.id;
	key_of(&n->base, "id", 0, key, sizeof(key));
	if (ct_store_set(n->base.world->store, key, &i, sizeof(i)) < 0 && st == CT_OK)
		return ct_error_status();
	return st < 0 ? ct_error_restore(&e) : CT_OK;
}

static enum ct_status accept_invitation(struct comm_nccl *n, int64_t deadline_ns, ncclUniqueId *id)
{
	const ct_comm *c = &n->base;
	struct invitation i;
	char key[160], *value;
	size_t len;

	CT_TRY(send_version(n));
	key_of(c, "id", 0, key, sizeof(key));
	if (deadline_ns != CT_FOREVER)
		deadline_ns += LATER_NS;
	if (ct_store_get(c->world->store, key, deadline_ns, &value, &len) < 0)
		return has_not_come(c, 0);
	if (len == sizeof(i))
		memcpy(&i, value, sizeof(i));
	ct_free(value);
	if (len != sizeof(i))
		return CT_FAIL(CT_MISMATCH, "rank 0 belongs to another build of ctrain");
	if (i.status < 0)
		return CT_FAIL((enum ct_status)i.status, "%.*s", (int)sizeof(i.why) - 1, i.why);
	*id = i.id;
	return CT_OK;
}

/* NCCL's threads inherit the signal mask. */
static ncclResult_t init(struct comm_nccl *n, ncclUniqueId id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	sigset_t all, old;
	ncclResult_t r;

	config.blocking = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = n->api.CommInitRankConfig(&n->nccl, n->base.size, id, n->base.rank, &config);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* NCCL uses the interfaces for its own connections. It understands names and ^, but no networks. The user's setting
 * takes precedence. */
static enum ct_status use_interfaces(const char *selection)
{
	struct ct_str names = {0};
	struct ct_net_addr *list;
	enum ct_status st;
	size_t n;

	if (!strpbrk(selection, "/.:")) {
		setenv("NCCL_SOCKET_IFNAME", selection, 0);
		return CT_OK;
	}
	CT_TRY(ct_net_select(selection, &list, &n));
	for (size_t i = 0; i < n; i++)
		ct_str_addf(&names, "%s%s", i ? "," : "=", list[i].iface);
	st = ct_str_status(&names);
	if (st == CT_OK)
		setenv("NCCL_SOCKET_IFNAME", ct_str_text(&names), 0);
	ct_str_release(&names);
	ct_free(list);
	return st;
}

/* Counts this rank as one that has come as far as `what`. Other ranks can read a counter without waiting. */
static enum ct_status mark(const ct_comm *c, const char *what)
{
	char key[160];
	int64_t count;

	key_of(c, what, c->rank, key, sizeof(key));
	return ct_store_add(c->world->store, key, 1, &count);
}

/* Counts and names the ranks that have not come as far as `what`. */
static enum ct_status find_missing(const ct_comm *c, const char *what, int64_t deadline_ns, struct ct_str *names,
				   int *n)
{
	char key[160], who[128];
	int64_t count;

	*n = 0;
	for (int q = 0; q < c->size; q++) {
		key_of(c, what, q, key, sizeof(key));
		CT_TRY(ct_store_add_by(c->world->store, key, 0, deadline_ns, &count));
		if (count > 0)
			continue;
		ct__comm_peer_text(c, q, who, sizeof(who));
		if (*n < MAX_NAMES)
			ct_str_addf(names, "%s%s", *n ? ", " : "", who);
		(*n)++;
	}
	if (*n > MAX_NAMES)
		ct_str_addf(names, " and %d more", *n - MAX_NAMES);
	return CT_OK;
}

static enum ct_status explain(const ct_comm *c, struct ct_str *text, bool *begun)
{
	const int64_t deadline = ct_store_patience(c->world->store, ASK_NS);
	int n;

	CT_TRY(find_missing(c, "begun", deadline, text, &n));
	*begun = n == 0;
	if (n > 0) {
		ct_str_addf(text, " %s not begun to connect", n == 1 ? "has" : "have");
		return CT_OK;
	}
	ct_str_add(text, "NCCL has not connected ");
	CT_TRY(find_missing(c, "connected", deadline, text, &n));
	if (n == c->size) {
		ct_str_release(text);
		ct_str_add(text, "all ranks have begun, but no rank has connected");
	}
	return CT_OK;
}

/* Adds to the error of a timeout which ranks are missing. */
static enum ct_status has_not_connected(const ct_comm *c)
{
	struct ct_str text = {0};
	struct ct_error e;
	bool begun;

	ct_error_save(&e);
	if (explain(c, &text, &begun) < 0) {
		(void)ct_error_restore(&e);
	} else {
		CT_FAIL(CT_TIMEOUT, "%s; %s", e.message, ct_str_text(&text));
		ct_error_hint("%s", e.hint);
		if (begun)
			ct_error_hint(
				"NCCL_DEBUG=INFO shows what NCCL does; check dist.iface and the firewalls of the hosts");
	}
	ct_str_release(&text);
	return CT_TIMEOUT;
}

static enum ct_status connect_all(struct comm_nccl *n, ncclUniqueId id)
{
	enum ct_status st;

	CT_TRY(mark(&n->base, "begun"));
	pthread_mutex_lock(&n->lock);
	st = ct__nccl_end(n, init(n, id), "ncclCommInitRankConfig");
	if (st == CT_TIMEOUT)
		return has_not_connected(&n->base);
	if (st < 0)
		return ct_error_wrap("connecting rank %d with NCCL", ct__comm_world_rank(&n->base, n->base.rank));
	return mark(&n->base, "connected");
}

/* NCCL reads its variables when the first communicator is created. The user's own values are kept. */
static void set_variables(const struct ct_comm_opts *opts)
{
	/* Otherwise, NCCL does not order the operations of several communicators. */
	if (opts->shares_device)
		setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
	if (!opts->deterministic)
		return;
	/* All-reduces in NVLink switches (NVLS) may add in another order each time (NVIDIA/nccl, issue 1497). */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	/* NCCL registers the buffers of captured operations, but not those of posted ones. It may then use another
	 * number of channels (src/register/coll_reg.cc), and thus another order of addition. */
	setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

enum ct_status ct__nccl_connect(struct comm_nccl *n)
{
	const int64_t deadline = ct_deadline_in(n->base.opts.timeout_ns);
	ncclUniqueId id;

	set_variables(&n->base.opts);
	if (n->base.opts.iface)
		CT_TRY(use_interfaces(n->base.opts.iface));
	if (n->base.rank == 0)
		CT_TRY(invite(n, deadline, &id));
	else
		CT_TRY(accept_invitation(n, deadline, &id));
	return connect_all(n, id);
}
