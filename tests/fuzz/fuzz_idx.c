/* IDX and gzip. The input has the length of the labels file (2 bytes, little-endian), the labels file and the images
 * file. */
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/formats/idx_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Warnings about bytes after the end would fill the screen. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return ct_log_configure("error") < 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_dataset_spec spec = {.name = "idx", .max_bytes = 1 << 20};
	size_t n_labels;
	ct_dataset *d;
	char hex[65];

	if (size < 2)
		return 0;
	n_labels = (size_t)data[0] | (size_t)data[1] << 8;
	data += 2;
	size -= 2;
	if (n_labels > size)
		n_labels = size;
	if (ct__dataset_idx_open_memory(&spec, data + n_labels, size - n_labels, data, n_labels, &d) < 0) {
		ct_error_clear();
		return 0;
	}
	for (uint32_t i = 0; i < ct_dataset_info(d)->n; i++) {
		uint8_t *x = ct_calloc(1, ct_dataset_info(d)->sample_bytes);
		int32_t label;

		if (!x || ct_dataset_read(d, i, x, &label, NULL) < 0 || label < 0 ||
		    label >= ct_dataset_info(d)->n_classes)
			__builtin_trap();
		ct_free(x);
	}
	ct_dataset_digest(d, hex);
	ct_dataset_close(d);
	return 0;
}
