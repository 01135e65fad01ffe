/* The store server: the handshake, frames and requests of one connection, as bytes. If the first byte is odd, the input
 * contains the handshake; if it is even, the fuzzer adds a valid one. Its value is also where the bytes are split in
 * two, as a network might do. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/store_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (store_input(data, size) < 0)
		ct_error_clear();
	return 0;
}
