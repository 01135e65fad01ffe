#include "trainer/job/step_board.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/shared_memory.h"

static size_t size_of(int n)
{
	return (size_t)n * sizeof(struct ct_step_count);
}

enum ct_status ct_step_board_join(int fd, int n, struct ct_step_count **out)
{
	*out = ct_shared_memory_map(fd, size_of(n));
	return *out ? CT_OK : CT_FAIL(CT_NOMEM, "cannot map the step counts of the ranks: %s", strerror(errno));
}

enum ct_status ct_step_board_create(int n, struct ct_step_count **out, int *fd)
{
	*out = ct_shared_memory_create("ctrain-steps", size_of(n), fd);
	return *out ? CT_OK : CT_FAIL(CT_NOMEM, "cannot create the step counts of the ranks: %s", strerror(errno));
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
