/* The store server: greeting, frames and requests of one connection, as bytes. First byte: odd, the greeting is in the input;
 * even, it has been said. Its value is also where the bytes are cut in two, as a network would. */
#include <stddef.h>
#include <stdint.h>

#include "dist/store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (ct_store_parse_fuzz(data, size) < 0)
		ct_error_clear();
	return 0;
}
