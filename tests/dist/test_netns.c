/* Three ranks on two hosts, which are network, mount, host name and process namespaces that end with their processes.
 * The /etc/hosts of host A maps its own name to 127.0.1.1, as on Debian, and rank 0 runs there. Host B resolves A to
 * its address. Needs root and iproute2; if it cannot run, it prints the reason and exits with 77. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/rendezvous/rendezvous.h"
#include "tests/base/check.h"
#include "tests/dist/procs.h"

#define LONG (60 * CT_SEC)
#define ADDR_A "10.77.91.1"
#define ADDR_B "10.77.91.2"

struct host {
	const char *name, *addr, *hosts; /* hosts: text of its /etc/hosts */
	char link[16];
	char hosts_file[256];
};
struct rank {
	int rank;
	struct host *host;
	pid_t host_of; /* share the namespaces of this process, 0: make new ones */
};

extern char **environ;

/* Runs a program to its end; its exit code, 127 when there is none of that name. */
static int run(const char *const *argv)
{
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
		return 127;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return 126;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static void share_namespaces(pid_t of)
{
	static const char *const kinds[] = {"net", "uts", "mnt"};
	char path[64];
	int fds[3], root;

	/* All are opened first: afterwards /proc may be another one. */
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)of, kinds[i]);
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fds[i] >= 0);
	}
	snprintf(path, sizeof(path), "/proc/%d/root", (int)of);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(root >= 0);
	/* A sanitizer's thread shares our root directory, which prevents entering a mount namespace. */
	CHECK(unshare(CLONE_FS) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(setns(fds[i], 0) == 0);
		close(fds[i]);
	}
	/* If the test runs in a chroot, the root of the mount namespace is another directory. */
	CHECK(fchdir(root) == 0 && chroot(".") == 0);
	close(root);
}

static void become_host(struct proc *me, const struct host *h)
{
	CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) == 0);
	CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	CHECK(mount(h->hosts_file, "/etc/hosts", NULL, MS_BIND, NULL) == 0);
	CHECK(sethostname(h->name, strlen(h->name)) == 0);
	proc_send(me, 0, "host");
	/* The test has put the cable in. */
	(void)proc_hear(me);
	CHECK(RUN("ip", "link", "set", "lo", "up") == 0);
	CHECK(RUN("ip", "addr", "add", h->addr, "dev", h->link) == 0);
	CHECK(RUN("ip", "link", "set", h->link, "up") == 0);
}

static void be_rank(struct proc *me, const struct rank *r)
{
	struct ct_identity id = {.by = CT_LAUNCHER_ENV,
				 .rank = r->rank,
				 .world = 3,
				 .local_rank = -1,
				 .local_world = -1,
				 .node = -1,
				 .n_nodes = -1,
				 .init = "tcp://nodea:29611"};
	const struct ct_world_opts o = {.run_id = "netns", .token = "of three ranks", .timeout_ns = LONG};
	struct ct_failure f;
	struct ct_world w;
	char all[512];

	CHECK(ct_world_join(&id, &o, &w) == CT_OK);
	snprintf(all, sizeof(all), "%s %d, %s %d, %s %d; %s; local %d of %d", w.peers[0].addr, w.peers[0].node,
		 w.peers[1].addr, w.peers[1].node, w.peers[2].addr, w.peers[2].node, w.peers[r->rank].host,
		 w.id.local_rank, w.id.local_world);
	proc_send(me, w.n_hosts, all);
	/* Leave with BYE, or wait for the failure. */
	if (strcmp(proc_hear(me).text, "leave") == 0) {
		ct_world_leave(&w, false);
		return;
	}
	CHECK(ct_store_watch(w.store, ct_deadline_in(LONG), &f) == CT_OK);
	proc_send(me, f.rank, f.message);
	ct_world_leave(&w, true);
}

/* The rank runs as the first process of a process namespace when its host is new to this test, so that hosts
 * differ in that, too. */
