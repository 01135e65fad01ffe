#include "base/process/black_box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shared_memory.h"

/* Set before threads are started. */
static struct ct_black_box *box;
static _Atomic bool frozen;
static _Thread_local struct ct_box_thread *mine;

static struct ct_black_box *map_private(void)
{
	void *p = mmap(NULL, sizeof(*box), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

enum ct_status ct_black_box_create(int *fd, struct ct_black_box **out)
{
	*out = ct_shared_memory_create("ctrain-black-box", sizeof(**out), fd);
	return *out ? CT_OK : CT_FAIL(CT_NOMEM, "cannot create the black box of a rank: %s", strerror(errno));
}

void ct_black_box_destroy(int fd, struct ct_black_box *b)
{
	if (b)
		munmap(b, sizeof(*b));
	if (fd >= 0)
		close(fd);
}

void ct_black_box_join(const char *path)
{
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (box)
		return;
	box = fd >= 0 ? ct_shared_memory_map(fd, sizeof(*box)) : NULL;
	if (fd >= 0)
		close(fd);
	if (!box)
		box = map_private();
	if (box)
		atomic_store(&box->pid, (int64_t)getpid());
}

const struct ct_black_box *ct_black_box_own(void)
{
	return box;
}

void ct_black_box_freeze(void)
{
	atomic_store(&frozen, true);
}

static bool is_frozen(void)
{
	return atomic_load_explicit(&frozen, memory_order_relaxed);
}

void ct_box_phase(const char *fmt, ...)
{
	va_list ap;
	int64_t n;

	if (!box || is_frozen())
		return;
	n = atomic_load_explicit(&box->n_phases, memory_order_relaxed) + 1;
	va_start(ap, fmt);
	vsnprintf(box->phase[n % 2], CT_BOX_PHASE, fmt, ap);
	va_end(ap);
	atomic_store_explicit(&box->n_phases, n, memory_order_release);
}

const char *ct_box_phase_of(const struct ct_black_box *b)
{
	return b->phase[atomic_load_explicit(&b->n_phases, memory_order_acquire) % 2];
}

void ct_box_thread_enter(void)
{
	for (int i = 0; box && !mine && !is_frozen() && i < CT_BOX_THREADS; i++) {
		int64_t unused = 0;

		if (atomic_compare_exchange_strong(&box->threads[i].tid, &unused, (int64_t)syscall(SYS_gettid)))
			mine = &box->threads[i];
	}
	ct_box_doing(CT_DOING_WAIT, 0);
}

void ct_box_thread_leave(void)
{
	if (mine && !is_frozen())
		atomic_store(&mine->tid, 0);
	mine = NULL;
}

void ct_box_doing(enum ct_doing doing, int64_t number)
{
	if (!mine || is_frozen())
		return;
	atomic_store_explicit(&mine->doing, doing, memory_order_relaxed);
	atomic_store_explicit(&mine->number, number, memory_order_relaxed);
	atomic_store_explicit(&mine->since_ns, ct_now_ns(), memory_order_relaxed);
}

void ct_box_number(int64_t number)
{
	if (mine && !is_frozen())
		atomic_store_explicit(&mine->number, number, memory_order_relaxed);
}

void *ct_box_area_take(size_t bytes)
{
	/* Prefers areas that have never been used, to keep the contents of the others. */
	for (int64_t was = 0; box && bytes <= CT_BOX_AREA_BYTES && was <= 2; was += 2) {
		for (int i = 0; i < CT_BOX_AREAS; i++) {
			int64_t expected = was;

			if (!atomic_compare_exchange_strong(&box->areas[i].used, &expected, 1))
				continue;
			if (was != 0)
				memset(box->areas[i].data, 0, CT_BOX_AREA_BYTES);
			return box->areas[i].data;
		}
	}
	return NULL;
}

bool ct_box_area_return(void *p)
{
	for (int i = 0; box && p && i < CT_BOX_AREAS; i++) {
		if (p == box->areas[i].data) {
			atomic_store(&box->areas[i].used, 2);
			return true;
		}
	}
	return false;
}
