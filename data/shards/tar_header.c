/* All fields come from untrusted files. A field is a number only if it contains nothing else; a sign, an overflow and
 * other characters are told apart, because messages differ. Old archives leave room for interpretation: checksums of
 * signed bytes, and directories that are only recognized by a slash at the end of their name. */
#include "data/shards/tar_header_impl.h"

#include <string.h>

#define SIZE_AT 124
#define SIZE_BYTES 12
#define SUM_AT 148
#define SUM_BYTES 8

bool ct__tar_all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i])
			return false;
	}
	return true;
}

static bool parse_octal(const uint8_t *f, size_t n, uint64_t *out)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < n && f[i] == ' ')
		i++;
	for (; i < n && f[i] >= '0' && f[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(f[i] - '0');
	*out = v;
	return i == n || f[i] == ' ' || f[i] == '\0';
}

bool ct__tar_checksum_right(const uint8_t block[CT_TAR_BLOCK])
{
	uint64_t want;
	int64_t sum = SUM_BYTES * ' ', sum_signed = SUM_BYTES * ' ';

	for (int i = 0; i < CT_TAR_BLOCK; i++) {
		if (i >= SUM_AT && i < SUM_AT + SUM_BYTES)
			continue;
		sum += block[i];
		sum_signed += (int8_t)block[i];
	}
	return parse_octal(block + SUM_AT, SUM_BYTES, &want) && ((int64_t)want == sum || (int64_t)want == sum_signed);
}

enum ct_tar_number ct__tar_size_field(const uint8_t block[CT_TAR_BLOCK], uint64_t *out)
{
	const uint8_t *f = block + SIZE_AT;
	uint64_t v = 0;

	if (!(f[0] & 0x80))
		return parse_octal(f, SIZE_BYTES, out) ? CT_TAR_NUMBER : CT_TAR_NO_NUMBER;
	if (f[0] & 0x40)
		return CT_TAR_NEGATIVE;
	for (int i = SIZE_BYTES - 8; i < SIZE_BYTES; i++)
		v = v << 8 | f[i];
	*out = v;
	return f[0] == 0x80 && ct__tar_all_zero(f + 1, SIZE_BYTES - 9) && v <= INT64_MAX ? CT_TAR_NUMBER
											 : CT_TAR_TOO_LARGE;
}

enum ct_tar_number ct__pax_number(const char *p, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return CT_TAR_NO_NUMBER;
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v))
			return CT_TAR_TOO_LARGE;
	}
	*out = v;
	return CT_TAR_NUMBER;
}

enum ct_tar_type ct__tar_type_of(uint8_t flag, const char *name, size_t n, bool *data)
{
	*data = !(flag >= '1' && flag <= '6');
	switch (flag) {
	case '\0':
	case '0':
	case '7':
		/* In archives older than POSIX, a directory is a file whose name ends in a slash. */
		return n > 0 && name[n - 1] == '/' ? CT_TAR_DIRECTORY : CT_TAR_FILE;
	case '1':
	case '2':
		return CT_TAR_LINK;
	case '5':
		return CT_TAR_DIRECTORY;
	default:
		return CT_TAR_OTHER;
	}
}

bool ct__pax_next(const char **p, const char *end, struct ct_pax_record *out)
{
	const char *at = *p, *is;
	size_t left = (size_t)(end - at), n = 0, i;

	for (i = 0; i < left && i < 8 && at[i] >= '0' && at[i] <= '9'; i++)
		n = 10 * n + (size_t)(at[i] - '0');
	if (i == 0 || i >= left || at[i] != ' ' || n > left || n < i + 2 || at[n - 1] != '\n')
		return false;
	is = memchr(at + i + 1, '=', n - i - 2);
	if (!is)
		return false;
	out->key = at + i + 1;
	out->n_key = (size_t)(is - out->key);
	out->value = is + 1;
	out->n_value = (size_t)(at + n - 1 - out->value);
	*p = at + n;
	return true;
}
