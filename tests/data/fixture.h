/* Helpers for the tests of data/: cmocka's headers, IDX files in memory, temporary directories. */
#ifndef CT_TESTS_DATA_FIXTURE_H
#define CT_TESTS_DATA_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"

#define assert_ok(expr)                                                                   \
	do {                                                                              \
		enum ct_status st_ = (expr);                                              \
		if (st_ < 0)                                                              \
			print_error("%s: %s\n", ct_status_name(st_), ct_error_message()); \
		assert_int_equal(st_, CT_OK);                                             \
	} while (0)

struct bytes {
	uint8_t *p; /* ct_free */
	size_t n;
};
struct bytes bytes_copy(const void *p, size_t n);
struct bytes bytes_join(struct bytes a, struct bytes b); /* borrows both */
void bytes_release(struct bytes *b);

/* Makes an IDX file: magic number, dims, then `size` bytes of body, with pixel i = (uint8_t)(7 * i + 3) or label i = i
 * % 10. */
struct bytes idx_images(uint32_t n, uint32_t h, uint32_t w);
struct bytes idx_labels(uint32_t n);
/* Compresses a to one gzip member. */
struct bytes gzip(struct bytes a);
/* Opens a data set of n images of h x w in memory. */
ct_dataset *open_images(uint32_t n, uint32_t h, uint32_t w);

/* Creates a directory and returns its path, which is owned. temp_dir_remove deletes the directory and frees the
 * path. */
char *temp_dir(void);
void temp_dir_remove(char *dir);
/* Returns an owned path in the shared test data ($CTRAIN_SHARED or ../shared). Prints a reason and returns NULL if the
 * data is missing. */
char *shared_path(const char *name);
/* Returns an owned path in the source tree. */
char *source_path(const char *name);
/* Returns the peak memory use of this process. */
size_t peak_rss_bytes(void);

#endif
