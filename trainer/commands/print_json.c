#include "trainer/commands/print_json_impl.h"

#include <stdio.h>

enum ct_status ct__print_json(ct_json *j, bool pretty)
{
	struct ct_str text = {0};
	enum ct_status st = ct_json_dump(j, pretty, &text);
	if (st == CT_OK)
		printf("%s\n", ct_str_text(&text));
	ct_str_release(&text);
	ct_json_destroy(j);
	return st;
}
