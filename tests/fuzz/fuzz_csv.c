/* A CSV file, and the list of labels in it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/files/label_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct ct_label_row *row)
{
	const char *at = row->image;

	if (row->image[0] == '\0' || row->image[0] == '/' || row->label[0] == '\0' || row->line == 0)
		__builtin_trap();
	for (; *at; at += strspn(at, "/")) {
		const size_t n = strcspn(at, "/");

		if (n == 2 && memcmp(at, "..", 2) == 0)
			__builtin_trap();
		at += n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ct_label_columns columns = {0};
	char *text = ct_strndup((const char *)data, strnlen((const char *)data, size));
	struct ct_class_list classes;
	struct ct_label_list l;

	if (text && ct_label_list_parse(text, strlen(text), "labels.csv", &columns, &l) == CT_OK) {
		for (size_t i = 0; i < l.n; i++)
			check_row(&l.rows[i]);
		if (ct_label_list_classes(&l, "labels.csv", &classes) == CT_OK) {
			for (size_t i = 0; i < l.n; i++) {
				if (l.rows[i].part == CT_LABEL_TRAIN &&
				    ct_class_list_find(&classes, l.rows[i].label) < 0)
					__builtin_trap();
			}
			ct_class_list_release(&classes);
		}
		ct_label_list_release(&l);
	}
	ct_error_clear();
	return 0;
}
