/* The nodes join a store like the ranks of a run, with one member per node, so that whatever prevents this also
 * prevents a run. Then they exchange their facts. Only if all nodes are present, the links are measured, in rounds
 * (measure_links); no node begins a round before all have finished the one before. Each link is measured twice, and the
 * better result counts.
 *
 * Node 0 creates a locked file in its run directory, and the others look for it: this shows whether the directory is
 * shared, and whether the file system shares locks. What was created is removed. An error is stored in the cluster and
 * does not end the command, because the facts that are known are judged anyway. */
#define CT_LOG_COMPONENT "doctor"
#include "trainer/tools/doctor/exchange.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/net/net.h"
#include "trainer/launch/job_store.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/tools/doctor/checks_impl.h"
#include "trainer/tools/doctor/facts_json.h"
#include "trainer/tools/doctor/links_impl.h"

#define ROUND_NS (20 * CT_SEC)
#define LINK_SECONDS 0.1
#define ALL_LINKS_SECONDS 2.0
#define MAX_ROUNDS 31
#define PASSES 2 /* a busy CPU or a port scanner can make a link look slow, or make it fail, once */

struct exchange {
	const struct ct_collect_opts *o;
	struct ct_cluster *c;
	struct ct_facts *me;
	char *run_dir, *probe_path; /* probe_path: the file that shows whether the nodes share the run directory */
	bool made_run_dir;
	int probe_fd; /* on node 0: locked */
	struct ct_job_store job;
	ct_store *store;
	ct_probe_listener *listener;
	char nonce[CT_TOKEN_HEX];
	int *ports; /* [n] of the listeners */
	int64_t deadline;
};

/* ---- store */

static void key(char buf[64], const char *what, int i)
{
	snprintf(buf, 64, "doctor/%s/%d", what, i);
}

static enum ct_status publish(struct exchange *x, const char *what, ct_json *j)
{
	struct ct_str text = {0};
	char k[64];

	key(k, what, x->c->self);
	enum ct_status st = ct_json_dump(j, false, &text);
	if (st == CT_OK)
		st = ct_store_set(x->store, k, ct_str_text(&text), text.len);
	ct_str_release(&text);
	ct_json_destroy(j);
	return st;
}

static enum ct_status receive(struct exchange *x, const char *what, int node, int64_t deadline, ct_json **out)
{
	char k[64], *text;
	size_t len;

	key(k, what, node);
	CT_TRY(ct_store_get(x->store, k, deadline, &text, &len));
	const enum ct_status st = ct_json_parse(text, len, k, out);
	ct_free(text);
	return st;
}

static enum ct_status wait_for_all(struct exchange *x, int round)
{
	char count[64], go[64], *value = NULL;
	int64_t n;
	size_t len;

	key(count, "round", round);
	key(go, "go", round);
	CT_TRY(ct_store_add(x->store, count, 1, &n));
	if (n == x->c->n)
		CT_TRY(ct_store_set(x->store, go, "", 0));
	CT_TRY(ct_store_get(x->store, go, ct_deadline_in(ROUND_NS), &value, &len));
	ct_free(value);
	return CT_OK;
}

static enum ct_status connect_store(struct exchange *x)
{
	const struct ct_job_store *job = &x->job;
	struct ct_store_opts opts = job->opts;
	char url[320], host[256];
	int port;

	if (!job->addr[0])
		return CT_FAIL(CT_UNSUPPORTED,
			       "launch.init is set, so there is no master port on which the nodes can meet");
	snprintf(url, sizeof(url), "tcp://%s", job->addr);
	CT_TRY(ct_init_url_endpoint(url, host, sizeof(host), &port));
	opts.member = x->c->self;
	return ct_store_connect(host, port, &opts, x->deadline, &x->store);
}

/* Node 0 needs the run directory for the secret, if there is no other one, and to find out who shares the directory. If
 * it cannot be made, the facts of this node already have the reason. */
static void make_run_dir(struct exchange *x)
{
	if (x->c->self != 0 || ct_file_exists(x->run_dir))
		return;
	x->made_run_dir = ct_dir_make(x->run_dir) == CT_OK;
	ct_error_clear();
}

static enum ct_status join(struct exchange *x)
{
	const struct ct_ranks *r = &x->o->ranks;
	struct ct_ranks nodes = {
		.local = 1, .first = r->node, .world = r->n_nodes, .node = r->node, .n_nodes = r->n_nodes};

