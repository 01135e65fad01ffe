/* Killed processes, full disks and damaged files: the newest complete checkpoint is always found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/hash/sha256.h"
#include "base/log.h"
#include "tests/trainer/ckpt_fixture.h"

static struct fixture fx;

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0 || fixture_try_open(&fx, "convnet", 3, 0.9f) < 0) {
		print_error("%s\n", ct_error_message());
		return -1;
	}
	return ct_log_configure("error") == CT_OK ? 0 : -1;
}

static int teardown(void **state)
{
	fixture_close(&fx);
	return tmpdir_teardown(state);
}

static char *new_run(const char *name)
{
	return ct_strdup(in_tmpdir(name));
}

/* Saves step 10 in a child that dies at the failpoint. */
static void save_killed_at(const char *run, const char *failpoint)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		ct_failpoint_arm(failpoint);
		(void)!fixture_save(&fx, run, 10, 1, true);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the child did not die at %s", failpoint);
}

static void test_failpoints(void **state)
{
	static const struct {
		const char *failpoint;
		int newest;
	} cases[] = {
		{"ckpt.model", 9}, {"ckpt.model:3", 9}, {"ckpt.optim", 9}, {"ckpt.optim:20", 9},
		{"ckpt.state", 9}, {"ckpt.rename", 9},  {"ckpt.link", 10}, {"ckpt.prune", 10},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		char *run = new_run(cases[i].failpoint);

		assert_ok(fixture_save(&fx, run, 8, 2, false));
		assert_ok(fixture_save(&fx, run, 9, 2, true));
		save_killed_at(run, cases[i].failpoint);
		assert_int_equal(count_names(run, ".tmp-"), cases[i].newest == 9);
		assert_int_equal(fixture_newest(&fx, run), cases[i].newest);
		assert_int_equal(count_names(run, ".tmp-"), 0);
		assert_ok(fixture_save(&fx, run, 10, 2, false));
		assert_int_equal(fixture_newest(&fx, run), 10);
		ct_free(run);
	}
}

/* Does this system call change the file system? */
static bool changes_files(uint64_t nr, uint64_t flags)
{
	switch (nr) {
	case SYS_openat:
		return flags & (O_CREAT | O_WRONLY);
	case SYS_write:
	case SYS_fsync:
	case SYS_mkdirat:
	case SYS_renameat2:
	case SYS_symlinkat:
	case SYS_unlinkat:
#ifdef SYS_mkdir
	case SYS_mkdir:
	case SYS_rename:
	case SYS_symlink:
	case SYS_unlink:
	case SYS_rmdir:
#endif
		return true;
	default:
		return false;
	}
}

/* Runs the child until it enters its n-th such call and kills it there: true; false: it came to its end before. */
static bool kill_at_call(pid_t child, int n, bool *traced)
{
	int status;

	*traced = false;
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return false;
	*traced = ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0;
	while (ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child &&
	       WIFSTOPPED(status)) {
		struct __ptrace_syscall_info info;

		if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) < 0) {
			*traced = false;
			break;
		}
		if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(info.entry.nr, info.entry.args[2]) ||
		    --n > 0)
			continue;
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		return true;
	}
	if (!*traced) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	return false;
}

/* SIGKILL at every system call of a save that changes the file system. */
static void test_killed_at_every_call(void **state)
{
	char *run = new_run("calls");
	int n, published = 0;

	(void)state;
	for (n = 1; n < 500; n++) {
		bool traced;
		pid_t child;
		int64_t newest;

		assert_ok(ct_dir_remove(run));
		assert_ok(fixture_save(&fx, run, 8, 0, false));
		assert_ok(fixture_save(&fx, run, 9, 0, true));
		child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
				_exit(1);
			(void)raise(SIGSTOP);
			_exit(fixture_save(&fx, run, 10, 1, true) == CT_OK ? 0 : 1);
		}
		if (!kill_at_call(child, n, &traced)) {
			if (traced)
				break;
			print_message("this system does not let a process be traced\n");
			ct_free(run);
			skip();
		}
		newest = fixture_newest(&fx, run);
		assert_true(newest == 10 || (newest == 9 && published == 0));
		published += newest == 10;
		assert_int_equal(count_names(run, ".tmp-"), 0);
	}
	print_message("%d system calls, %d of them after the checkpoint is there\n", n - 1, published);
	assert_true(n > 30 && published > 3);
	ct_free(run);
}

