/* safetensors headers. The input is used twice: as a complete file, and as a data length (2 bytes, little-endian) with
 * a header, so that the fuzzer does not have to guess the length. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "tests/infer/safetensors_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size)
{
	if (safetensors_check(data, size) < 0)
		ct_error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n_data;
	uint64_t n_header;
	uint8_t *file;

	parse(data, size);
	if (size < 2)
		return 0;
	n_data = (size_t)data[0] | (size_t)data[1] << 8;
	n_header = size - 2;
	file = ct_calloc(8 + n_header + n_data, 1);
	if (!file)
		return 0;
	memcpy(file, &n_header, 8);
	memcpy(file + 8, data + 2, n_header);
	parse(file, 8 + n_header + n_data);
	ct_free(file);
	return 0;
}
