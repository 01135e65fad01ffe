/* A list of class names. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/files/class_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_class_list c;

	if (ct_class_list_parse((const char *)data, size, "classes.txt", &c) == CT_OK) {
		for (int i = 0; i < c.n; i++) {
			int at = ct_class_list_find(&c, c.ids[i]);

			if (at < 0 || strcmp(c.ids[at], c.ids[i]) != 0)
				__builtin_trap();
		}
		ct_class_list_release(&c);
	}
	ct_error_clear();
	return 0;
}