static char *newest_file(const char *run, const char *name)
{
	char *path, *file;

	assert_ok(ct_checkpoint_find(run, &path));
	assert_non_null(path);
	file = ct_path_join(path, name);
	ct_free(path);
	return file;
}

/* Overwrites the file with len bytes, without the syncs of ct_file_replace. */
static void overwrite(const char *path, const char *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_ok(ct_fd_write_all(fd, data, len, path));
	close(fd);
}

/* Damage of the newest one is seen, named, and the one before is taken. */
static void assert_falls_back(const char *run, const char *file)
{
	char *newest = ct_path_join(run, "checkpoints/step-000000000010");

	assert_int_equal(ct_checkpoint_verify(newest), CT_DATA);
	if (!strstr(ct_error_message(), file))
		fail_msg("\"%s\" does not name %s", ct_error_message(), file);
	assert_true(ct_checkpoint_load(newest, fx.net, fx.optim, fx.ema) < 0);
	assert_int_equal(fixture_newest(&fx, run), 9);
	ct_free(newest);
}

static void test_damage(void **state)
{
	static const char *const files[] = {"model.safetensors", "optim.safetensors", "state.json"};
	char *run = new_run("damage");

	(void)state;
	assert_ok(fixture_save(&fx, run, 9, 0, false));
	assert_ok(fixture_save(&fx, run, 10, 0, false));
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		char *file = newest_file(run, files[i]), *data;
		size_t len, step;

		assert_ok(ct_file_read(file, 1 << 24, &data, &len));
		/* Every byte of state.json; of the others every so many. */
		step = len > 10000 ? len / 40 : 1;
		for (size_t at = 0; at < len; at += step) {
			data[at] ^= (char)(1 << at % 8);
			overwrite(file, data, len);
			if (at % (5 * step) == 0)
				assert_falls_back(run, files[i]);
			else
				assert_int_equal(
					ct_checkpoint_verify(in_tmpdir("damage/checkpoints/step-000000000010")),
					CT_DATA);
			data[at] ^= (char)(1 << at % 8);
		}
		for (size_t cut = 0; cut < len; cut += len / 7) {
			overwrite(file, data, cut);
			assert_falls_back(run, files[i]);
		}
		assert_int_equal(unlink(file), 0);
		assert_falls_back(run, files[i]);
		overwrite(file, data, len);
		assert_int_equal(fixture_newest(&fx, run), 10);
		ct_free(data);
		ct_free(file);
	}
	ct_free(run);
}

/* A state.json from before bad samples were counted in it. */
static void test_older_state(void **state)
{
	struct ct_checkpoint_result saved;
	static const char line[] = "  \"epoch_bad\": 9,\n", sum[] = "\"checksum\": \"";
	char *run = new_run("older"), *file, *data, *at;
	struct ct_train_state in = {.epoch_bad = 9}, out;
	struct ct_checkpoint_source src = {
		.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &in, .config_lines = ""};
	struct ct_sha256 h;
	char hex[CT_SHA256_HEX], *path;
	size_t len;

	(void)state;
	assert_ok(save_now(run, &src, 0, false, &saved));
	path = saved.path;
	assert_ok(ct_checkpoint_load_state(path, &out, NULL));
	assert_int_equal(out.epoch_bad, 9);
	file = ct_path_join(path, "state.json");
	assert_ok(ct_file_read(file, 1 << 20, &data, &len));
	at = strstr(data, line);
	assert_non_null(at);
	memmove(at, at + strlen(line), strlen(at + strlen(line)) + 1);
	len -= strlen(line);
	at = strstr(data, sum) + strlen(sum);
	memset(at, '0', CT_SHA256_HEX - 1);
	ct_sha256_init(&h);
	ct_sha256_update(&h, data, len);
	ct_sha256_final_hex(&h, hex);
	memcpy(at, hex, CT_SHA256_HEX - 1);
	overwrite(file, data, len);
	assert_ok(ct_checkpoint_load_state(path, &out, NULL));
	assert_int_equal(out.epoch_bad, 0);
	ct_free(data);
	ct_free(file);
	ct_free(path);
	ct_free(run);
}