static void rank_main(struct proc *me, void *arg)
{
	const struct rank *r = arg;
	int status;
	pid_t pid;

	if (r->host_of) {
		share_namespaces(r->host_of);
		be_rank(me, r);
		return;
	}
	become_host(me, r->host);
	if (r->rank == 2)
		CHECK(unshare(CLONE_NEWPID) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		be_rank(me, r);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

static void write_hosts(struct host *h, const char *folder)
{
	char *path = ct_path_join(folder, h->name);

	snprintf(h->hosts_file, sizeof(h->hosts_file), "%s", path);
	assert_ok(ct_file_replace(path, h->hosts, strlen(h->hosts)));
	ct_free(path);
}

static void meet(struct proc *p, struct rank *r, struct host *a, struct host *b, const char *folder)
{
	static const char *const want[3] = {
		ADDR_A " 0, " ADDR_A " 0, " ADDR_B " 1; nodea; local 0 of 2",
		ADDR_A " 0, " ADDR_A " 0, " ADDR_B " 1; nodea; local 1 of 2",
		ADDR_A " 0, " ADDR_A " 0, " ADDR_B " 1; nodeb; local 0 of 1",
	};
	char pid_a[16], pid_b[16];

	*a = (struct host){.name = "nodea", .addr = ADDR_A "/24", .hosts = "127.0.0.1 localhost\n127.0.1.1 nodea\n"};
	*b = (struct host){.name = "nodeb",
			   .addr = ADDR_B "/24",
			   .hosts = "127.0.0.1 localhost\n127.0.1.1 nodeb\n" ADDR_A " nodea\n"};
	snprintf(a->link, sizeof(a->link), "ct%da", (int)getpid());
	snprintf(b->link, sizeof(b->link), "ct%db", (int)getpid());
	write_hosts(a, folder);
	write_hosts(b, folder);
	r[0] = (struct rank){.rank = 0, .host = a};
	r[2] = (struct rank){.rank = 2, .host = b};
	proc_start(&p[0], rank_main, &r[0]);
	proc_start(&p[2], rank_main, &r[2]);
	(void)proc_hear(&p[0]);
	(void)proc_hear(&p[2]);
	r[1] = (struct rank){.rank = 1, .host = a, .host_of = p[0].pid};
	proc_start(&p[1], rank_main, &r[1]);
	snprintf(pid_a, sizeof(pid_a), "%d", (int)p[0].pid);
	snprintf(pid_b, sizeof(pid_b), "%d", (int)p[2].pid);
	assert_int_equal(RUN("ip", "link", "add", a->link, "netns", pid_a, "type", "veth", "peer", "name", b->link,
			     "netns", pid_b),
			 0);
	proc_send(&p[0], 0, "cable");
	proc_send(&p[2], 0, "cable");
	for (int i = 0; i < 3; i++) {
		struct note n = proc_hear(&p[i]);

		assert_int_equal(n.v, 2);
		assert_string_equal(n.text, want[i]);
	}
}

/* All ranks get addresses that all others can reach, although two of three connected through 127.0.1.1. */
static void test_row_38_own_name_is_loopback(void **state)
{
	struct host a, b;
	struct rank r[3];
	struct proc p[3];

	meet(p, r, &a, &b, *state);
	for (int i = 0; i < 3; i++)
		proc_send(&p[i], 0, "leave");
	for (int i = 0; i < 3; i++)
		assert_int_equal(proc_end(&p[i]), 0);
}

/* The link is cut: within 15 s each side detects that the other does not respond, and names it. */
static void test_silent_host(void **state)
{
	char ns[64], link[32];
	struct host a, b;
	struct rank r[3];
	struct proc p[3];

	meet(p, r, &a, &b, *state);
	for (int i = 0; i < 3; i++)
		proc_send(&p[i], 0, "watch");
	snprintf(ns, sizeof(ns), "--net=/proc/%d/ns/net", (int)p[2].pid);
	snprintf(link, sizeof(link), "%s", b.link);
	assert_int_equal(RUN("nsenter", ns, "ip", "link", "set", link, "down"), 0);
	for (int i = 0; i < 3; i++) {
		struct note n = proc_hear(&p[i]);

		assert_int_equal(n.v, i == 2 ? 0 : 2);
		if (!strstr(n.text,
			    i == 2 ? "has stopped responding on the network" : "has not answered on the network"))
			fail_msg("rank %d: \"%s\"", i, n.text);
		assert_int_equal(proc_end(&p[i]), 0);
	}
}

static const char *cannot_run(void)
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		return "needs root for namespaces";
	if (RUN("ip", "-Version") != 0)
		return "needs iproute2 (ip)";
	if (RUN("nsenter", "--version") != 0)
		return "needs util-linux (nsenter)";
	if (access("/etc/hosts", F_OK) != 0)
		return "there is no /etc/hosts to put the hosts' names over";
	pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID) == 0 &&
				      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
				      RUN("ip", "link", "add", "ctprobe0", "type", "veth", "peer", "name",
					  "ctprobe1") == 0
			      ? 0
			      : 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		return "this machine or container does not let us make namespaces, private mounts and veth links";
	return NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_row_38_own_name_is_loopback),
		cmocka_unit_test(test_silent_host),
	};
	const char *why = cannot_run();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
