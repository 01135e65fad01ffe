/* CIFAR files. The first byte selects the data set (0: 10 classes), and the rest is one file of it. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_and_read(const struct ct_dataset_spec *spec)
{
	uint8_t x[3072];
	ct_dataset *d;
	char hex[65];

	if (ct_dataset_open(spec, &d) < 0) {
		ct_error_clear();
		return;
	}
	for (uint32_t i = 0; i < ct_dataset_info(d)->n; i++) {
		int32_t label;

		if (ct_dataset_read(d, i, x, &label, NULL) < 0 || label < 0 || label >= ct_dataset_info(d)->n_classes)
			__builtin_trap();
	}
	ct_dataset_digest(d, hex);
	ct_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_dataset_spec spec = {.dir = "/proc/self/fd", .max_bytes = 1 << 20};
	char name[16];
	int fd;

	if (size < 1 || ct_log_configure("error") < 0)
		return 0;
	spec.name = data[0] ? "cifar100" : "cifar10";
	fd = memfd_create("cifar", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	if (write(fd, data + 1, size - 1) == (ssize_t)(size - 1)) {
		snprintf(name, sizeof(name), "%d", fd);
		spec.split = name;
		open_and_read(&spec);
	}
	close(fd);
	return 0;
}
