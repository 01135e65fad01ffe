#include "tests/base/check_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The linker redirects the library's calls to these functions (--wrap). errno to fail with; 0: succeed */
static int flock_err, ofd_err;

int __real_flock(int fd, int operation);
int __real_fcntl(int fd, int cmd, void *argument);
int __wrap_flock(int fd, int operation);
int __wrap_fcntl(int fd, int cmd, void *argument);

int __wrap_flock(int fd, int operation)
{
	errno = flock_err;
	return flock_err ? -1 : __real_flock(fd, operation);
}

int __wrap_fcntl(int fd, int cmd, void *argument)
{
	errno = ofd_err;
	return ofd_err ? -1 : __real_fcntl(fd, cmd, argument);
}

/* Makes a directory, a FIFO, a device, a socket, a link to a file and a dangling link. */
static void make_kinds(const char *dir)
{
	static const struct sockaddr_un none = {.sun_family = AF_UNIX};
	struct sockaddr_un addr = none;
	char *file = ct_path_join(dir, "file"), *fifo = ct_path_join(dir, "fifo"), *link = ct_path_join(dir, "link"),
	     *device = ct_path_join(dir, "device"), *dangling = ct_path_join(dir, "dangling");
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_ok(ct_file_replace(file, "content", 7));
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(symlink("file", link), 0);
	assert_int_equal(symlink("/dev/null", device), 0);
	assert_int_equal(symlink("nothing", dangling), 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/socket", dir);
	assert_int_equal(bind(sock, (const struct sockaddr *)&addr, sizeof(addr)), 0);
	close(sock);
	ct_free(file);
	ct_free(fifo);
	ct_free(link);
	ct_free(device);
	ct_free(dangling);
}

/* No call waits (the test would exceed its time limit), and nothing is written through a link. */
static void test_kinds(void **state)
{
	static const struct {
		const char *name, *read, *write; /* NULL: opens */
		enum ct_status status;           /* of reading */
	} cases[] = {
		{"file", NULL, NULL, CT_OK},
		{"link", NULL, "symbolic link", CT_OK},
		{"fifo", "FIFO", "FIFO", CT_DATA},
		{"device", "character device", "symbolic link", CT_DATA},
		{"dangling", "No such file", "symbolic link", CT_NOT_FOUND},
		{"socket", "socket", "socket", CT_DATA},
		{".", "directory", "directory", CT_DATA},
	};
	static const enum ct_file_mode modes[] = {CT_FILE_APPEND, CT_FILE_UPDATE, CT_FILE_NEW};
	char *dir = sub_folder(state, "kinds"), *file = ct_path_join(dir, "file");

	make_kinds(dir);
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		char *path = ct_path_join(dir, cases[i].name), *text;
		size_t len;
		int fd;

		if (cases[i].read) {
			assert_fails(ct_file_open(path, CT_FILE_READ, &fd), cases[i].status, cases[i].read);
			assert_fails(ct_file_read(path, 100, &text, &len), cases[i].status, path);
		} else {
			assert_holds(path, "content");
		}
		for (size_t k = 0; k < CT_ARRAY_LEN(modes); k++) {
			bool exists = modes[k] == CT_FILE_NEW;
			const char *why = exists ? "File exists" : cases[i].write;

			if (!why) {
				assert_ok(ct_file_open(path, modes[k], &fd));
				assert_ok(ct_fd_close(fd, path));
			} else if (!exists || strcmp(cases[i].name, ".") != 0) {
				assert_fails(ct_file_open(path, modes[k], &fd), CT_IO, why);
			}
		}
		ct_free(path);
	}
	assert_holds(file, "content");
	ct_free(file);
	ct_free(dir);
}

/* `--out /dev/null` does not replace the device. A link is replaced, and its target does not change. */
static void test_replace_kinds(void **state)
{
	char *dir = sub_folder(state, "replace-kinds"), *fifo = ct_path_join(dir, "fifo"),
	     *device = ct_path_join(dir, "device"), *link = ct_path_join(dir, "link"),
	     *file = ct_path_join(dir, "file");
	struct stat sb;

	make_kinds(dir);
	assert_fails(ct_file_replace(fifo, "new", 3), CT_IO, "FIFO");
	assert_fails(ct_file_replace(device, "new", 3), CT_IO, "character device");
	assert_ok(ct_file_replace(link, "new", 3));
	assert_int_equal(lstat(link, &sb), 0);
	assert_true(S_ISREG(sb.st_mode));
	assert_holds(file, "content");
	ct_free(file);
	ct_free(link);
	ct_free(device);
	ct_free(fifo);
	ct_free(dir);
}

