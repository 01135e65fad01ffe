/* Many ranks in one process, each a thread with the connections of a real rank, for bench/store_scale.py.
 *
 * usage: store_clients HOST PORT WORLD FIRST COUNT
 *
 * Reads commands from standard input and answers each with one line of JSON. The times are seconds on the monotonic
 * clock of the host.
 *   join     all ranks of this process join the run; rank 0 serves the store
 *   aux      all open the second connection, that of the watchdog
 *   agree    all compare values, as before the first step; this is also a barrier
 *   watch    all wait for a failure; answers when all of them wait; "watch but last": all except the last one
 *   drop     the last rank of this process loses its connections, as if it had been killed
 *   collect  waits until all ranks that watch have received the failure
 *   leave    all leave the run and the process ends */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "dist/rendezvous/rendezvous.h"

#define LIMIT_NS (120 * CT_SEC)
#define TOKEN "a secret of the benchmark"

struct client {
	struct clients *all;
	int rank;
	struct ct_thread thread;
	struct ct_world world;
	ct_store *aux;
	enum ct_status st;
	struct ct_error error;
	int64_t end_ns;
};

struct clients {
	const char *host;
	int port, world, first, n;
	struct client *c; /* [n] */
	void (*phase)(struct client *c);
	_Atomic int n_waiting;
	int64_t start_ns;
};

static void join(struct client *c)
{
	struct ct_identity id = {.by = CT_LAUNCHER_ENV,
				 .rank = c->rank,
				 .world = c->all->world,
				 .local_rank = -1,
				 .local_world = -1,
				 .node = -1,
				 .n_nodes = -1};
	const struct ct_world_opts o = {.run_id = "scale", .token = TOKEN, .timeout_ns = LIMIT_NS};

	snprintf(id.init, sizeof(id.init), "tcp://%s:%d", c->all->host, c->all->port);
	c->st = ct_world_join(&id, &o, &c->world);
}

static void open_aux(struct client *c)
{
	c->st = ct_store_connect_aux(c->world.store, ct_deadline_in(LIMIT_NS), &c->aux);
}

static void agree(struct client *c)
{
	c->st = ct_world_agree(&c->world, "the benchmark", "config=5fbb21\ngraph=a\ndata=b\n",
			       ct_deadline_in(LIMIT_NS));
}

static void watch(struct client *c)
{
	struct ct_failure f;

	atomic_fetch_add(&c->all->n_waiting, 1);
	c->st = ct_store_watch(c->aux, ct_deadline_in(LIMIT_NS), &f);
}

static void leave(struct client *c)
{
	ct_store_drop(c->aux);
	ct_world_leave(&c->world, true);
}

static void *client_main(void *arg)
{
	struct client *c = arg;

	c->all->phase(c);
	c->end_ns = ct_now_ns();
	if (c->st < 0)
		ct_error_save(&c->error);
	return NULL;
}

static bool begin(struct clients *a, void (*phase)(struct client *), int n)
{
	a->phase = phase;
	a->start_ns = ct_now_ns();
	atomic_store(&a->n_waiting, 0);
	for (int i = 0; i < n; i++) {
		if (ct_thread_start(&a->c[i].thread, "client", client_main, &a->c[i]) < 0) {
			fprintf(stderr, "store_clients: %s\n", ct_error_message());
			return false;
		}
	}
	return true;
}

/* Waits for the first n clients and prints the line of the phase. */
static bool end(struct clients *a, const char *name, int n)
{
	const struct client *bad = NULL;
	int64_t first = CT_FOREVER, last = 0;

	for (int i = 0; i < n; i++) {
		const struct client *c = &a->c[i];

		ct_thread_join(&a->c[i].thread);
		bad = c->st < 0 && !bad ? c : bad;
		first = c->end_ns < first ? c->end_ns : first;
		last = c->end_ns > last ? c->end_ns : last;
	}
	printf("{\"phase\": \"%s\", \"start\": %.6f, \"first\": %.6f, \"last\": %.6f}\n", name,
	       (double)a->start_ns / 1e9, (double)first / 1e9, (double)last / 1e9);
	fflush(stdout);
	if (bad)
		fprintf(stderr, "store_clients: rank %d: %s\n", bad->rank, bad->error.message);
	return !bad;
}

static bool run(struct clients *a, const char *name, void (*phase)(struct client *))
{
	return begin(a, phase, a->n) && end(a, name, a->n);
}

static void print_start(const char *name)
{
	printf("{\"phase\": \"%s\", \"start\": %.6f}\n", name, (double)ct_now_ns() / 1e9);
	fflush(stdout);
}

/* The rank that will be dropped does not watch. */
static bool start_watching(struct clients *a, int n)
{
	if (!begin(a, watch, n))
		return false;
	while (atomic_load(&a->n_waiting) < n)
		sched_yield();
	print_start("watch");
	return true;
}

static void drop(struct client *c)
{
	print_start("drop");
	ct_store_drop(c->aux);
	ct_store_drop(c->world.store);
	c->aux = NULL;
	c->world.store = NULL;
}

static int serve_commands(struct clients *a)
{
	int n_watching = a->n;
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		bool good = true;

		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "join") == 0)
			good = run(a, line, join);
		else if (strcmp(line, "aux") == 0)
			good = run(a, line, open_aux);
		else if (strcmp(line, "agree") == 0)
			good = run(a, line, agree);
		else if (strcmp(line, "watch") == 0)
			good = start_watching(a, n_watching = a->n);
		else if (strcmp(line, "watch but last") == 0)
			good = start_watching(a, n_watching = a->n - 1);
		else if (strcmp(line, "drop") == 0)
			drop(&a->c[a->n - 1]);
		else if (strcmp(line, "collect") == 0)
			good = end(a, line, n_watching);
		else if (strcmp(line, "leave") == 0)
			return run(a, line, leave) ? 0 : 1;
		else
			good = false;
		if (!good)
			return 1;
	}
	return 1;
}

static int number(const char *text)
{
	int64_t v = 0;

	if (ct_parse_i64(text, &v) != CT_OK || v < 0 || v > 65535) {
		fprintf(stderr, "store_clients: wrong number %s\n", text);
		exit(2);
	}
	return (int)v;
}

int main(int argc, char **argv)
{
	struct clients a = {0};
	struct rlimit files;

	if (argc != 6) {
		fprintf(stderr, "usage: store_clients HOST PORT WORLD FIRST COUNT\n");
		return 2;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	a.host = argv[1];
	a.port = number(argv[2]);
	a.world = number(argv[3]);
	a.first = number(argv[4]);
	a.n = number(argv[5]);
	a.c = CT_NEW_ARRAY(struct client, (size_t)a.n);
	if (!a.c || a.n < 1 || ct_log_configure("error") != CT_OK)
		return 1;
	for (int i = 0; i < a.n; i++)
		a.c[i] = (struct client){.all = &a, .rank = a.first + i};
	return serve_commands(&a);
}
