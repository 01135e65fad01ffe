#include "base/shared_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

void *ct_shared_memory_map(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

void *ct_shared_memory_create(const char *name, size_t bytes, int *fd)
{
	void *p = NULL;

	/* Some kernels require MFD_NOEXEC_SEAL, because they refuse executable memfds. Older kernels do not know the
	 * flag. */
	*fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (*fd < 0 && errno == EINVAL)
		*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
		p = ct_shared_memory_map(*fd, bytes);
	if (!p && *fd >= 0) {
		const int reason = errno;

		close(*fd);
		*fd = -1;
		errno = reason;
	}
	return p;
}

size_t ct_shared_memory_round_up(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

enum ct_status ct_shared_memory_failed(size_t bytes, int err)
{
	CT_FAIL(CT_NOMEM, "cannot allocate %zu MiB of shared memory: %s", (bytes >> 20) + 1, strerror(err));
	if (err == EFBIG)
		return ct_error_hint("the limit on file sizes (ulimit -f) also applies to shared memory: raise it");
	if (err == EMFILE || err == ENFILE)
		return ct_error_hint("raise the limit on open files (ulimit -n)");
	return ct_error_hint("free memory, or raise this container's memory limit");
}
