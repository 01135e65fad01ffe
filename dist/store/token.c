#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "dist/store/store.h"

enum ct_status ct_token_make(char token[CT_TOKEN_HEX])
{
	uint8_t bytes[(CT_TOKEN_HEX - 1) / 2];
	size_t have = 0;

	while (have < sizeof(bytes)) {
		ssize_t n = getrandom(bytes + have, sizeof(bytes) - have, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CT_FAIL(CT_IO, "cannot get random bytes for the run's token: %s", strerror(errno));
		have += (size_t)n;
	}
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(token + 2 * i, 3, "%02x", bytes[i]);
	return CT_OK;
}
