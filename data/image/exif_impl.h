/* EXIF orientation: reads the tag, and transforms boxes and pixels. Orientations are numbered as in the EXIF standard
 * (CIPA DC-008, 4.6.4 "Orientation"): 1 unchanged, 2 mirrored, 3 rotated by 180 degrees, 4 upside down, 5 transposed, 6
 * and 8 rotated by 90 degrees right and left, 7 transposed along the other diagonal. */
#ifndef CT_DATA_IMAGE_EXIF_IMPL_H
#define CT_DATA_IMAGE_EXIF_IMPL_H

#include "data/image/image.h"

/* Reads the orientation from the TIFF block, which starts with its byte order mark, after "Exif\0\0". Returns 1 if the
 * block is invalid or has no orientation: this is no reason to refuse an image. */
int ct__exif_orientation(const uint8_t *tiff, size_t n);
/* Returns whether an orientation exchanges width and height (5 to 8). */
bool ct__exif_swaps(int orientation);
/* Maps a box of the oriented image to the stored image of w x h. */
struct ct_box ct__exif_stored_box(int orientation, struct ct_box turned, int w, int h);
/* The inverse map. */
struct ct_box ct__exif_turned_box(int orientation, struct ct_box stored, int w, int h);
/* Writes the oriented RGBX pixels [h,w] to dst. Rows of src are `pitch` bytes apart. Rows of dst have no padding: 4
 * bytes times h or w. */
void ct__exif_turn(int orientation, const uint8_t *src, size_t pitch, int w, int h, uint8_t *dst);

#endif
