/* DALI's index of a shard. The input has the length of the index (2 bytes, little-endian), the index and the shard. */
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "data/shards/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_shard_index x;
	const uint8_t *shard;
	size_t n_text, n_shard;
	ct_tar *t;

	if (size < 2)
		return 0;
	n_text = (size_t)data[0] | (size_t)data[1] << 8;
	data += 2;
	size -= 2;
	if (n_text > size)
		n_text = size;
	shard = data + n_text;
	n_shard = size - n_text;
	if (ct_tar_open_memory(shard, n_shard, "x.tar", &t) < 0)
		return 0;
	if (ct_shard_index_from_dali(t, (const char *)data, n_text, "x.idx", &x) == CT_OK) {
		for (uint32_t i = 0; i < x.n; i++) {
			if (x.samples[i].offset + x.samples[i].size > n_shard || x.samples[i].label < 0)
				__builtin_trap();
		}
		ct_shard_index_release(&x);
	}
	ct_error_clear();
	ct_tar_close(t);
	return 0;
}
