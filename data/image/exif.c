/* An orientation is a transposition or none, followed by mirroring of columns, rows or both in the stored image. All
 * functions use these three bits, so boxes and pixels agree. The TIFF block is read with bounds checks in either byte
 * order; only the first directory is looked at. Anything invalid gives orientation 1, because an image must not be lost
 * for a damaged tag. */
#include "data/image/exif_impl.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3

/* The directions that stored columns and rows have in the oriented image. */
static bool mirrors_x(int orientation)
{
	return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool mirrors_y(int orientation)
{
	return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

bool ct__exif_swaps(int orientation)
{
	return orientation >= 5;
}

static uint32_t number(const uint8_t *p, int bytes, bool big)
{
	uint32_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[big ? i : bytes - 1 - i];
	return v;
}

int ct__exif_orientation(const uint8_t *tiff, size_t n)
{
	size_t ifd, entries;
	bool big;

	if (n < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
		return 1;
	big = tiff[0] == 'M';
	ifd = number(tiff + 4, 4, big);
	if (ifd > n - 2)
		return 1;
	entries = number(tiff + ifd, 2, big);
	for (size_t at = ifd + 2; entries > 0 && n - at >= 12; at += 12, entries--) {
		uint32_t value = number(tiff + at + 8, 2, big);

		if (number(tiff + at, 2, big) != TAG_ORIENTATION)
			continue;
		if (number(tiff + at + 2, 2, big) != TYPE_SHORT || number(tiff + at + 4, 4, big) != 1 || value < 1 ||
		    value > 8)
			return 1;
		return (int)value;
	}
	return 1;
}

struct ct_box ct__exif_stored_box(int orientation, struct ct_box turned, int w, int h)
{
	struct ct_box b = turned;

	if (ct__exif_swaps(orientation))
		b = (struct ct_box){turned.y, turned.x, turned.h, turned.w};
	if (mirrors_x(orientation))
		b.x = w - b.x - b.w;
	if (mirrors_y(orientation))
		b.y = h - b.y - b.h;
	return b;
}

struct ct_box ct__exif_turned_box(int orientation, struct ct_box stored, int w, int h)
{
	struct ct_box b = stored;

	if (mirrors_x(orientation))
		b.x = w - b.x - b.w;
	if (mirrors_y(orientation))
		b.y = h - b.y - b.h;
	return ct__exif_swaps(orientation) ? (struct ct_box){b.y, b.x, b.h, b.w} : b;
}

void ct__exif_turn(int orientation, const uint8_t *src, size_t pitch, int w, int h, uint8_t *dst)
{
	bool swaps = ct__exif_swaps(orientation), mx = mirrors_x(orientation), my = mirrors_y(orientation);
	int out_w = swaps ? h : w, out_h = swaps ? w : h;

	for (int y = 0; y < out_h; y++) {
		for (int x = 0; x < out_w; x++, dst += 4) {
			int sx = swaps ? y : x, sy = swaps ? x : y;

			sx = mx ? w - 1 - sx : sx;
			sy = my ? h - 1 - sy : sy;
			memcpy(dst, src + (size_t)sy * pitch + (size_t)sx * 4, 4);
		}
	}
}