	x->deadline = ct_deadline_in((int64_t)(x->o->cfg->dist.rendezvous_timeout * 1e9));
	make_run_dir(x);
	const enum ct_status st = ct_job_store_open(x->o->cfg, &nodes, x->run_dir, -1, NULL, &x->job);
	if (st == CT_COMM && x->c->self == 0)
		snprintf(x->me->port_error, sizeof(x->me->port_error), "%s", ct_error_message());
	CT_TRY(st);
	if (x->job.server)
		x->me->port = ct_store_server_port(x->job.server);
	return connect_store(x);
}

static enum ct_status share_nonce(struct exchange *x)
{
	char *value;
	size_t len;

	if (x->c->self == 0) {
		CT_TRY(ct_token_make(x->nonce));
		return ct_store_set(x->store, "doctor/nonce", x->nonce, CT_PROBE_NONCE);
	}
	CT_TRY(ct_store_get(x->store, "doctor/nonce", x->deadline, &value, &len));
	if (len == CT_PROBE_NONCE)
		memcpy(x->nonce, value, CT_PROBE_NONCE);
	ct_free(value);
	return len == CT_PROBE_NONCE ? CT_OK : CT_FAIL(CT_COMM, "node 0 runs another version of ctrain doctor");
}

/* ---- run directory */

/* Node 0 creates a locked file in its run directory, which the other nodes look for in theirs. */
static void create_probe_file(struct exchange *x)
{
	x->probe_fd = -1;
	x->probe_path = ct_strfmt("%s/.doctor-%.*s", x->run_dir, CT_PROBE_NONCE, x->nonce);
	if (x->c->self != 0 || !x->probe_path || !ct_file_exists(x->run_dir))
		return;
	if (ct_file_open(x->probe_path, CT_FILE_NEW, &x->probe_fd) < 0)
		ct_error_clear();
	else if (flock(x->probe_fd, LOCK_EX | LOCK_NB) != 0)
		ct_net_close(&x->probe_fd);
}

static void find_probe_file(struct exchange *x, bool created)
{
	int fd;

	x->me->run_sharing = CT_SHARING_UNKNOWN;
	if (x->c->self == 0 || !created || !x->probe_path)
		return;
	if (ct_file_open(x->probe_path, CT_FILE_READ, &fd) < 0) {
		ct_error_clear();
		x->me->run_sharing = CT_SHARING_NO;
		return;
	}
	x->me->run_sharing = flock(fd, LOCK_SH | LOCK_NB) == 0 ? CT_SHARING_NO_LOCK : CT_SHARING_YES;
	close(fd);
}

/* ---- facts and links */

static enum ct_status exchange_facts(struct exchange *x, bool *created)
{
	ct_json *j = ct_facts_json(x->me);

	ct_json_set_i64(j, "probe_port", ct_probe_port(x->listener));
	ct_json_set_bool(j, "probe_file", x->probe_fd >= 0);
	CT_TRY(publish(x, "facts", j));
	for (int i = 0; i < x->c->n; i++) {
		int64_t port = 0;
		bool file = false;
		enum ct_status st = receive(x, "facts", i, x->deadline, &j);

		if (st == CT_TIMEOUT) {
			ct_error_clear();
			continue;
		}
		CT_TRY(st);
		st = i == x->c->self ? CT_OK : ct_facts_parse(j, &x->c->nodes[i]);
		if (st == CT_OK)
			st = ct_json_get_i64(j, "probe_port", &port);
		if (st == CT_OK)
			st = ct_json_get_bool(j, "probe_file", &file);
		ct_json_destroy(j);
		CT_TRY(st);
		x->ports[i] = (int)port;
		*created = *created || file;
	}
	return CT_OK;
}

static bool all_present(const struct ct_cluster *c)
{
	for (int i = 0; i < c->n; i++) {
		if (!c->nodes[i].present)
			return false;
	}
	return true;
}

/* In round d, node k sends to node k + d, so that no node sends or receives twice at a time. */
static enum ct_status measure_links(struct exchange *x)
{
	struct ct_cluster *c = x->c;
	const double share = ALL_LINKS_SECONDS / c->n, seconds = share < LINK_SECONDS ? share : LINK_SECONDS;
	const int n_rounds = c->n - 1 < MAX_ROUNDS ? c->n - 1 : MAX_ROUNDS;