/* Files of other programs in the directory. */
static void test_foreign(void **state)
{
	char *run = new_run("foreign"), *from, *to;

	(void)state;
	assert_ok(fixture_save(&fx, run, 9, 0, false));
	assert_ok(ct_dir_make(in_tmpdir("foreign/checkpoints/step-000000000011")));
	assert_ok(ct_dir_make(in_tmpdir("foreign/checkpoints/step-12")));
	assert_ok(ct_dir_make(in_tmpdir("foreign/checkpoints/step-000000000013x")));
	assert_ok(ct_dir_make(in_tmpdir("foreign/checkpoints/notes")));
	assert_ok(ct_file_replace(in_tmpdir("foreign/checkpoints/step-000000000014"), "x", 1));
	assert_int_equal(fixture_newest(&fx, run), 9);
	/* A file of another checkpoint in the place of this one's. */
	assert_ok(fixture_save(&fx, run, 10, 0, false));
	from = newest_file(run, "model.safetensors");
	assert_ok(ct_checkpoint_verify(in_tmpdir("foreign/checkpoints/step-000000000009")));
	to = ct_strdup(in_tmpdir("foreign/checkpoints/step-000000000009/model.safetensors"));
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(fixture_newest(&fx, run), 0);
	/* Saving goes on beside all that. */
	assert_ok(fixture_save(&fx, run, 15, 1, false));
	assert_int_equal(fixture_newest(&fx, run), 15);
	ct_free(to);
	ct_free(from);
	ct_free(run);
}

/* A directory that a living process writes is not removed. */
static void test_living_saver(void **state)
{
	char *run = new_run("living");
	pid_t child;
	int status;

	(void)state;
	assert_ok(fixture_save(&fx, run, 9, 0, false));
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		ct_failpoint_arm("ckpt.state=stop");
		_exit(fixture_save(&fx, run, 10, 0, false) == CT_OK ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(fixture_newest(&fx, run), 9);
	assert_int_equal(count_names(run, ".tmp-"), 1);
	kill(child, SIGCONT);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(fixture_newest(&fx, run), 10);
	ct_free(run);
}

/* Every file larger than a limit fails as on a full disk. */
static void test_file_limit(void **state)
{
	char *run = new_run("limit");
	struct rlimit was, small;

	(void)state;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	assert_ok(fixture_save(&fx, run, 9, 1, true));
	for (rlim_t limit = 0; limit < 100000; limit = limit * 2 + 100) {
		enum ct_status st;

		small = (struct rlimit){limit, was.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		st = fixture_save(&fx, run, 10, 1, true);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
		assert_fails(st, CT_IO, "cannot save the checkpoint of step 10");
		assert_int_equal(count_names(run, ".tmp-"), 0);
		assert_int_equal(fixture_newest(&fx, run), 9);
	}
	ct_free(run);
}

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #cond, ct_error_message()); \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* In a child with a tmpfs of its own: ballast leaves less and less room, then more again. */
static void fill_disk(const char *mount_point)
{
	const char *run = mount_point;
	int n_failed = 0;
	char ballast[600];

	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		_exit(77);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", mount_point, "tmpfs", 0, "size=1m,nr_inodes=64") != 0)
		_exit(77);
	snprintf(ballast, sizeof(ballast), "%s/ballast", mount_point);
	CHECK(fixture_save(&fx, run, 9, 1, true) == CT_OK);
	for (long kib = 1024; kib > 0; kib -= 36) {
		int fd = open(ballast, O_WRONLY | O_CREAT, 0600);
		enum ct_status st;

		while (kib > 0 && fallocate(fd, 0, 0, kib << 10) != 0)
			kib -= 4;
		close(fd);
		st = fixture_save(&fx, run, 10, 1, true);
		CHECK(st == CT_OK || (st == CT_IO && strstr(ct_error_message(), "No space left")));
		CHECK(count_names(run, ".tmp-") == 0);
		CHECK(fixture_newest(&fx, run) == (st == CT_OK ? 10 : 9));
		n_failed += st != CT_OK;
		CHECK(unlink(ballast) == 0);
		if (st == CT_OK)
			break;
	}
	CHECK(n_failed > 1);
	CHECK(fixture_save(&fx, run, 11, 1, false) == CT_OK);
	CHECK(fixture_newest(&fx, run) == 11);
	_exit(0);
}

static void test_disk_full(void **state)
{
	char *mount_point = new_run("tmpfs");
	pid_t child;
	int status;

	(void)state;
	assert_ok(ct_dir_make(mount_point));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		fill_disk(mount_point);
	assert_int_equal(waitpid(child, &status, 0), child);
	ct_free(mount_point);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("no tmpfs can be mounted here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failpoints), cmocka_unit_test(test_killed_at_every_call),
		cmocka_unit_test(test_damage),     cmocka_unit_test(test_older_state),
		cmocka_unit_test(test_foreign),    cmocka_unit_test(test_living_saver),
		cmocka_unit_test(test_file_limit), cmocka_unit_test(test_disk_full),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
