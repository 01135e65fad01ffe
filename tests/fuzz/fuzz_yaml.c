/* Configuration files: YAML, schema, checks of several keys, dump. Limits and error locations must be correct for any
 * input. */
#include <stdint.h>

#include "trainer/config/config_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	enum ct_status st = ct__config_parse_fuzz(data, len);

	CT_ASSERT(st == CT_OK || st == CT_CONFIG);
	return 0;
}
