/* Limits and parsers that all data formats share: labels, image sizes, file name extensions. */
#ifndef CT_DATA_FILES_LABEL_H
#define CT_DATA_FILES_LABEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_MAX_LABEL ((1 << 20) - 1)
#define CT_MAX_IMAGE_BYTES ((uint32_t)256 << 20)

/* Returns whether ext [n], without the dot and ignoring case, is the file name extension of an image format that can be
 * decoded. */
bool ct_image_extension(const char *ext, size_t n);
/* Parses a decimal number of at most CT_MAX_LABEL, optionally with whitespace around it. Returns false for anything
 * else. */
bool ct_label_parse(const char *text, size_t n, int32_t *out);

#endif
