/* One thread becomes the writer, by an atomic exchange of its id, and only this thread writes the file. It asks the
 * other threads one by one: it stores the id of a thread in `asked` and sends it a signal, whose handler stores the
 * frames in `state` and then their number. A thread takes the request by exchanging `asked` back to 0. The writer
 * withdraws a request in the same way, so a late answer never overwrites that of another thread; if the exchange fails,
 * the answer is being written, and the writer waits for it or gives up.
 *
 * All of this runs in signal handlers: no locks, no heap, no stdio, and libgcc is loaded beforehand. Other threads that
 * crash meanwhile wait, because the end of the process would end the writer. Time is counted in sleeps, not read from a
 * clock, because on a loaded machine both take longer. */
#include "base/stacks.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_FRAMES 64
#define ANSWER_MS 300       /* how long to wait for all threads together, */
#define ANSWER_OF_ONE_MS 50 /* and for one of them */
#define WRITE_MS 1000       /* how long another thread that crashes waits until the file is complete */
#define ALT_STACK_BYTES (64 << 10)

/* Used by signal handlers. Only the thread that has set `writer` writes the file. */
static struct {
	char path[512];     /* "": not enabled */
	_Atomic int writer; /* thread id; 0: none yet */
	_Atomic bool written;
	/* The answer of one thread. */
	_Atomic int asked;    /* thread id; 0: none */
	_Atomic int n_frames; /* -1: not yet */
	void *frames[MAX_FRAMES];
	unsigned char alt_stack[ALT_STACK_BYTES]; /* of the main thread, whose stack may have overflowed */
} state;

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

int ct_stacks_signal(void)
{
	return SIGRTMIN + 7;
}

static int thread_id(void)
{
	return (int)syscall(SYS_gettid);
}

/* The address at which the signal has interrupted the thread, or NULL if it is not known on this architecture. */
static void *interrupted_at(const void *context)
{
#if defined(__x86_64__)
	return (void *)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (void *)((const ucontext_t *)context)->uc_mcontext.pc;
#else
	(void)context;
	return NULL;
#endif
}

/* Stores the backtrace of this thread in `frames`, without the frames of the signal handler. */
static int get_frames(void *frames[MAX_FRAMES], const void *context)
{
	int n = backtrace(frames, MAX_FRAMES), skip = 0;
	void *at = interrupted_at(context);

	for (int i = 0; i < n && at && skip == 0; i++)
		skip = frames[i] == at ? i : 0;
	memmove(frames, frames + skip, (size_t)(n - skip) * sizeof(*frames));
	return n - skip;
}

/* ---- writing, without the functions of stdio */

static void put(int fd, const char *text)
{
	size_t len = strlen(text);

	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

static void put_number(int fd, uint64_t v, unsigned base)
{
	char text[24];
	size_t i = sizeof(text);

	text[--i] = '\0';
	do {
		text[--i] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v > 0);
	put(fd, text + i);
}

static void put_thread(int fd, int tid, void *const *frames, int n)
{
	char name[32] = "", path[64] = "/proc/self/task/", digits[16];
	size_t at = strlen(path), k = sizeof(digits);
	int comm;
	unsigned v = (unsigned)tid;

	do
		digits[--k] = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	memcpy(path + at, digits + k, sizeof(digits) - k);
	memcpy(path + at + sizeof(digits) - k, "/comm", 6);
	comm = open(path, O_RDONLY | O_CLOEXEC);
	if (comm >= 0) {
		ssize_t got = read(comm, name, sizeof(name) - 1);

		name[got > 0 ? got : 0] = '\0';
		close(comm);
	}
	put(fd, "thread ");
	put_number(fd, (uint64_t)tid, 10);
	put(fd, " ");
	put(fd, name);
	if (!strchr(name, '\n'))
		put(fd, "\n");
	for (int i = 0; i < n; i++) {
		put(fd, "at ");
		put_number(fd, (uint64_t)(uintptr_t)frames[i], 16);
		put(fd, "\n");
	}
}

/* Copies the executable mappings. A path that is too long is truncated. */
static void put_maps(int fd)
{
	char line[1024], buf[4096];
	size_t len = 0;
	ssize_t n;
	int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	while (maps >= 0 && (n = read(maps, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] != '\n') {
				if (len < sizeof(line) - 2)
					line[len++] = buf[i];
				continue;
			}
			line[len++] = '\n';
			line[len] = '\0';
			if (strstr(line, " r-xp ")) {
				put(fd, "map ");
				put(fd, line);
			}
			len = 0;
		}
	}
	if (maps >= 0)
		close(maps);
}

