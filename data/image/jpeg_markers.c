/* A single pass over the segments from the start to the first scan. Only lengths are trusted, and only after they have
 * been compared with the rest of the file, so damaged files end the search and what was found before remains. Like
 * libjpeg, bytes that belong to no marker are skipped, so both find the same segments. */
#include "data/image/jpeg_markers_impl.h"

#include <stdbool.h>
#include <string.h>

#define SOS 0xda
#define EOI 0xd9
#define DRI 0xdd
#define APP1 0xe1

static bool is_sof(int marker)
{
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* TEM, RSTn and SOI have no length. */
static bool stands_alone(int marker)
{
	return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

struct ct_jpeg_markers ct__jpeg_markers_find(const uint8_t *bytes, size_t n)
{
	struct ct_jpeg_markers m = {0};
	size_t at = 2;

	for (;;) {
		size_t length;
		int marker;

		/* Like libjpeg, skip invalid bytes before a marker. ff may be repeated. */
		while (at < n && bytes[at] != 0xff)
			at++;
		while (at < n && bytes[at] == 0xff)
			at++;
		if (at >= n)
			return m;
		marker = bytes[at++];
		if (marker == 0 || stands_alone(marker))
			continue;
		if (marker == EOI || n - at < 2)
			return m;
		length = (size_t)bytes[at] << 8 | bytes[at + 1];
		if (length < 2 || length > n - at)
			return m;
		if (is_sof(marker) && m.sof == 0) {
			m.sof = marker;
			m.frame = at + 2;
		}
		if (marker == DRI && length == 4)
			m.interval = (unsigned)bytes[at + 2] << 8 | bytes[at + 3];
		if (marker == SOS) {
			m.scan = at + 2;
			m.data = at + length;
			return m;
		}
		if (marker == APP1 && !m.exif && length >= 8 && memcmp(bytes + at + 2, "Exif\0\0", 6) == 0) {
			m.exif = bytes + at + 8;
			m.exif_bytes = length - 8;
		}
		at += length;
	}
}
