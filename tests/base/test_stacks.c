/* Backtraces of a process that crashes, and of one that is asked, and the names of its functions. */
#include <elf.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process/symbols.h"
#include "base/stacks.h"
#include "base/thread.h"

static char path[64];

static _Atomic int n_waiting;

static void *wait_in_thread(void *arg)
{
	char c;

	atomic_fetch_add(&n_waiting, 1);
	(void)!read(*(int *)arg, &c, 1); /* until the process ends */
	return NULL;
}

__attribute__((noinline, no_sanitize("address", "undefined"))) static void crash_here(int sig)
{
	if (sig == SIGSEGV) {
		volatile int *volatile nowhere = NULL;

		*nowhere = 1;
	} else if (sig == SIGABRT) {
		abort();
	} else {
		ct_stacks_write("asked for");
		_exit(0);
	}
	__asm__ volatile("" ::: "memory"); /* no tail call, which would hide this function */
}

/* Runs a function that must end its process in a child process that writes backtraces to the file. Returns the wait
 * status. */
static int in_child(void (*f)(int), int arg)
{
	int status = 0;
	pid_t pid;

	(void)unlink(path);
	pid = fork();
	if (pid == 0) {
		/* The test library and sanitizers have handlers. */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		ct_stacks_enable(path);
		f(arg);
		_exit(98);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void start(struct ct_thread *t, const char *name, void *(*f)(void *), void *arg)
{
	if (ct_thread_start(t, name, f, arg) < 0)
		_exit(99);
}

static void open_pipe(int fds[2])
{
	if (pipe(fds) != 0)
		_exit(99);
}

static void await_waiting(int n)
{
	while (atomic_load(&n_waiting) < n)
		sched_yield();
}

/* A process with two threads. */
static void crash_with_reader(int sig)
{
	struct ct_thread reader = {0};
	int fds[2];

	open_pipe(fds);
	start(&reader, "test-reader", wait_in_thread, fds);
	await_waiting(1);
	crash_here(sig);
}

/* Returns the file with the names of functions instead of addresses. The caller owns it. */
static char *resolve(void)
{
	struct ct_str out = {0};
	char *data, name[256], *line, *rest;
	ct_symbols *s;
	size_t len;

	assert_int_equal(ct_file_read(path, 1 << 20, &data, &len), CT_OK);
	assert_int_equal(ct_symbols_create(&s), CT_OK);
	for (const char *m = strstr(data, "\nmap "); m; m = strstr(m + 1, "\nmap "))
		assert_int_equal(ct_symbols_add_map(s, m + 5), CT_OK);
	rest = data;
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, "at ", 3) == 0) {
			ct_symbols_name(s, strtoull(line + 3, NULL, 16), true, name, sizeof(name));
			ct_str_addf(&out, "at %s\n", name);
		} else if (strncmp(line, "map ", 4) != 0) {
			ct_str_addf(&out, "%s\n", line);
		}
	}
	ct_symbols_destroy(s);
	ct_free(data);
	return out.s;
}

static bool has(const char *text, const char *what)
{
	if (!strstr(text, what))
		print_message("\"%s\" is not in:\n%s\n", what, text);
	return strstr(text, what) != NULL;
}

/* ThreadSanitizer delays signals until the blocking call of a thread returns. */
static void skip_with_tsan(void)
{
#ifdef __SANITIZE_THREAD__
	print_message("ThreadSanitizer delays the signals that this case sends\n");
	skip();
#endif
}

static void test_crash(void **state)
{
	static const int signals[] = {SIGABRT, SIGSEGV};

	(void)state;
	skip_with_tsan();
	for (size_t i = 0; i < CT_ARRAY_LEN(signals); i++) {
		int status = in_child(crash_with_reader, signals[i]);
		char reason[32], *text = resolve();

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), signals[i]);
		snprintf(reason, sizeof(reason), "reason signal %d\n", signals[i]);
		assert_true(has(text, reason));
		assert_true(has(text, "at crash_here"));
		assert_true(has(text, " test-reader\n"));
		assert_true(has(text, "at wait_in_thread"));
		ct_free(text);
	}
}

