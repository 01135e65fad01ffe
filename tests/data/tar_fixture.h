/* Makes valid and unusual tar files in memory. */
#ifndef CT_TESTS_DATA_TAR_FIXTURE_H
#define CT_TESTS_DATA_TAR_FIXTURE_H

#include "tests/data/fixture.h"

#include "data/shards/shard_index.h"

enum tar_format { TAR_V7, TAR_USTAR, TAR_GNU };

/* Makes a header block with an octal size and a valid checksum. The name is truncated after 100 bytes. */
void tar_header(uint8_t block[512], enum tar_format format, const char *name, char type, uint64_t size);
void tar_checksum(uint8_t block[512]);

/* The functions below that take t append to it. */
void tar_raw(struct bytes *t, const void *p, size_t n);
void tar_member(struct bytes *t, const char *name, const void *data, size_t n);
void tar_text(struct bytes *t, const char *name, const char *text);
void tar_typed(struct bytes *t, enum tar_format format, const char *name, char type, const void *data, size_t n);
/* Returns the PAX record "LENGTH key=value\n". */
char *pax_record(const char *key, const char *value);
void tar_end(struct bytes *t);
/* Appends KEY.jpg, whose n bytes begin like a JPEG file and depend on the label, and KEY.cls with the label. */
void tar_sample(struct bytes *t, const char *key, int label, size_t n);

void file_write(const char *dir, const char *name, const void *p, size_t n);
void text_write(const char *dir, const char *name, const char *text);
/* Writes a shard to dir/name with n samples, whose keys are "PREFIX000", ... and whose labels are first, first + 1,
 * ... */
void shard_write(const char *dir, const char *name, const char *prefix, int n, int first);

/* A shard in a separate directory, with five samples whose keys are k000, ..., and the path of its cached index. */
struct shard_place {
	char *dir, *shard, *kept;
};
struct shard_place shard_place_make(void);
void shard_place_remove(struct shard_place *p);
/* Checks that the shard's index comes from this source and has n samples. */
void expect_open(const struct shard_place *p, enum ct_shard_source want, uint32_t n);
void expect_indexed(const struct ct_shard_index *x, uint32_t i, const char *key, int label, uint32_t size);

#endif
