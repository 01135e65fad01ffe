#include "dist/net/token.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum ct_status ct_random_bytes(void *p, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t k = getrandom((uint8_t *)p + have, n - have, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return CT_FAIL(CT_IO, "cannot get random bytes: %s", strerror(errno));
		have += (size_t)k;
	}
	return CT_OK;
}

void ct_hex(const void *bytes, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
}

enum ct_status ct_token_make(char token[CT_TOKEN_HEX])
{
	uint8_t bytes[(CT_TOKEN_HEX - 1) / 2];

	CT_TRY(ct_random_bytes(bytes, sizeof(bytes)));
	ct_hex(bytes, sizeof(bytes), token);
	return CT_OK;
}