/* ---- the other threads */

static void answer(int sig, siginfo_t *info, void *context)
{
	int keep = errno, me = thread_id();

	(void)sig;
	(void)info;
	if (atomic_compare_exchange_strong(&state.asked, &me, 0))
		atomic_store(&state.n_frames, get_frames(state.frames, context));
	errno = keep;
}

/* Returns false if the thread has begun to answer, but does not finish, so that no other thread can be asked. */
static bool ask(int fd, int tid, int *ms_left)
{
	const int least = *ms_left > ANSWER_OF_ONE_MS ? *ms_left - ANSWER_OF_ONE_MS : 0;

	atomic_store(&state.n_frames, -1);
	atomic_store(&state.asked, tid);
	if (syscall(SYS_tgkill, getpid(), tid, ct_stacks_signal()) != 0)
		return true;
	while (atomic_load(&state.n_frames) < 0) {
		int expected = tid;

		if (*ms_left <= least && atomic_compare_exchange_strong(&state.asked, &expected, 0))
			return true;
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		if (--*ms_left < least - ANSWER_MS)
			return false;
	}
	put_thread(fd, tid, state.frames, atomic_load(&state.n_frames));
	return true;
}

struct entry { /* of getdents64 */
	uint64_t inode;
	int64_t offset;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

static void put_other_threads(int fd, int own)
{
	_Alignas(8) char buf[4096];
	int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ms_left = ANSWER_MS;
	bool go_on = true;
	long n;

	while (dir >= 0 && go_on && (n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n && go_on;) {
			const struct entry *e = (const void *)(buf + at);
			int tid = 0;

			for (const char *c = e->name; *c >= '0' && *c <= '9'; c++)
				tid = tid * 10 + (*c - '0');
			if (tid > 0 && tid != own)
				go_on = ask(fd, tid, &ms_left);
			at += e->bytes;
		}
	}
	if (dir >= 0)
		close(dir);
}

static void write_file(const char *reason, uint64_t number, const void *context)
{
	void *frames[MAX_FRAMES];
	int fd = open(state.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int n = context ? get_frames(frames, context) : backtrace(frames, MAX_FRAMES), own = thread_id();

	if (fd < 0)
		return;
	put(fd, "reason ");
	put(fd, reason);
	if (number > 0)
		put_number(fd, number, 10);
	put(fd, "\n");
	put_thread(fd, own, frames, n);
	put_other_threads(fd, own);
	put_maps(fd);
	close(fd);
	atomic_store(&state.written, true);
}

static bool become_writer(void)
{
	int none = 0;

	return state.path[0] && atomic_compare_exchange_strong(&state.writer, &none, thread_id());
}

void ct_stacks_write(const char *reason)
{
	if (become_writer())
		write_file(reason, 0, NULL);
}

/* Counts its sleeps, as the writer does, because both take longer on a loaded machine. */
static void wait_for_writer(void)
{
	for (int ms = 0; ms < WRITE_MS && !atomic_load(&state.written); ms++)
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void die(int sig, siginfo_t *info, void *context)
{
	(void)info;
	if (become_writer())
		write_file("signal ", (uint64_t)sig, context);
	else if (atomic_load(&state.writer) != thread_id())
		wait_for_writer();
	/* Only now, because a crash of another thread would end the process while the file is being written. The
	 * default action takes effect when this function returns. */
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

static void handle(int sig, void (*fn)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO | flags}, old;

	sigfillset(&a.sa_mask);
	if (sigaction(sig, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
		(void)sigaction(sig, &a, NULL);
}

void ct_stacks_enable(const char *path)
{
	void *frames[1];

	if (strlen(path) >= sizeof(state.path))
		return;
	(void)backtrace(frames, 1); /* loads libgcc now, because a signal handler cannot load it */
	(void)sigaltstack(&(stack_t){.ss_sp = state.alt_stack, .ss_size = sizeof(state.alt_stack)}, NULL);
	memcpy(state.path, path, strlen(path) + 1);
	handle(ct_stacks_signal(), answer, SA_RESTART);
	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(*fatal_signals); i++)
		handle(fatal_signals[i], die, SA_ONSTACK);
}
