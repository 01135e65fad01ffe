/* Memory that processes share: a memfd, which has no name in a file system, so that the kernel releases the memory when
 * the last process that has mapped it ends. Other processes get its descriptor by inheritance, or open
 * /proc/PID/fd/FD. The functions set errno and no error message. */
#ifndef CT_BASE_SHARED_MEMORY_H
#define CT_BASE_SHARED_MEMORY_H

#include <stddef.h>

#include "base/status.h"

/* Creates zeroed memory, maps it, and returns it; *fd is its descriptor (close-on-exec). Pages are allocated at first
 * use. On failure, returns NULL, and *fd is -1. `name` is shown in /proc only. */
void *ct_shared_memory_create(const char *name, size_t bytes, int *fd);
/* Maps the memory of a descriptor, which may be closed afterwards. Returns NULL on failure. */
void *ct_shared_memory_map(int fd, size_t bytes);
/* Rounds up to a multiple of the system's page size, the unit in which memory is mapped. */
size_t ct_shared_memory_round_up(size_t bytes);
/* Fails with CT_NOMEM because `bytes` of shared memory could not be allocated, with a hint about the limit. err: errno
 */
enum ct_status ct_shared_memory_failed(size_t bytes, int err);

#endif
