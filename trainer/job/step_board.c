#include "trainer/job/step_board.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t size_of(int n)
{
	return (size_t)n * sizeof(struct ct_step_count);
}

enum ct_status ct_step_board_join(int fd, int n, struct ct_step_count **out)
{
	void *p = mmap(NULL, size_of(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return CT_FAIL(CT_NOMEM, "cannot map the step counts of the ranks: %s", strerror(errno));
	*out = p;
	return CT_OK;
}

enum ct_status ct_step_board_create(int n, struct ct_step_count **out, int *fd)
{
	enum ct_status st;

	*fd = memfd_create("ctrain-steps", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)size_of(n)) != 0)
		st = CT_FAIL(CT_NOMEM, "cannot create the step counts of the ranks: %s", strerror(errno));
	else
		st = ct_step_board_join(*fd, n, out);
	if (st < 0 && *fd >= 0)
		close(*fd);
	return st;
}

void ct_step_board_release(struct ct_step_count *b, int n)
{
	if (b)
		munmap(b, size_of(n));
}

void ct_step_board_clear(struct ct_step_count *b, int n)
{
	for (int i = 0; i < n; i++) {
		atomic_store(&b[i].begun, 0);
		atomic_store(&b[i].regroup, false);
		atomic_store(&b[i].regrouped, false);
	}
}
