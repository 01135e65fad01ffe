/* Images: 8 bytes that choose options, a window and a size, then a file; decoded, then resized. The file's
 * first bytes are made those of a JPEG. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_image(data, size, "\xff\xd8", 2, NULL);
}