/* Only old temporary files of the same file are removed. */
static void test_leftovers(void **state)
{
	static const struct {
		const char *name;
		int age_s;
		bool goes;
	} files[] = {
		{"f.tmp-17-1a2b", CT_FILE_LEFTOVER_S + 60, true}, {"f.tmp-18-ff", CT_FILE_LEFTOVER_S - 60, false},
		{"f.tmp-19-x", CT_FILE_LEFTOVER_S + 60, false},   {"f.tmp-19", CT_FILE_LEFTOVER_S + 60, false},
		{"f.tmp--1", CT_FILE_LEFTOVER_S + 60, false},     {"f.tmp-backup", CT_FILE_LEFTOVER_S + 60, false},
		{"ff.tmp-17-1", CT_FILE_LEFTOVER_S + 60, false},  {".tmp-17-1", CT_FILE_LEFTOVER_S + 60, false},
	};
	char *dir = sub_folder(state, "leftovers"), *path = ct_path_join(dir, "f"), *left[CT_ARRAY_LEN(files)];

	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		const struct timespec at = {.tv_sec = time(NULL) - files[i].age_s};

		left[i] = ct_path_join(dir, files[i].name);
		assert_ok(ct_file_replace(left[i], "x", 1));
		assert_int_equal(utimensat(AT_FDCWD, left[i], (struct timespec[]){at, at}, 0), 0);
	}
	assert_ok(ct_file_replace(path, "one", 3));
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		assert_int_equal(ct_file_exists(left[i]), !files[i].goes);
		ct_free(left[i]);
	}
	ct_free(path);
	ct_free(dir);
}

static void test_replace_private(void **state)
{
	char *path = ct_path_join(*state, "private");
	struct stat sb;

	assert_ok(ct_file_replace(path, "old", 3));
	assert_ok(ct_file_replace_private(path, "new", 3));
	assert_holds(path, "new");
	assert_int_equal(stat(path, &sb), 0);
	assert_int_equal(sb.st_mode & 07777, 0600);
	ct_free(path);
}

/* The locks of fcntl take the place of flock on a file system without it. */
static void test_locks(void **state)
{
	static const int errors[] = {0, ENOLCK, ENOSYS, EOPNOTSUPP};
	char *path = ct_path_join(*state, "locked");
	int one, two, reader;
	bool taken;

	for (size_t i = 0; i < CT_ARRAY_LEN(errors); i++) {
		flock_err = errors[i];
		assert_ok(ct_file_open(path, CT_FILE_UPDATE, &one));
		assert_ok(ct_file_open(path, CT_FILE_UPDATE, &two));
		assert_ok(ct_file_open(path, CT_FILE_READ, &reader));
		assert_false(ct_fd_is_locked(reader));
		assert_ok(ct_fd_lock(one, 0, &taken));
		assert_true(taken);
		assert_true(ct_fd_is_locked(reader));
		assert_ok(ct_fd_lock(two, 0, &taken));
		assert_false(taken);
		close(one);
		assert_false(ct_fd_is_locked(reader));
		assert_ok(ct_fd_lock(two, 0, &taken));
		assert_true(taken);
		close(two);
		if (flock_err != 0) { /* fcntl cannot lock a file that is open for reading only */
			assert_fails(ct_fd_lock(reader, 0, &taken), CT_IO, "no locks");
			ofd_err = ENOLCK;
			assert_fails(ct_fd_lock(reader, 0, &taken), CT_IO, "no locks");
			assert_int_equal(ct_error_reason(), CT_REASON_NO_LOCKS);
			assert_false(ct_fd_is_locked(reader));
			ofd_err = 0;
		}
		close(reader);
	}
	flock_err = EIO;
	assert_fails(ct_fd_lock(STDIN_FILENO, 0, &taken), CT_IO, "cannot lock");
	assert_int_equal(ct_error_reason(), CT_REASON_NONE);
	flock_err = 0;
	ct_free(path);
}

/* Locks on single bytes of an empty file. */
static void test_byte_locks(void **state)
{
	char *path = ct_path_join(*state, "bytes");
	const uint64_t keys[] = {0, 4, UINT64_MAX};
	bool taken;
	int one, two;

	assert_ok(ct_file_open(path, CT_FILE_UPDATE, &one));
	assert_ok(ct_file_open(path, CT_FILE_UPDATE, &two));
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		assert_ok(ct_fd_lock_byte(i % 2 ? two : one, keys[i], &taken));
		assert_true(taken);
		assert_ok(ct_fd_lock_byte(i % 2 ? one : two, keys[i], &taken));
		assert_false(taken);
	}
	close(one);
	assert_ok(ct_fd_lock_byte(two, UINT64_MAX, &taken));
	assert_true(taken);
	ofd_err = ENOLCK;
	assert_fails(ct_fd_lock_byte(two, 8, &taken), CT_IO, "no locks");
	ofd_err = 0;
	close(two);
	ct_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),     cmocka_unit_test(test_replace_kinds),
					   cmocka_unit_test(test_leftovers), cmocka_unit_test(test_replace_private),
					   cmocka_unit_test(test_locks),     cmocka_unit_test(test_byte_locks)};

	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
