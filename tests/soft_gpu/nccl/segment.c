/* The memory that the ranks of a communicator share. It is a file without a name, which the process of the unique id
 * has open and the others open in /proc. The system releases it with its last process, however that one ends. A lock of
 * the open file shows whether a rank's process exists. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

enum { MAX_CREATED = 256, HEADER_BYTES = (sizeof(struct soft__segment) + 4095) / 4096 * 4096 };

static const char id_magic[16] = "soft nccl id 1";

struct id {
	char magic[16];
	int pid, fd;
	uint64_t nonce;
};
_Static_assert(sizeof(struct id) <= NCCL_UNIQUE_ID_BYTES, "");

static struct {
	int n;
	struct {
		int fd;
		uint64_t nonce;
	} files[MAX_CREATED];
} created;

static size_t total_bytes(void)
{
	return HEADER_BYTES + (size_t)SOFT__MAX_RANKS * SOFT__SLOT_BYTES +
	       (size_t)SOFT__MAX_RANKS * SOFT__MAX_RANKS * SOFT__PAIR_BYTES;
}

char *soft__slot(struct soft__segment *s, int rank)
{
	return (char *)s + HEADER_BYTES + (size_t)rank * SOFT__SLOT_BYTES;
}

char *soft__pair_data(struct soft__segment *s, int from, int to)
{
	return soft__slot(s, SOFT__MAX_RANKS) + (size_t)(from * SOFT__MAX_RANKS + to) * SOFT__PAIR_BYTES;
}

ncclResult_t soft__segment_create(ncclUniqueId *out)
{
	struct id id = {.pid = getpid()};
	ncclResult_t e = ncclSystemError;

	memcpy(id.magic, id_magic, sizeof(id_magic));
	id.fd = memfd_create("soft_nccl", MFD_CLOEXEC);
	if (id.fd < 0) {
		soft__warn("memfd_create failed");
		return e;
	}
	if (getrandom(&id.nonce, sizeof(id.nonce), 0) != sizeof(id.nonce) || ftruncate(id.fd, (off_t)total_bytes()) ||
	    pwrite(id.fd, &id.nonce, sizeof(id.nonce), 0) != sizeof(id.nonce)) {
		soft__warn("creating shared memory failed");
		close(id.fd);
		return e;
	}
	if (created.n == MAX_CREATED)
		soft_gpu_fail("nccl: more than %d unique ids that not all ranks have used", MAX_CREATED);
	created.files[created.n].fd = id.fd;
	created.files[created.n++].nonce = id.nonce;
	memset(out, 0, sizeof(*out));
	memcpy(out->internal, &id, sizeof(id));
	return ncclSuccess;
}

void soft__segment_complete(const struct soft__segment *s)
{
	for (int i = 0; i < created.n; i++) {
		if (created.files[i].nonce != s->nonce)
			continue;
		close(created.files[i].fd);
		created.files[i] = created.files[--created.n];
		return;
	}
}

static struct soft__segment *map(int fd, uint64_t nonce)
{
	struct soft__segment *s;
	uint64_t found = 0;

	if (pread(fd, &found, sizeof(found), 0) != sizeof(found) || found != nonce)
		return NULL;
	s = mmap(NULL, total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return s == MAP_FAILED ? NULL : s;
}

static struct flock lock_of(int rank)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

static ncclResult_t take_rank(struct soft__segment *s, int fd, int n_ranks, int rank)
{
	struct flock lock = lock_of(rank);
	int others = 0;

	if (!atomic_compare_exchange_strong(&s->n_ranks, &others, n_ranks) && others != n_ranks) {
		soft__report("rank %d joins a communicator of %d ranks, the others one of %d", rank, n_ranks, others);
		return ncclInvalidUsage;
	}
	if (fcntl(fd, F_OFD_SETLK, &lock) != 0 || s->members[rank].joined) {
		soft__report("rank %d joins twice", rank);
		return ncclInvalidUsage;
	}
	return ncclSuccess;
}

ncclResult_t soft__segment_join(const ncclUniqueId *from, int n_ranks, int rank, struct soft__segment **out, int *fd)
{
	struct id id;
	char path[64];
	ncclResult_t e = ncclSystemError;

	memcpy(&id, from->internal, sizeof(id));
	if (memcmp(id.magic, id_magic, sizeof(id_magic)) != 0) {
		soft__warn("the unique id was not made by ncclGetUniqueId of this library");
		return ncclInvalidArgument;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", id.pid, id.fd);
	*fd = open(path, O_RDWR | O_CLOEXEC);
	*out = *fd < 0 ? NULL : map(*fd, id.nonce);
	if (*out)
		e = take_rank(*out, *fd, n_ranks, rank);
	else
		soft__warn("the process %d, which made the unique id, has ended or all ranks have joined", id.pid);
	if (e == ncclSuccess)
		return e;
	if (*out)
		munmap(*out, total_bytes());
	if (*fd >= 0)
		close(*fd);
	*out = NULL;
	return e;
}

void soft__segment_leave(struct soft__segment *s, int fd, int rank)
{
	s->members[rank].left = 1;
	munmap(s, total_bytes());
	close(fd);
}

bool soft__is_lost(int fd, int rank)
{
	struct flock lock = lock_of(rank);

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}
