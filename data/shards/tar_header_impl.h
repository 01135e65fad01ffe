/* Pure functions that parse the fields of a tar header block and the records of a PAX header. */
#ifndef CT_DATA_SHARDS_TAR_HEADER_IMPL_H
#define CT_DATA_SHARDS_TAR_HEADER_IMPL_H

#include "data/shards/tar.h"

bool ct__tar_all_zero(const uint8_t *p, size_t n);
/* Returns whether the stored checksum is the sum of the bytes, either as unsigned or, for old tar files from Sun, as
 * signed bytes. */
bool ct__tar_checksum_right(const uint8_t block[CT_TAR_BLOCK]);

enum ct_tar_number { CT_TAR_NUMBER, CT_TAR_NO_NUMBER, CT_TAR_NEGATIVE, CT_TAR_TOO_LARGE };
/* Parses the size field. It contains octal digits surrounded by spaces (no digits mean 0) or, in GNU's base-256
 * format, a byte 0x80 and a big-endian number. */
enum ct_tar_number ct__tar_size_field(const uint8_t block[CT_TAR_BLOCK], uint64_t *out);
/* Parses decimal digits only; an empty string is 0. */
enum ct_tar_number ct__pax_number(const char *p, size_t n, uint64_t *out);

/* Returns the type of the member, which depends on its type flag and, if necessary, its name. Sets *data to true if the
 * archive contains data for the member, else to false. Links, directories and devices may have a size (that of another
 * file) but no data. */
enum ct_tar_type ct__tar_type_of(uint8_t flag, const char *name, size_t n, bool *data);

/* A record "LENGTH key=value\n"; LENGTH is the length of the complete record. */
struct ct_pax_record {
	const char *key, *value;
	size_t n_key, n_value;
};
/* Parses the record at *p and moves *p past it. Returns false if the length, the newline or the "=" is missing or in
 * the wrong place. */
bool ct__pax_next(const char **p, const char *end, struct ct_pax_record *out);

#endif