	for (int i = 0; i < PASSES * n_rounds; i++) {
		const int to = (c->self + 1 + i % n_rounds) % c->n;
		struct ct_link_facts now, *best = &c->links[c->self * c->n + to];

		CT_TRY(wait_for_all(x, i));
		ct__link_probe(c, to, x->ports[to], x->nonce, seconds, &now);
		if (!best->tried || (now.reached && now.mib_per_s > best->mib_per_s))
			*best = now;
	}
	return CT_OK;
}

static enum ct_status read_results(struct exchange *x, int node, const ct_json *j)
{
	const ct_json *list = ct_json_get(j, "links");

	CT_TRY(ct_json_get_i64(j, "run_sharing", &x->c->nodes[node].run_sharing));
	for (int k = 0; k < x->c->n && k < (int)ct_json_len(list); k++)
		CT_TRY(ct_link_parse(ct_json_at(list, (size_t)k), &x->c->links[node * x->c->n + k]));
	return CT_OK;
}

static enum ct_status exchange_results(struct exchange *x)
{
	ct_json *j = ct_json_object(), *list = ct_json_array();

	for (int k = 0; k < x->c->n; k++)
		ct_json_push(list, ct_link_json(&x->c->links[x->c->self * x->c->n + k]));
	ct_json_set(j, "links", list);
	ct_json_set_i64(j, "run_sharing", x->me->run_sharing);
	CT_TRY(publish(x, "results", j));
	for (int i = 0; i < x->c->n; i++) {
		CT_TRY(receive(x, "results", i, ct_deadline_in(ROUND_NS), &j));
		const enum ct_status st = read_results(x, i, j);
		ct_json_destroy(j);
		CT_TRY(st);
	}
	return CT_OK;
}

static enum ct_status exchange_all(struct exchange *x)
{
	const struct ct_port_range ports = ct_plan_port_range(x->o->cfg);
	bool created = false;

	/* If this node has the rank of another one, joining it shows that one the mistake. */
	if (ct__master_is_wrong(x->me) && (x->c->self != 0 || x->me->master_error[0]))
		return CT_FAIL(CT_COMM, "the master address is wrong");
	CT_INFO("node %d of %d: waiting for the other nodes for up to %.0f s", x->c->self, x->c->n,
		x->o->cfg->dist.rendezvous_timeout);
	CT_TRY(join(x));
	CT_TRY(share_nonce(x));
	CT_TRY(ct_probe_listen(x->c->self, x->nonce, &ports, &x->listener));
	create_probe_file(x);
	CT_TRY(exchange_facts(x, &created));
	find_probe_file(x, created);
	if (!all_present(x->c))
		return CT_OK;
	CT_TRY(measure_links(x));
	return exchange_results(x);
}

/* Removes what was created in the run directory. */
static void clean_up(struct exchange *x)
{
	char *token = x->made_run_dir ? ct_path_join(x->run_dir, "token") : NULL;

	if (x->probe_fd >= 0) {
		close(x->probe_fd);
		(void)unlink(x->probe_path);
	}
	if (token)
		(void)unlink(token);
	if (x->made_run_dir)
		(void)rmdir(x->run_dir);
	ct_free(token);
}

enum ct_status ct_doctor_exchange(const struct ct_collect_opts *o, struct ct_cluster *c)
{
	struct exchange x = {.o = o, .c = c, .me = &c->nodes[c->self], .probe_fd = -1};

	CT_TRY_ALLOC(x.run_dir = ct_plan_run_dir(o->cfg));
	enum ct_status st = (x.ports = CT_NEW_ARRAY(int, (size_t)c->n)) &&
					    (c->links = CT_NEW_ARRAY(struct ct_link_facts, (size_t)c->n * (size_t)c->n))
				    ? exchange_all(&x)
				    : CT_NOMEM;
	if (st < 0 && st != CT_NOMEM) {
		snprintf(c->join_error, sizeof(c->join_error), "%s", ct_error_message());
		snprintf(c->join_hint, sizeof(c->join_hint), "%s", ct_error_hint_text());
		ct_error_clear();
		st = CT_OK;
	}
	ct_store_close(x.store);
	ct_job_store_close(&x.job, ct_deadline_in(10 * CT_SEC));
	ct_probe_close(x.listener);
	clean_up(&x);
	ct_free(x.ports);
	ct_free(x.probe_path);
	ct_free(x.run_dir);
	return st;
}
