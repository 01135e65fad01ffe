/* JSON, and the state.json of a checkpoint. Input that can be parsed must be printed, and parsing and printing the
 * result again must give the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "trainer/run/checkpoint/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_and_parse(const ct_json *j, bool pretty)
{
	struct ct_str first = {0}, second = {0};
	ct_json *again;

	if (ct_json_dump(j, pretty, &first) < 0 || ct_json_parse(first.s, first.len, "again", &again) < 0 ||
	    ct_json_dump(again, pretty, &second) < 0 || strcmp(first.s, second.s) != 0)
		__builtin_trap();
	ct_json_destroy(again);
	ct_str_release(&first);
	ct_str_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_ckpt_state state;
	ct_json *j;

	if (ct_ckpt_state_parse((const char *)data, size, "fuzz", &state) == CT_OK)
		ct_ckpt_state_release(&state);
	else
		ct_error_clear();
	if (ct_json_parse((const char *)data, size, "fuzz", &j) < 0) {
		ct_error_clear();
		return 0;
	}
	print_and_parse(j, false);
	print_and_parse(j, true);
	ct_json_destroy(j);
	return 0;
}
