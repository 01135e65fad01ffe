#include "trainer/tools/cli/print.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum ct_status ct_print_text(struct ct_str *text)
{
	enum ct_status st = ct_str_status(text);

	if (st == CT_OK && (fwrite(ct_str_text(text), 1, text->len, stdout) != text->len || fflush(stdout) != 0))
		st = CT_FAIL(CT_IO, "cannot write to standard output: %m");
	ct_str_release(text);
	return st;
}

enum ct_status ct_print_json(ct_json *j, bool pretty)
{
	struct ct_str text = {0};
	enum ct_status st = ct_json_dump(j, pretty, &text);

	ct_json_destroy(j);
	if (st < 0) {
		ct_str_release(&text);
		return st;
	}
	ct_str_add(&text, "\n");
	return ct_print_text(&text);
}

enum ct_status ct_print_to(const char *path, struct ct_str *text)
{
	enum ct_status st;

	if (!path)
		return ct_print_text(text);
	st = ct_str_status(text);
	if (st == CT_OK)
		st = ct_file_replace(path, ct_str_text(text), text->len);
	ct_str_release(text);
	return st;
}

enum ct_status ct_print_indented(struct ct_str *text)
{
	const enum ct_status st = ct_str_status(text);

	for (const char *p = ct_str_text(text); st == CT_OK && *p;) {
		const size_t n = strcspn(p, "\n");

		if (n > 0)
			printf("  %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	ct_str_release(text);
	return st;
}
