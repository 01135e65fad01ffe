/* Like fuzz_jpeg.c, for PNG. Checksums of chunks are corrected, because otherwise hardly anything but the checksum test
 * would run. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <zlib.h>

#include "tests/fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t big_endian(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Chunks are length, type, contents, checksum of the two. */
static void mend(uint8_t *file, size_t n)
{
	for (size_t at = 8; n - at >= 12;) {
		uint32_t length = big_endian(file + at), crc;

		if (length > n - at - 12)
			return;
		crc = (uint32_t)crc32(0, file + at + 4, length + 4);
		at += 8 + length;
		for (int i = 0; i < 4; i++)
			file[at++] = (uint8_t)(crc >> (24 - 8 * i));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_image(data, size, "\x89PNG\r\n\x1a\n", 8, mend);
}
