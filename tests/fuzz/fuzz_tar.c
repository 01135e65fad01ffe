/* A tar file: its samples, and their index packed and unpacked again. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return ct_log_configure("error") < 0;
}

static void check_index(const struct ct_shard_index *x, size_t size)
{
	struct ct_shard_index y;
	uint8_t *packed;
	size_t n;

	for (uint32_t i = 0; i < x->n; i++) {
		const struct ct_shard_sample *s = &x->samples[i];
		char key[64];

		if (s->size == 0 || s->offset + s->size > size || s->label < 0 || s->label > CT_SHARD_MAX_LABEL)
			__builtin_trap();
		ct_name_escape(x->text + s->key, s->key_len, key, sizeof(key));
	}
	if (ct_shard_index_pack(x, &packed, &n) < 0)
		return;
	if (ct_shard_index_unpack(packed, n, "x.tar", x->bytes, x->mtime_ns, &y) < 0)
		__builtin_trap();
	if (y.n != x->n || y.n_skipped != x->n_skipped || y.crc != x->crc || y.text_len != x->text_len ||
	    memcmp(x->text, y.text, x->text_len) != 0)
		__builtin_trap();
	ct_shard_index_release(&y);
	ct_free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_shard_index x;
	struct ct_tar_member m;
	ct_tar *t;

	if (ct_tar_open_memory(data, size, "x.tar", &t) < 0)
		return 0;
	for (uint64_t at = 0; at < size; at += CT_TAR_BLOCK)
		(void)ct_tar_header_at(t, at, &m);
	ct_tar_seek(t, 0);
	if (ct_shard_index_scan(t, &x) == CT_OK) {
		check_index(&x, size);
		ct_shard_index_release(&x);
	}
	ct_error_clear();
	ct_tar_close(t);
	return 0;
}
