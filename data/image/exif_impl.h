/* EXIF orientation: reads the tag, and turns windows and pixels by it. Numbers as in the EXIF standard (CIPA DC-008,
 * 4.6.4 "Orientation"): 1 as it is, 2 mirrored, 3 half a turn, 4 upside down, 5 transposed, 6 and 8 a quarter turn
 * right and left, 7 transposed along the other diagonal. */
#ifndef CT_DATA_IMAGE_EXIF_IMPL_H
#define CT_DATA_IMAGE_EXIF_IMPL_H

#include "data/image/image.h"

/* tiff: the block from its byte order mark on, without "Exif\0\0". 1 where there is no orientation or the block is
 * broken: pictures are not refused for that. */
int ct__exif_orientation(const uint8_t *tiff, size_t n);
/* Orientations 5 to 8 exchange width and height. */
bool ct__exif_swaps(int orientation);
/* Where a window of the turned image lies in the stored one of w x h. */
struct ct_box ct__exif_stored_box(int orientation, struct ct_box turned, int w, int h);
/* The same backwards. */
struct ct_box ct__exif_turned_box(int orientation, struct ct_box stored, int w, int h);
/* Turns RGBX pixels [h,w] with rows of `pitch` bytes into dst, whose rows are tight (4 bytes times h or w). */
void ct__exif_turn(int orientation, const uint8_t *src, size_t pitch, int w, int h, uint8_t *dst);

#endif
