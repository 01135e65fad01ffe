/* The clock is CLOCK_MONOTONIC less the time for which it was halted. Its complete state is one 64-bit atomic number,
 * which the processes of a job share, so that a reader never sees a half-changed state and needs no lock. If the number
 * is not negative, the clock runs, and the number is how far it is behind CLOCK_MONOTONIC. If it is negative, the clock
 * is halted at the time -number - 1. Halting and resuming are not atomic, which is why only one thread of one process
 * may call them. Every deadline in ctrain is a time on this clock; code that waits with the system's clock has to add
 * ct_clock_halted_ns, and to look again after the wait (ct_cond_wait_until). */
#include "base/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * CT_SEC + ts.tv_nsec;
}

/* The state of the clock, which several processes may map. The pointer is atomic, because a launcher may have threads
 * when it moves its clock. */
static _Atomic int64_t of_process;
static _Atomic(_Atomic int64_t *) place = &of_process;

static _Atomic int64_t *state(void)
{
	return atomic_load_explicit(&place, memory_order_acquire);
}

int64_t ct_now_ns(void)
{
	int64_t now = read_clock(CLOCK_MONOTONIC), behind = atomic_load(state());

	return behind < 0 ? -behind - 1 : now - behind;
}

int64_t ct_clock_halted_ns(void)
{
	int64_t behind = atomic_load(state());

	return behind < 0 ? read_clock(CLOCK_MONOTONIC) + behind + 1 : behind;
}

void ct_clock_move(int64_t *shared)
{
	*shared = atomic_load(state());
	ct_clock_attach(shared);
}

void ct_clock_attach(const int64_t *shared)
{
	atomic_store_explicit(&place, (_Atomic int64_t *)(uintptr_t)shared, memory_order_release);
}

void ct_clock_halt(void)
{
	if (atomic_load(state()) >= 0)
		atomic_store(state(), -ct_now_ns() - 1);
}

void ct_clock_resume(void)
{
	if (atomic_load(state()) < 0)
		atomic_store(state(), read_clock(CLOCK_MONOTONIC) - ct_now_ns());
}

int64_t ct_deadline_in(int64_t span_ns)
{
	int64_t at;

	if (__builtin_add_overflow(ct_now_ns(), span_ns, &at))
		return CT_FOREVER;
	return at;
}

int ct_deadline_poll_ms(int64_t deadline_ns)
{
	int64_t left, ms;

	if (deadline_ns == CT_FOREVER)
		return -1;
	if (__builtin_sub_overflow(deadline_ns, ct_now_ns(), &left) || left <= 0)
		return 0;
	ms = left / CT_MS + (left % CT_MS != 0);
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

int64_t ct_backoff_ns(struct ct_backoff *b)
{
	const int64_t pause_ns = b->next_ns;

	b->next_ns = pause_ns < b->max_ns / 2 ? pause_ns * 2 : b->max_ns;
	return pause_ns;
}

int64_t ct_process_start_ns(void)
{
	char buf[1024];
	int64_t now = ct_now_ns(), boot = read_clock(CLOCK_BOOTTIME), ticks_per_s = sysconf(_SC_CLK_TCK), start;
	ssize_t n = -1;
	char *p, *end;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
	}
	if (n <= 0 || ticks_per_s <= 0)
		return now;
	buf[n] = '\0';
	/* Field 22 is the start time in ticks since boot. Field 2, the program's name, may contain any character, even
	 * ')'. */
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return now;
	start = strtoll(p, &end, 10);
	if (end == p || start < 0 || start > INT64_MAX / CT_SEC)
		return now;
	start = now - (boot - start * (CT_SEC / ticks_per_s));
	return start < now ? start : now;
}

double ct_wall_seconds(void)
{
	return (double)read_clock(CLOCK_REALTIME) / (double)CT_SEC;
}