static void test_request(void **state)
{
	char *text;

	(void)state;
	skip_with_tsan();
	assert_int_equal(in_child(crash_with_reader, 0), 0);
	text = resolve();
	assert_true(has(text, "reason asked for\n"));
	assert_true(has(text, "at crash_here"));
	assert_true(has(text, "at wait_in_thread"));
	ct_free(text);
}

static void *block_everything(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	return wait_in_thread(arg);
}

static void crash_beside_silent(int sig)
{
	struct ct_thread silent = {0}, other = {0};
	int fds[2];

	open_pipe(fds);
	start(&silent, "test-silent", block_everything, fds);
	await_waiting(1);
	start(&other, "test-reader", wait_in_thread, fds);
	crash_here(sig);
}

/* A thread that blocks the signal is missing, and the others are there. */
static void test_silent_thread(void **state)
{
	char *text;

	(void)state;
	skip_with_tsan();
	assert_int_equal(in_child(crash_beside_silent, 0), 0);
	text = resolve();
	assert_true(has(text, "at crash_here"));
	assert_true(has(text, " test-reader\n"));
	assert_null(strstr(text, "test-silent"));
	ct_free(text);
}

/* Crashes as soon as another thread has begun to write the file. */
static void *crash_second(void *arg)
{
	(void)arg;
	atomic_fetch_add(&n_waiting, 1);
	while (!ct_file_exists(path))
		sched_yield();
	crash_here(SIGSEGV);
	return NULL;
}

static void crash_twice(int sig)
{
	struct ct_thread silent[4] = {0}, second = {0};
	int fds[2];

	open_pipe(fds);
	start(&second, "test-second", crash_second, NULL);
	for (size_t i = 0; i < CT_ARRAY_LEN(silent); i++)
		start(&silent[i], "test-silent", block_everything, fds);
	await_waiting(1 + (int)CT_ARRAY_LEN(silent));
	crash_here(sig);
}

/* While the first thread writes the file and waits for answers of the silent ones, another thread crashes. The file is
 * complete. */
static void test_two_crashes(void **state)
{
	char *text;
	int status;

	(void)state;
	skip_with_tsan();
	status = in_child(crash_twice, SIGSEGV);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	text = resolve();
	assert_true(has(text, "reason signal 11\n"));
	assert_true(has(text, "at crash_here"));
	ct_free(text);
}

/* A path of more than 1 KiB. */
static char long_path[1400];

