/* A tar file: its samples, and its index, which is packed and unpacked. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/shards/shard_index.h"

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

		if (s->size == 0 || s->offset + s->size > size || s->label < 0 || s->label > CT_MAX_LABEL)
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

/* Right checksums for what looks like headers: few mutations would get past them otherwise. */
static void seal(uint8_t *p, size_t size)
{
	for (; size >= CT_TAR_BLOCK; p += CT_TAR_BLOCK, size -= CT_TAR_BLOCK) {
		unsigned sum = 8 * ' ';

		if (memcmp(p + 257, "ustar", 5) != 0)
			continue;
		for (int i = 0; i < CT_TAR_BLOCK; i++)
			sum += i >= 148 && i < 156 ? 0 : p[i];
		for (int i = 0; i < 6; i++)
			p[148 + i] = (uint8_t)('0' + (sum >> (15 - 3 * i) & 7));
		p[154] = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *sealed = ct_calloc(size, 1);
	struct ct_shard_index x;
	struct ct_tar_member m;
	ct_tar *t;

	if (!sealed)
		return 0;
	if (size)
		memcpy(sealed, data, size);
	seal(sealed, size);
	if (ct_tar_open_memory(sealed, size, "x.tar", &t) < 0)
		__builtin_trap();
	for (uint64_t at = 0; at < size; at += CT_TAR_BLOCK)
		(void)ct_tar_header_at(t, at, &m);
	ct_tar_seek(t, 0);
	if (ct_shard_index_scan(t, &x) == CT_OK) {
		check_index(&x, size);
		ct_shard_index_release(&x);
	}
	ct_error_clear();
	ct_tar_close(t);
	ct_free(sealed);
	return 0;
}
