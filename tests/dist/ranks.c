#include "tests/dist/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/comm/comm.h"

#define SETUP_NS (60 * CT_SEC)

void *shared_zeroed(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

bool comm_built(const char *backend)
{
	bool available = false;
	const char *name;
	char why[256];

	for (size_t i = 0; ct_comm_backend_at(i, &name, &available, why, sizeof(why)); i++) {
		if (strcmp(name, backend) == 0)
			break;
		available = false;
	}
	if (!available)
		fprintf(stderr, "%s is skipped: %s\n", backend, why);
	return available;
}

/* Serves until the other end of the pipe is closed. */
static void serve(int port_fd, int life_fd)
{
	struct ct_store_opts o = {.run_id = "test", .member = -1, .host = "server", .pid = (int)getpid()};
	ct_store_server *s;
	char c;
	int port;

	CHECK(ct_store_server_start("127.0.0.1", 0, &o, &s) == CT_OK);
	port = ct_store_server_port(s);
	CHECK(write(port_fd, &port, sizeof(port)) == sizeof(port));
	while (read(life_fd, &c, 1) < 0 && errno == EINTR)
		;
	ct_store_server_stop(s, 0);
	exit(0);
}

static void make_world(struct ct_world *w, int rank, int size, int port, const int *nodes)
{
	struct ct_store_opts o = {.run_id = "test", .member = rank, .pid = (int)getpid()};
	char key[32], text[32], *value;
	size_t len;

	snprintf(o.host, sizeof(o.host), "host%d", nodes ? nodes[rank] : 0);
	CHECK(ct_store_connect("127.0.0.1", port, &o, ct_deadline_in(SETUP_NS), &w->store) == CT_OK);
	snprintf(key, sizeof(key), "pid/%d", rank);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	CHECK(ct_store_set(w->store, key, text, strlen(text)) == CT_OK);
	w->id = (struct ct_identity){.rank = rank, .world = size};
	w->peers = CT_NEW_ARRAY(struct ct_peer, (size_t)size);
	CHECK(w->peers);
	for (int q = 0; q < size; q++) {
		struct ct_peer *p = &w->peers[q];

		snprintf(key, sizeof(key), "pid/%d", q);
		CHECK(ct_store_get(w->store, key, ct_deadline_in(SETUP_NS), &value, &len) == CT_OK);
		p->rank = q;
		p->pid = (int)strtol(value, NULL, 10);
		p->node = nodes ? nodes[q] : 0;
		snprintf(p->host, sizeof(p->host), "host%d", p->node);
		snprintf(p->host_key, sizeof(p->host_key), "key%d", p->node);
		snprintf(p->addr, sizeof(p->addr), "127.0.0.1");
		w->n_hosts = p->node + 1 > w->n_hosts ? p->node + 1 : w->n_hosts;
		ct_free(value);
	}
}

void be_rank(int rank, int size, int port, const int *nodes, rank_fn fn, void *arg)
{
	struct ct_world w = {0};

	make_world(&w, rank, size, port, nodes);
	fn(&w, arg);
	ct_store_close(w.store);
	ct_free(w.peers);
	exit(0);
}

static pid_t fork_child(void)
{
	static const int faults[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		/* cmocka's signal handlers would continue the parent's tests. */
		for (size_t i = 0; i < CT_ARRAY_LEN(faults); i++)
			signal(faults[i], SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

void test_store_start(struct test_store *s)
{
	int port_pipe[2], life_pipe[2];

	CHECK(pipe(port_pipe) == 0 && pipe2(life_pipe, O_CLOEXEC) == 0);
	s->server = fork_child();
	CHECK(s->server >= 0);
	if (s->server == 0) {
		close(life_pipe[1]);
		serve(port_pipe[1], life_pipe[0]);
	}
	CHECK(read(port_pipe[0], &s->port, sizeof(s->port)) == sizeof(s->port));
	s->life_fd = life_pipe[1];
	close(life_pipe[0]);
	close(port_pipe[0]);
	close(port_pipe[1]);
}

void test_store_stop(struct test_store *s)
{
	int status;

	close(s->life_fd);
	CHECK(waitpid(s->server, &status, 0) == s->server);
}

/* Waits for all ranks, and finally kills those that are still stopped. */
static int reap(int size, const pid_t *pids, int *status)
{
	bool stopped[MAX_RANKS] = {false};
	int bad = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (int q = 0; q < size; q++) {
			if (pass == 1 && !stopped[q])
				continue;
			if (pass == 1)
				kill(pids[q], SIGKILL);
			CHECK(waitpid(pids[q], &status[q], pass == 0 ? WUNTRACED : 0) == pids[q]);
			stopped[q] = WIFSTOPPED(status[q]);
			if (!stopped[q])
				bad += !WIFEXITED(status[q]) || WEXITSTATUS(status[q]) != 0;
		}
	}
	return bad;
}

int run_ranks(int size, const int *nodes, rank_fn fn, void *arg, int *status)
{
	struct test_store store;
	pid_t pids[MAX_RANKS];
	int own[MAX_RANKS], bad;

	CHECK(size <= MAX_RANKS);
	test_store_start(&store);
	for (int q = 0; q < size; q++) {
		pids[q] = fork_child();
		CHECK(pids[q] >= 0);
		if (pids[q] == 0) {
			close(store.life_fd);
			be_rank(q, size, store.port, nodes, fn, arg);
		}
	}
	bad = reap(size, pids, status ? status : own);
	test_store_stop(&store);
	return bad;
}