static void map_long_path(int sig)
{
	int fd;

	if (ct_file_open(long_path, CT_FILE_UPDATE, &fd) < 0 || ftruncate(fd, 4096) != 0 ||
	    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(97);
	crash_here(sig);
}

/* A mapping whose path is truncated does not damage the next line. */
static void test_long_path(void **state)
{
	char *dir, *data, *line, *rest;
	bool truncated = false;
	size_t len;
	int status;

	(void)state;
	snprintf(long_path, sizeof(long_path), "%s.d", path);
	for (int i = 0; i < 6; i++)
		snprintf(long_path + strlen(long_path), sizeof(long_path) - strlen(long_path), "/%0200d", i);
	dir = ct_path_dir(long_path);
	assert_int_equal(ct_dir_make(dir), CT_OK);
	status = in_child(map_long_path, 0);
	assert_int_equal(unlink(long_path), 0);
	while (strlen(dir) > strlen(path)) {
		assert_int_equal(rmdir(dir), 0);
		*strrchr(dir, '/') = '\0';
	}
	ct_free(dir);
	assert_int_equal(status, 0);
	assert_int_equal(ct_file_read(path, 1 << 20, &data, &len), CT_OK);
	assert_int_equal(data[len - 1], '\n');
	rest = data;
	while ((line = strsep(&rest, "\n"))) {
		truncated |= strstr(line, "/ctrain-stacks-") && strlen(line) > 1000;
		assert_null(strstr(line, " r-xp ") ? strstr(line + 1, "map ") : NULL);
	}
	assert_true(truncated);
	ct_free(data);
}

static void test_unknown_addresses(void **state)
{
	char name[128];
	ct_symbols *s;

	(void)state;
	assert_int_equal(ct_symbols_create(&s), CT_OK);
	assert_int_equal(ct_symbols_add_map(s, "nonsense"), CT_OK);
	assert_int_equal(ct_symbols_add_map(s, "1000-2000 r-xp 00000000 00:00 0 "), CT_OK);
	assert_int_equal(ct_symbols_add_map(s, "400000-500000 r-xp 00001000 08:01 1 /proc/self/exe"), CT_OK);
	ct_symbols_name(s, 0x1800, true, name, sizeof(name));
	assert_string_equal(name, "0x1800 (generated code)");
	ct_symbols_name(s, 0x400010, true, name, sizeof(name)); /* another inode */
	assert_string_equal(name, "exe+0x1010");
	ct_symbols_destroy(s);
}

/* Writes the line of the mapping of the test program's code, as if the file `path` had been mapped. */
static void mapping_of_copy(char *line, size_t len)
{
	const uint64_t here = (uint64_t)(uintptr_t)crash_here;
	uint64_t start, end, offset;
	char maps_line[1024];
	struct stat copy;
	FILE *maps = fopen("/proc/self/maps", "re");

	assert_non_null(maps);
	assert_int_equal(stat(path, &copy), 0);
	line[0] = '\0';
	while (!line[0] && fgets(maps_line, sizeof(maps_line), maps)) {
		if (sscanf(maps_line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &start, &end, &offset) == 3 &&
		    start <= here && here < end)
			snprintf(line, len, "%" PRIx64 "-%" PRIx64 " r-xp %" PRIx64 " 00:00 %llu %s\n", start, end,
				 offset, (unsigned long long)copy.st_ino, path);
	}
	(void)fclose(maps);
	assert_true(line[0]);
}

/* The file is replaced by another program while its symbols are in use, as when ctrain is installed again. Its section
 * headers may have any offset. */
static void test_file_changes(void **state)
{
	char *data, *odd, line[1024], name[128];
	Elf64_Ehdr *h;
	ct_symbols *s;
	size_t len, table;
	int fd;

	(void)state;
	assert_int_equal(ct_file_read("/proc/self/exe", 1 << 30, &data, &len), CT_OK);
	h = (Elf64_Ehdr *)(void *)data;
	table = (size_t)h->e_shnum * sizeof(Elf64_Shdr);
	odd = ct_calloc(len + table + 8, 1);
	memcpy(odd, data, len);
	memcpy(odd + (len | 1), data + h->e_shoff, table);
	h = (Elf64_Ehdr *)(void *)odd;
	h->e_shoff = len | 1;
	(void)unlink(path);
	assert_int_equal(ct_file_open(path, CT_FILE_NEW, &fd), CT_OK);
	assert_int_equal(ct_fd_write_all(fd, odd, (len | 1) + table, path), CT_OK);
	mapping_of_copy(line, sizeof(line));
	assert_int_equal(ct_symbols_create(&s), CT_OK);
	assert_int_equal(ct_symbols_add_map(s, line), CT_OK);
	for (int i = 0; i < 2; i++) {
		ct_symbols_name(s, (uint64_t)(uintptr_t)crash_here + 1, false, name, sizeof(name));
		assert_true(has(name, "crash_here+0x1 ("));
		assert_int_equal(ftruncate(fd, 0), 0);
	}
	close(fd);
	ct_symbols_destroy(s);
	ct_free(odd);
	ct_free(data);
}

/* Another program has replaced the file by a FIFO, which no one opens for writing. */
static void test_fifo(void **state)
{
	struct stat sb;
	char line[256], name[128];
	ct_symbols *s;

	(void)state;
	(void)unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(stat(path, &sb), 0);
	snprintf(line, sizeof(line), "1000-2000 r-xp 0 00:00 %llu %s", (unsigned long long)sb.st_ino, path);
	assert_int_equal(ct_symbols_create(&s), CT_OK);
	assert_int_equal(ct_symbols_add_map(s, line), CT_OK);
	ct_symbols_name(s, 0x1234, false, name, sizeof(name));
	assert_true(has(name, "+0x234"));
	ct_symbols_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crash),         cmocka_unit_test(test_request),
		cmocka_unit_test(test_silent_thread), cmocka_unit_test(test_two_crashes),
		cmocka_unit_test(test_long_path),     cmocka_unit_test(test_unknown_addresses),
		cmocka_unit_test(test_file_changes),  cmocka_unit_test(test_fifo),
	};

	snprintf(path, sizeof(path), "/tmp/ctrain-stacks-%d", (int)getpid());
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(path);
	return failed;
}
