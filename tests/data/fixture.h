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
	uint8_t *p; /* freed with ct_free */
	size_t n;
};
struct bytes bytes_copy(const void *p, size_t n);
struct bytes bytes_join(struct bytes a, struct bytes b); /* borrows both */
void bytes_release(struct bytes *b);

/* Make an IDX file in memory: the magic number, the dimensions and the content. Byte i of the pixels is (uint8_t)(7 * i
 * + i / 256 + 3), and label i is i % 10. */
struct bytes idx_images(uint32_t n, uint32_t h, uint32_t w);
struct bytes idx_labels(uint32_t n);
/* Compresses `a` into one gzip member. */
struct bytes gzip(struct bytes a);
/* Opens a data set of n images of h x w in memory. */
ct_dataset *open_images(uint32_t n, uint32_t h, uint32_t w);

/* Creates a temporary directory and returns its path, which the caller owns. temp_dir_remove deletes the directory and
 * frees the path. */
char *temp_dir(void);
void temp_dir_remove(char *dir);
/* Returns the path, owned by the caller, of a file in the shared test data ($CTRAIN_SHARED or ../shared). If the data
 * is missing, prints the reason and returns NULL. */
char *shared_path(const char *name);
/* Returns the path, owned by the caller, of a file in the source tree. */
char *source_path(const char *name);
/* Returns the peak resident memory of this process. */
size_t peak_rss_bytes(void);

#endif
