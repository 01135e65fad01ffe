/* Tars made in memory, right ones and odd ones. */
#ifndef CT_TESTS_DATA_TAR_FIXTURE_H
#define CT_TESTS_DATA_TAR_FIXTURE_H

#include "tests/data/fixture.h"

#include "data/shards/shard_index.h"

enum tar_format { TAR_V7, TAR_USTAR, TAR_GNU };

/* A header block: size as octal, checksum right. name is cut after 100 bytes. */
void tar_header(uint8_t block[512], enum tar_format format, const char *name, char type, uint64_t size);
void tar_checksum(uint8_t block[512]);

/* Each appends to t. */
void tar_raw(struct bytes *t, const void *p, size_t n);
void tar_member(struct bytes *t, const char *name, const void *data, size_t n);
void tar_text(struct bytes *t, const char *name, const char *text);
void tar_typed(struct bytes *t, enum tar_format format, const char *name, char type, const void *data, size_t n);
/* A PAX record into text: "LENGTH key=value\n". */
char *pax_record(const char *key, const char *value);
void tar_end(struct bytes *t);
/* KEY.jpg with n bytes that begin like a JPEG and depend on label, and KEY.cls. */
void tar_sample(struct bytes *t, const char *key, int label, size_t n);

void file_write(const char *dir, const char *name, const void *p, size_t n);
void text_write(const char *dir, const char *name, const char *text);
/* A shard with samples "PREFIX000", ... label first, first + 1, ... into dir/name. */
void shard_write(const char *dir, const char *name, const char *prefix, int n, int first);

/* A shard of five samples k000 ... in a directory of its own, and where its index is kept. */
struct shard_place {
	char *dir, *shard, *kept;
};
struct shard_place shard_place_make(void);
void shard_place_remove(struct shard_place *p);
/* Its index comes from there and has n samples. */
void expect_open(const struct shard_place *p, enum ct_shard_source want, uint32_t n);
void expect_indexed(const struct ct_shard_index *x, uint32_t i, const char *key, int label, uint32_t size);

#endif
