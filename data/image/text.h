/* Draws strings into images, with a bitmap font of 5 x 7 pixels that has the characters of ASCII. Latin letters with
 * accents are drawn without them, other characters as boxes. */
#ifndef CT_DATA_IMAGE_TEXT_H
#define CT_DATA_IMAGE_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { CT_TEXT_WIDTH = 6, CT_TEXT_HEIGHT = 7, CT_TEXT_DESCENT = 1 }; /* of a character, with the space after it */

struct ct_rgb {
	uint8_t *pixels; /* [h,w,3] */
	int w, h;
};

/* Returns the number of characters of a UTF-8 string. */
int ct_text_length(const char *text);
/* Draws `text` with its top left corner at (x, y). A pixel of the font is a square of dot x dot pixels. What is outside
 * of the image is not drawn. */
void ct_text_draw(const struct ct_rgb *image, int x, int y, int dot, const uint8_t color[3], const char *text);

#endif
