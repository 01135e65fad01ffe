/* JPEG images. The first 8 bytes choose options, a box and a size; the rest is a file, which is decoded and then
 * resized. The first bytes of the file are replaced by those of a JPEG. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_image(data, size, "\xff\xd8", 2, NULL);
}
