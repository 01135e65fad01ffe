/* EXIF orientation: reads the tag, and transforms boxes and pixels. Orientations are numbered as in the EXIF standard
 * (CIPA DC-008, 4.6.4 "Orientation"): 1 unchanged, 2 mirrored, 3 rotated by 180 degrees, 4 upside down, 5 transposed, 6
 * and 8 rotated by 90 degrees right and left, 7 transposed along the other diagonal. */
#ifndef CT_DATA_IMAGE_EXIF_IMPL_H
#define CT_DATA_IMAGE_EXIF_IMPL_H

#include "data/image/image.h"

/* Reads the orientation from the TIFF block, which starts with its byte order mark, after "Exif\0\0". Returns 1 if the
 * block is invalid or has no orientation, because an image should not be rejected for this. */
int ct__exif_orientation(const uint8_t *tiff, size_t n);
/* Returns whether an orientation exchanges width and height (5 to 8). */
bool ct__exif_swaps(int orientation);
/* Maps a box in the oriented image to the corresponding box in the stored image, which has w x h pixels. */
struct ct_box ct__exif_stored_box(int orientation, struct ct_box turned, int w, int h);
/* Maps a box in the stored image to the corresponding box in the oriented image. */
struct ct_box ct__exif_turned_box(int orientation, struct ct_box stored, int w, int h);
/* Applies the orientation to the RGBX pixels of src [h,w] and writes the result to dst. Rows of src are `pitch` bytes
 * apart. Rows of dst have no padding: they have 4 * w bytes, or 4 * h bytes if the orientation exchanges width and
 * height. */
void ct__exif_turn(int orientation, const uint8_t *src, size_t pitch, int w, int h, uint8_t *dst);

#endif
