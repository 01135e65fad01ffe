/* A pool of open files. To keep the process below its limit on open files, the pool closes the least recently used
 * file. Any number of threads may use a pool. */
#ifndef CT_DATA_FILES_FILE_POOL_H
#define CT_DATA_FILES_FILE_POOL_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

typedef struct ct_file_pool ct_file_pool;

/* Borrows paths [n]. max_open is the maximum number of open files; 0: half of the descriptors still available under
 * RLIMIT_NOFILE, but at most 1024. */
enum ct_status ct_file_pool_create(char *const *paths, uint32_t n, uint32_t max_open, ct_file_pool **out) CT_MUST_CHECK;
void ct_file_pool_destroy(ct_file_pool *p);
/* Returns in *fd a descriptor of file i, which stays open until ct_file_pool_put is called. Fails with CT_DATA if the
 * file no longer exists, and with CT_IO for other errors. */
enum ct_status ct_file_pool_get(ct_file_pool *p, uint32_t i, int *fd) CT_MUST_CHECK;
void ct_file_pool_put(ct_file_pool *p, uint32_t i);

#endif
