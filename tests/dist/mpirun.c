#include "tests/dist/mpirun.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process/module.h"
#include "dist/comm/comm_impl.h"
#include "dist/net/net.h"
#include "tests/dist/await_all.h"
#include "tests/dist/scene.h"
#include "tests/pause.h"

#ifdef __SANITIZE_THREAD__
#define WITH_TSAN true
#else
#define WITH_TSAN false
#endif
#define RANK_OPTION "--mpi-rank"
#define LIMIT_NS (100 * CT_SEC) /* for one start of mpirun */

static const struct {
	const char *name, *launcher, *module, *options[2];
	bool ends_with_tsan; /* whether any program with ThreadSanitizer survives MPI_Finalize */
} mpis[N_MPIS] = {
	{"Open MPI", "mpirun.openmpi", "ctrain_mpi_openmpi.so", {"--oversubscribe", "--quiet"}, true},
	{"MPICH", "mpirun.mpich", "ctrain_mpi_mpich.so", {NULL, NULL}, false},
};

static bool on_path(const char *program)
{
	const char *path = getenv("PATH");
	bool found = false;

	while (path && *path && !found) {
		size_t n = strcspn(path, ":");
		char *directory = ct_strndup(path, n), *full = ct_path_join(directory, program);

		found = access(full, X_OK) == 0;
		ct_free(full);
		ct_free(directory);
		path += n + (path[n] == ':');
	}
	return found;
}

bool mpi_installed(int mpi)
{
	const char *why = NULL;
	const void *module;

	if (ct_module_open(mpis[mpi].module, "ct_mpi_module", &module) < 0)
		why = ct_error_message();
	else if (!on_path(mpis[mpi].launcher))
		why = "its mpirun is not installed";
	else if (WITH_TSAN && !mpis[mpi].ends_with_tsan)
		why = "it crashes in MPI_Finalize with ThreadSanitizer";
	if (why)
		fprintf(stderr, "%s is skipped: %s\n", mpis[mpi].name, why);
	ct_error_clear();
	return !why;
}

/* ---- a rank */

struct rank {
	rank_fn fn;
	struct scene scene;
};

/* Ranks that have not finalized MPI do not exit before all are done, because mpirun then ends the others. */
static void play_rank(struct ct_world *w, void *arg)
{
	struct rank *r = arg;
	int64_t n;

	r->fn(w, &r->scene);
	CHECK(ct_store_add(w->store, "succeeded", 1, &n) == CT_OK);
	CHECK(await_all(w->store, "all", w->id.world) == CT_OK);
}

static int number(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : -1;
}

static int number_of(const char *openmpi, const char *mpich)
{
	return number(getenv(openmpi) ? getenv(openmpi) : getenv(mpich));
}

bool mpi_is_rank(int argc, char **argv)
{
	return argc == 6 && strcmp(argv[1], RANK_OPTION) == 0;
}

int mpi_rank_main(char **argv, rank_fn fn)
{
	int outcome[MAX_RANKS] = {0}, rank = number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
	    size = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
	struct rank r = {.fn = fn, .scene = {.backend = "mpi", .variant = number(argv[5]), .outcome = outcome}};

	r.scene.timeout_ns = number(argv[4]) * CT_MS;
	CHECK(r.fn && rank >= 0 && size <= MAX_RANKS);
	be_rank(rank, size, number(argv[3]), NULL, play_rank, &r);
	return 1;
}

/* ---- mpirun */

/* Replaces this process by mpirun. */
static void execute(int mpi, int size, int port, const char *name, int64_t timeout_ns, int variant)
{
	char texts[4][32], self[4096] = "";
	char *argv[16] = {(char *)(uintptr_t)mpis[mpi].launcher};
	int n = 1;

	CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(texts[0], sizeof(texts[0]), "%d", size);
	snprintf(texts[1], sizeof(texts[1]), "%d", port);
	snprintf(texts[2], sizeof(texts[2]), "%lld", (long long)(timeout_ns / CT_MS));
	snprintf(texts[3], sizeof(texts[3]), "%d", variant);
	for (int i = 0; i < 2 && mpis[mpi].options[i]; i++)
		argv[n++] = (char *)(uintptr_t)mpis[mpi].options[i];
	argv[n++] = (char *)(uintptr_t)"-n";
	argv[n++] = texts[0];
	argv[n++] = self;
	argv[n++] = (char *)(uintptr_t)RANK_OPTION;
	argv[n++] = (char *)(uintptr_t)name;
	argv[n++] = texts[1];
	argv[n++] = texts[2];
	argv[n++] = texts[3];
	/* The libraries do not free everything. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	execvp(argv[0], argv);
	_exit(127);
}

static int n_succeeded(int port)
{
	struct ct_store_opts o = {.run_id = "test", .member = -1, .host = "test", .pid = (int)getpid()};
	ct_store *store;
	int64_t n = 0;

	CHECK(ct_store_connect("127.0.0.1", port, &o, ct_deadline_in(60 * CT_SEC), &store) == CT_OK);
	CHECK(ct_store_add(store, "succeeded", 0, &n) == CT_OK);
	ct_store_close(store);
	return (int)n;
}

/* Waits until mpirun ends, and returns its exit code. mpirun of Open MPI 4.1 sometimes does not end, because of a
 * deadlock in PMIx_server_finalize, if ranks have ended without MPI_Finalize. After a while, it is therefore killed;
 * returns -1. */
static int await_mpirun(pid_t pid, const char *name)
{
	const int64_t deadline = ct_deadline_in(LIMIT_NS);
	int status = 0;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0 && ct_now_ns() < deadline)
		pause_briefly();
	CHECK(got >= 0);
	if (got == pid)
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	fprintf(stderr, "mpirun with %s has not ended after %d s\n", name, (int)(LIMIT_NS / CT_SEC));
	(void)kill(pid, SIGTERM); /* it ends its ranks */
	for (const int64_t end = ct_deadline_in(5 * CT_SEC);
	     (got = waitpid(pid, &status, WNOHANG)) == 0 && ct_now_ns() < end;)
		pause_briefly();
	if (got == 0) {
		(void)kill(pid, SIGKILL);
		CHECK(waitpid(pid, &status, 0) == pid);
	}
	return -1;
}

int mpi_play(int mpi, int size, const char *name, int64_t timeout_ns, int variant)
{
	struct test_store store;
	int code, n;
	pid_t pid;

	test_store_start(&store);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execute(mpi, size, store.port, name, timeout_ns, variant);
	}
	code = await_mpirun(pid, name);
	n = n_succeeded(store.port);
	test_store_stop(&store);
	if (n != size)
		fprintf(stderr, "%s: %d of %d ranks of %s %d succeeded\n", mpis[mpi].name, n, size, name, variant);
	assert_int_equal(n, size);
	return code;
}
