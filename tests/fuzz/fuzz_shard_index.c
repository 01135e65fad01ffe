/* A cached index whose checksum has been corrected. Every entry of an index that is accepted must be inside the shard
 * of 1 MiB. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/shards/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t bytes = 1 << 20, mtime_ns = 0;
	uint8_t *sealed = ct_calloc(size, 1);
	struct ct_shard_index x;

	if (!sealed)
		return 0;
	if (size)
		memcpy(sealed, data, size);
	ct_shard_index_seal(sealed, size);
	if (ct_shard_index_unpack(sealed, size, "x.tar", bytes, mtime_ns, &x) == CT_OK) {
		for (uint32_t i = 0; i < x.n; i++) {
			const struct ct_shard_sample *s = &x.samples[i];

			if (s->offset > bytes || s->size > bytes - s->offset || s->label < 0 ||
			    strlen(x.text + s->key) > x.text_len || s->key + s->key_len >= x.text_len)
				__builtin_trap();
		}
		for (uint32_t i = 0; i < x.n_skipped; i++) {
			if (strlen(x.text + x.skipped[i].reason) > x.text_len)
				__builtin_trap();
		}
		ct_shard_index_release(&x);
	}
	ct_error_clear();
	ct_free(sealed);
	return 0;
}
