#include "tests/base/check_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The linker redirects the library's calls to these functions (--wrap). */
static struct {
	int write_err, fsync_err, rename_err; /* errno to fail with; 0: succeed */
	int rename_new_err;                   /* of renameat2, which rename does not call */
	int fsync_skip;                       /* this many calls succeed first */
	size_t write_max;                     /* longest write; 0: no limit */
	int n_eintr;
	int n_fsync;
	bool interrupt; /* every other call of open, fsync and close is interrupted */
	unsigned n_calls;
} inject;

ssize_t __real_write(int fd, const void *p, size_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_open(const char *path, int flags, mode_t mode);
int __real_close(int fd);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_close(int fd);
ssize_t __wrap_write(int fd, const void *p, size_t n);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	if (fd > 2 && inject.n_eintr > 0) {
		inject.n_eintr--;
		errno = EINTR;
		return -1;
	}
	if (fd > 2 && inject.write_err) {
		errno = inject.write_err;
		return -1;
	}
	return __real_write(fd, p, fd > 2 && inject.write_max && n > inject.write_max ? inject.write_max : n);
}

static bool interrupted(void)
{
	if (!inject.interrupt || inject.n_calls++ % 2 == 1)
		return false;
	errno = EINTR;
	return true;
}

int __wrap_open(const char *path, int flags, mode_t mode)
{
	return interrupted() ? -1 : __real_open(path, flags, mode);
}

/* Like Linux, closes the descriptor even if the call is interrupted. */
int __wrap_close(int fd)
{
	int rc = __real_close(fd);

	return rc == 0 && interrupted() ? -1 : rc;
}

