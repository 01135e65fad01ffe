/* What the tests of data/ share: cmocka's headers, IDX bytes made in memory, temporary directories. */
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

/* IDX file: magic, dims, then size bytes of body, pixel i = (uint8_t)(7 * i + 3) or label i = i % 10. */
struct bytes idx_images(uint32_t n, uint32_t h, uint32_t w);
struct bytes idx_labels(uint32_t n);
/* One gzip member of a. */
struct bytes gzip(struct bytes a);
/* The data set of n images of h x w from memory. */
ct_dataset *open_images(uint32_t n, uint32_t h, uint32_t w);

/* New directory, returns owned; temp_dir_remove deletes and frees it. */
char *temp_dir(void);
void temp_dir_remove(char *dir);
/* Path in the shared test data ($CTRAIN_SHARED or ../shared), returns owned; NULL after printing why when absent. */
char *shared_path(const char *name);
/* Path in the project's own tree, returns owned. */
char *source_path(const char *name);
/* Most memory this process ever held. */
size_t peak_rss_bytes(void);

#endif
