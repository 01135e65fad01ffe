/* The owner creates a memfd, maps it, allocates the pages that must not fail later, fills in the head, and last writes
 * "PID FD NONCE BYTES" to the store. Whoever reads this name thus finds a complete segment. The others open
 * /proc/PID/fd/FD and compare the head with the name, because PID or FD may belong to another process or file by then.
 * The owner must keep the descriptor open until all ranks have opened the segment. There is no name in a file system,
 * so the kernel releases the memory when the last process unmaps it or ends. */
#include "dist/comm/segment_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/shared_memory.h"
#include "dist/comm/comm_impl.h"

#define MAGIC 0x6d68736e72617274

static enum ct_status create(ct_comm *c, const char *key, size_t bytes, size_t reserved, struct ct_segment *out)
{
	struct ct_segment_head *head;
	char text[96];
	uint64_t nonce;

	out->map = ct_shared_memory_create("ctrain", bytes, &out->fd);
	out->bytes = bytes;
	if (!out->map)
		return ct_shared_memory_failed(bytes, errno);
	if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		return CT_FAIL(CT_IO, "cannot get random bytes: %s", strerror(errno));
	if (fallocate(out->fd, 0, 0, (off_t)reserved) != 0)
		return ct_shared_memory_failed(reserved, errno);
	head = (struct ct_segment_head *)out->map;
	*head = (struct ct_segment_head){.magic = MAGIC, .nonce = nonce, .bytes = bytes};
	snprintf(text, sizeof(text), "%d %d %" PRIu64 " %zu", (int)getpid(), out->fd, nonce, bytes);
	return ct_store_set(c->world->store, key, text, strlen(text));
}

static enum ct_status open_failed(ct_comm *c, int owner, int pid, int err)
{
	char who[128];

	ct__comm_peer_text(c, owner, who, sizeof(who));
	if (err == ENOENT)
		return ct__comm_caused_by(
			c, owner, CT_FAIL(CT_PEER_LOST, "%s ended before its shared memory could be opened", who));
	CT_FAIL(CT_UNSUPPORTED, "cannot open the shared memory of %s: /proc/%d/fd: %s", who, pid, strerror(err));
	return ct_error_hint(
		"the ranks of a host must run as the same user and share /proc; otherwise, set dist.backend=gloo");
}

static enum ct_status attach(ct_comm *c, const char *key, int owner, size_t bytes, int64_t limit_ns,
			     struct ct_segment *out)
{
	const struct ct_segment_head *head;
	char path[64], who[128], *text = NULL;
	enum ct_status st;
	uint64_t nonce;
	struct stat sb;
	size_t len, its_bytes;
	int pid, fd, n;

	st = ct_store_get(c->world->store, key, ct_deadline_in(limit_ns), &text, &len);
	if (st == CT_TIMEOUT) {
		ct__comm_peer_text(c, owner, who, sizeof(who));
		CT_FAIL(CT_TIMEOUT, "%s has not made its shared memory available within %.1f s; it may be stopped", who,
			(double)limit_ns / 1e9);
		return ct__comm_caused_by(c, owner, CT_TIMEOUT);
	}
	CT_TRY(st);
	n = sscanf(text, "%d %d %" SCNu64 " %zu", &pid, &fd, &nonce, &its_bytes);
	ct_free(text);
	if (n != 4 || its_bytes != bytes)
		return CT_FAIL(CT_MISMATCH,
			       "ranks disagree on the layout of shared memory: they must run the same build of ctrain");
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	out->fd = open(path, O_RDWR | O_CLOEXEC);
	if (out->fd < 0)
		return open_failed(c, owner, pid, errno);
	if (fstat(out->fd, &sb) != 0 || sb.st_size < (off_t)bytes)
		return open_failed(c, owner, pid, ENOENT);
	out->map = ct_shared_memory_map(out->fd, bytes);
	out->bytes = bytes;
	if (!out->map)
		return CT_FAIL(CT_NOMEM, "cannot map %zu MiB of shared memory: %s", bytes >> 20, strerror(errno));
	head = (const struct ct_segment_head *)out->map;
	/* Otherwise the pid or the descriptor now belongs to another process or file. */
	if (head->magic != MAGIC || head->nonce != nonce || head->bytes != bytes)
		return open_failed(c, owner, pid, ENOENT);
	return CT_OK;
}

static enum ct_status close_after(enum ct_status st, struct ct_segment *s)
{
	if (st < 0)
		ct__segment_close(s);
	return st;
}

enum ct_status ct__segment_create(ct_comm *c, const char *key, size_t bytes, size_t reserved, struct ct_segment *out)
{
	*out = (struct ct_segment){.fd = -1};
	return close_after(create(c, key, bytes, reserved, out), out);
}

enum ct_status ct__segment_attach(ct_comm *c, const char *key, int owner, size_t bytes, int64_t limit_ns,
				  struct ct_segment *out)
{
	*out = (struct ct_segment){.fd = -1};
	return close_after(attach(c, key, owner, bytes, limit_ns, out), out);
}

void ct__segment_close(struct ct_segment *s)
{
	if (s->map)
		munmap(s->map, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct ct_segment){.fd = -1};
}
