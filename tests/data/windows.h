/* Compares rectangular regions (boxes) of images, decoded separately, with full decodes. */
#ifndef CT_TESTS_DATA_WINDOWS_H
#define CT_TESTS_DATA_WINDOWS_H

#include "tests/data/fixture.h"

#include "base/rng.h"
#include "data/image/image.h"

ct_image_decoder *windows_decoder(struct ct_image_opts opts);
struct ct_image_header windows_open(ct_image_decoder *d, struct bytes b);
/* Decodes a box of the open image and returns it as RGB. Release it with free. */
uint8_t *windows_decode(ct_image_decoder *d, struct ct_box w);
/* Decodes a complete image and returns it as RGB. Release it with free. */
uint8_t *windows_whole(ct_image_decoder *d, struct bytes b, struct ct_image_header *h);
/* Returns a random box inside an image of w x h pixels. */
struct ct_box windows_random(struct ct_rng *rng, int w, int h);
/* Checks that n random boxes of `file` have the same pixels as in a full decode of `whole_file`. */
void windows_check(ct_image_decoder *d, struct bytes file, struct bytes whole_file, int n, struct ct_rng *rng);

#endif
