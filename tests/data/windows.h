/* Windows of images against their whole decodes. */
#ifndef CT_TESTS_DATA_WINDOWS_H
#define CT_TESTS_DATA_WINDOWS_H

#include "tests/data/fixture.h"

#include "base/rng.h"
#include "data/image/image.h"

ct_image_decoder *windows_decoder(struct ct_image_opts opts);
struct ct_image_header windows_open(ct_image_decoder *d, struct bytes b);
/* Window of the opened image as RGB; free. */
uint8_t *windows_decode(ct_image_decoder *d, struct ct_box w);
/* All of an image; free. */
uint8_t *windows_whole(ct_image_decoder *d, struct bytes b, struct ct_image_header *h);
/* A window of an image of w x h. */
struct ct_box windows_random(struct ct_rng *rng, int w, int h);
/* n random windows of `file` show the same pixels as those of `whole_file`, decoded whole. */
void windows_check(ct_image_decoder *d, struct bytes file, struct bytes whole_file, int n, struct ct_rng *rng);

#endif