int __wrap_fsync(int fd)
{
	if (interrupted())
		return -1;
	inject.n_fsync++;
	if (inject.fsync_err && inject.n_fsync > inject.fsync_skip) {
		errno = inject.fsync_err;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	if (inject.rename_err) {
		errno = inject.rename_err;
		return -1;
	}
	return __real_rename(from, to);
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	if (inject.rename_new_err) {
		errno = inject.rename_new_err;
		return -1;
	}
	return __real_renameat2(from_dir, from, to_dir, to, flags);
}

static int work_again(void **state)
{
	(void)state;
	memset(&inject, 0, sizeof(inject));
	return 0;
}

static size_t count_entries(const char *dir)
{
	char **names;
	size_t n;

	assert_ok(ct_dir_list(dir, &names, &n));
	ct_dir_list_free(names, n);
	return n;
}

static void test_replace(void **state)
{
	char *dir = sub_folder(state, "replace"), *path = ct_path_join(dir, "f");
	uint64_t size;

	assert_false(ct_file_exists(path));
	assert_ok(ct_file_replace(path, "one", 3));
	assert_holds(path, "one");
	assert_int_equal(inject.n_fsync, 2); /* the file and its directory */
	inject.write_max = 2;
	inject.n_eintr = 2;
	assert_ok(ct_file_replace(path, "second", 6));
	assert_holds(path, "second");
	assert_true(ct_file_exists(path));
	assert_ok(ct_file_size(path, &size));
	assert_int_equal(size, 6);
	assert_ok(ct_file_replace(path, NULL, 0));
	assert_holds(path, "");
	assert_int_equal(count_entries(dir), 1);
	ct_free(path);
	ct_free(dir);
}

static void test_failed_replace_leaves_the_old_file(void **state)
{
	char *dir = sub_folder(state, "failed"), *path = ct_path_join(dir, "f"), *absent = ct_path_join(dir, "x/f");

	assert_ok(ct_file_replace(path, "old", 3));
	inject.write_err = ENOSPC;
	assert_fails(ct_file_replace(path, "new", 3), CT_IO, "No space left");
	assert_non_null(strstr(ct_error_message(), path));
	assert_non_null(strstr(ct_error_hint_text(), "space"));
	work_again(NULL);
	inject.fsync_err = EIO;
	assert_fails(ct_file_replace(path, "new", 3), CT_IO, "sync");
	work_again(NULL);
	inject.rename_err = EACCES;
	assert_fails(ct_file_replace(path, "new", 3), CT_IO, "replace");
	work_again(NULL);
	assert_holds(path, "old");
	assert_int_equal(count_entries(dir), 1);
	/* After the rename the new file remains, but the caller gets an error because it may not survive a crash. */
	inject.fsync_err = EIO;
	inject.fsync_skip = 1;
	assert_fails(ct_file_replace(path, "new", 3), CT_IO, "sync directory");
	work_again(NULL);
	assert_holds(path, "new");
	assert_int_equal(count_entries(dir), 1);
	assert_fails(ct_file_replace(absent, "x", 1), CT_NOT_FOUND, absent);
	/* A directory has this name. */
	assert_fails(ct_file_replace(dir, "x", 1), CT_IO, "not a regular file but a directory");
	for (uint64_t n = 1; n <= 2; n++) {
		ct_mem_fail_after(n);
		assert_int_equal(ct_file_replace(path, "never", 5), CT_NOMEM);
	}
	ct_mem_fail_after(0);
	assert_holds(path, "new");
	assert_int_equal(count_entries(dir), 1);
	ct_free(absent);
	ct_free(path);
	ct_free(dir);
}

/* On every file system: some cannot refuse to replace a file. */
static void test_create(void **state)
{
	static const int errors[] = {0, EINVAL, ENOSYS};
	char *dir = sub_folder(state, "create"), *path = ct_path_join(dir, "f"), *link = ct_path_join(dir, "link"),
	     *temp;

	assert_int_equal(symlink("nothing", link), 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(errors); i++) {
		inject.rename_new_err = errors[i];
		assert_ok(ct_file_create(path, "new", 3));
		assert_fails(ct_file_create(path, "newer", 5), CT_IO, "File exists");
		assert_non_null(strstr(ct_error_hint_text(), "another name"));
		assert_fails(ct_file_create(link, "x", 1), CT_IO, "File exists");
		/* Another process has created the file in the meantime. */
		temp = ct_file_temp_name(path);
		assert_ok(ct_file_replace(temp, "late", 4));
		assert_fails(ct_file_publish(temp, path), CT_IO, "File exists");
		assert_non_null(strstr(ct_error_hint_text(), "another name"));
		ct_free(temp);
		assert_holds(path, "new");
		assert_int_equal(count_entries(dir), 2);
		assert_int_equal(unlink(path), 0);
	}
	inject.rename_new_err = EACCES;
	assert_fails(ct_file_create(path, "new", 3), CT_IO, path);
	work_again(NULL);
	inject.write_err = ENOSPC;
	assert_fails(ct_file_create(path, "new", 3), CT_IO, "No space left");
	assert_int_equal(count_entries(dir), 1);
	ct_free(link);
	ct_free(path);
	ct_free(dir);
}

static void test_replace_by_copy(void **state)
{
	char *dir = sub_folder(state, "copy"), *path = ct_path_join(dir, "f"), *fifo = ct_path_join(dir, "fifo");
	char *data = ct_calloc(1, 100001);
	int fd;

	for (size_t i = 0; i < 100000; i++)
		data[i] = (char)('a' + i % 23);
	assert_ok(ct_file_replace(path, data, 100000));
	assert_ok(ct_file_open(path, CT_FILE_APPEND, &fd));
	inject.write_max = 9999;
	inject.n_eintr = 2;
	assert_ok(ct_file_replace_by_copy(path));
	work_again(NULL);
	assert_ok(ct_fd_write_all(fd, "late", 4, path));
	close(fd);
	assert_holds(path, data);
	/* A failure leaves the file as it is. */
	assert_ok(ct_file_open(path, CT_FILE_APPEND, &fd));
	inject.write_err = ENOSPC;
	assert_fails(ct_file_replace_by_copy(path), CT_IO, "No space left");
	work_again(NULL);
	inject.fsync_err = EIO;
	assert_fails(ct_file_replace_by_copy(path), CT_IO, "sync");
	work_again(NULL);
	inject.rename_err = EACCES;
	assert_fails(ct_file_replace_by_copy(path), CT_IO, "replace");
	work_again(NULL);
	ct_mem_fail_after(1);
	assert_int_equal(ct_file_replace_by_copy(path), CT_NOMEM);
	ct_mem_fail_after(0);
	assert_ok(ct_file_still_at(fd, path));
	close(fd);
	assert_holds(path, data);
	assert_int_equal(count_entries(dir), 1);
	assert_fails(ct_file_replace_by_copy(fifo), CT_NOT_FOUND, fifo);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_fails(ct_file_replace_by_copy(fifo), CT_DATA, "FIFO");
	ct_free(fifo);
	ct_free(data);
	ct_free(path);
	ct_free(dir);
}

static void test_read(void **state)
{
	char *path = ct_path_join(*state, "read"), *text = NULL, *big = ct_calloc(1, 100000);
	char part[4];
	size_t len;
	int fd;

	memset(big, 'b', 99999);
	assert_ok(ct_file_replace(path, big, 99999));
	assert_ok(ct_file_read(path, 99999, &text, &len));
	assert_int_equal(len, 99999);
	assert_string_equal(text, big);
	ct_free(text);
	assert_fails(ct_file_read(path, 99998, &text, &len), CT_DATA, "99998");
	assert_fails(ct_file_read("/nonexistent", 10, &text, &len), CT_NOT_FOUND, "/nonexistent");
	assert_fails(ct_file_read(*state, 10, &text, &len), CT_DATA, "not a regular file but a directory");
	/* A file whose size is not known in advance. */
	assert_ok(ct_file_read("/proc/self/status", 1 << 20, &text, &len));
	assert_true(len > 100 && strlen(text) == len);
	ct_free(text);
	assert_fails(ct_file_read("/dev/zero", 100000, &text, &len), CT_DATA, "/dev/zero");

	assert_ok(ct_file_replace(path, "0123456789", 10));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_ok(ct_fd_read_at(fd, part, 4, 6, path));
	assert_memory_equal(part, "6789", 4);
	assert_fails(ct_fd_read_at(fd, part, 4, 7, path), CT_DATA, "ends at byte 10");
	assert_fails(ct_fd_read_at(fd, part, 4, UINT64_MAX, path), CT_DATA, "offset");
	assert_fails(ct_fd_read_at(fd, part, 4, INT64_MAX - 2, path), CT_DATA, "offset");
	close(fd);
	assert_fails(ct_fd_read_at(-1, part, 4, 0, "gone"), CT_IO, "gone");
	assert_fails(ct_fd_write_all(-1, part, 4, "gone"), CT_IO, "gone");
	ct_free(big);
	ct_free(path);
}

static void test_make_list_remove(void **state)
{
	char *dir = sub_folder(state, "tree//a/b/"), *top = ct_path_join(*state, "tree"), *file, *link, *keep, **names;
	size_t n;

	assert_ok(ct_dir_make(dir));
	assert_int_equal(count_entries(dir), 0);
	file = ct_path_join(top, "z");
	assert_ok(ct_file_replace(file, "z", 1));
	assert_int_equal(ct_dir_make(file), CT_IO);
	assert_fails(ct_dir_remove(file), CT_IO, file);
	assert_fails(ct_dir_list(file, &names, &n), CT_IO, file);
	keep = ct_path_join(*state, "keep");
	assert_ok(ct_file_replace(keep, "k", 1));
	/* Links are removed, but not what they point to. */
	link = ct_path_join(top, "B");
	assert_ok(ct_link_replace("..", link));
	assert_ok(ct_dir_list(top, &names, &n));
	assert_int_equal(n, 3);
	assert_string_equal(names[0], "B");
	assert_string_equal(names[1], "a");
	assert_string_equal(names[2], "z");
	ct_dir_list_free(names, n);
	assert_fails(ct_dir_remove(link), CT_IO, link);
	assert_ok(ct_dir_remove(top));
	assert_false(ct_file_exists(top));
	assert_true(ct_file_exists(keep));
	assert_ok(ct_dir_remove(top));
	assert_fails(ct_dir_list(top, &names, &n), CT_NOT_FOUND, top);
	assert_int_equal(ct_dir_make(""), CT_NOT_FOUND);
	ct_free(dir);
	ct_free(top);
	ct_free(file);
	ct_free(link);
	ct_free(keep);
}

static void test_probe_and_space(void **state)
{
	char *dir = sub_folder(state, "probe");
	uint64_t bytes = 0;

	assert_ok(ct_dir_probe(dir));
	assert_int_equal(count_entries(dir), 0);
	/* The next probe removes the file of a killed process. */
	char *left = ct_path_join(dir, ".probe");
	assert_ok(ct_file_replace(left, "pro", 3));
	assert_ok(ct_dir_probe(dir));
	assert_int_equal(count_entries(dir), 0);
	ct_free(left);
	inject.write_err = ENOSPC;
	assert_fails(ct_dir_probe(dir), CT_IO, "not writable");
	assert_int_equal(count_entries(dir), 0);
	assert_int_equal(ct_dir_probe("/nonexistent"), CT_NOT_FOUND);
	assert_ok(ct_dir_free_bytes(dir, &bytes));
	assert_true(bytes > 0);
	assert_int_equal(ct_dir_free_bytes("/nonexistent", &bytes), CT_NOT_FOUND);
	ct_free(dir);
}

static void test_link(void **state)
{
	char *dir = sub_folder(state, "link"), *path = ct_path_join(dir, "last"), to[64] = {0};

	assert_ok(ct_link_replace("step-1", path));
	assert_ok(ct_link_replace("step-2", path));
	assert_int_equal(readlink(path, to, sizeof(to) - 1), 6);
	assert_string_equal(to, "step-2");
	inject.rename_err = EIO;
	assert_fails(ct_link_replace("step-3", path), CT_IO, path);
	assert_int_equal(readlink(path, to, sizeof(to) - 1), 6);
	assert_string_equal(to, "step-2");
	assert_int_equal(count_entries(dir), 1);
	ct_free(path);
	ct_free(dir);
}

static void test_still_at(void **state)
{
	char *dir = sub_folder(state, "still"), *path = ct_path_join(dir, "f"), *moved = ct_path_join(*state, "moved");
	int fd;

	assert_ok(ct_file_open(path, CT_FILE_APPEND, &fd));
	assert_ok(ct_file_still_at(fd, path));
	assert_int_equal(rename(dir, moved), 0);
	assert_fails(ct_file_still_at(fd, path), CT_IO, "removed or renamed");
	assert_ok(ct_dir_make(dir));
	assert_fails(ct_file_still_at(fd, path), CT_IO, "removed or renamed");
	assert_ok(ct_file_replace(path, "another", 7));
	assert_fails(ct_file_still_at(fd, path), CT_IO, "replaced by another file");
	assert_ok(ct_dir_remove(dir));
	assert_int_equal(rename(moved, dir), 0);
	assert_ok(ct_file_still_at(fd, path));
	assert_int_equal(unlink(path), 0);
	assert_fails(ct_file_still_at(fd, path), CT_IO, path);
	assert_ok(ct_fd_close(fd, path));
	ct_free(moved);
	ct_free(path);
	ct_free(dir);
}

static void test_interrupted_calls(void **state)
{
	char *dir = sub_folder(state, "eintr"), *path = ct_path_join(dir, "f");
	int fd;

	inject.interrupt = true;
	inject.n_eintr = 3;
	assert_ok(ct_file_replace(path, "one", 3));
	assert_ok(ct_dir_probe(dir));
	assert_ok(ct_link_replace("f", ct_path_name(path)));
	assert_int_equal(unlink(ct_path_name(path)), 0);
	for (int i = 0; i < 3; i++) {
		assert_ok(ct_file_open(path, CT_FILE_APPEND, &fd));
		assert_ok(ct_fd_write_all(fd, "+", 1, path));
		assert_ok(ct_fd_sync(fd, path));
		assert_ok(ct_fd_close(fd, path));
	}
	assert_true(inject.n_calls > 20);
	assert_holds(path, "one+++");
	ct_free(path);
	ct_free(dir);
}

/* The hint names the limit of the shell that caused the error. */
static void test_hints(void **state)
{
	char *path = ct_path_join(*state, "limited");
	struct rlimit before, limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){4096, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	inject.write_err = EFBIG;
	assert_fails(ct_file_replace(path, "x", 1), CT_IO, "too large");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_non_null(strstr(ct_error_hint_text(), "limits files to 4 KiB"));
	assert_non_null(strstr(ct_error_hint_text(), "ulimit -f"));
	work_again(NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){3, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_fails(ct_file_replace(path, "x", 1), CT_IO, "Too many open files");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_non_null(strstr(ct_error_hint_text(), "ulimit -n"));
	ct_free(path);
}

#define TEST(f) cmocka_unit_test_teardown(f, work_again)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_replace),
		TEST(test_failed_replace_leaves_the_old_file),
		TEST(test_create),
		TEST(test_replace_by_copy),
		TEST(test_read),
		TEST(test_make_list_remove),
		TEST(test_probe_and_space),
		TEST(test_link),
		TEST(test_still_at),
		TEST(test_interrupted_calls),
		TEST(test_hints),
	};

	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
