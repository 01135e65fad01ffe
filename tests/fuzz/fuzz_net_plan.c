/* Plans of nets, from files, checkpoints and the cache. A plan that can be parsed must be written as text that gives
 * the same plan and the same text again. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nn/net_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_parse(const struct ct_net_plan *p)
{
	struct ct_str first = {0}, second = {0};
	struct ct_net_plan again = {0};
	char summary[64];

	ct_net_plan_write(p, &first);
	if (ct_net_plan_parse(ct_str_text(&first), "again", &again) < 0)
		__builtin_trap();
	ct_net_plan_write(&again, &second);
	if (again.n_convs > CT_PLAN_MAX_CONVS || strcmp(ct_str_text(&first), ct_str_text(&second)) != 0)
		__builtin_trap();
	ct_net_plan_summary(p, p->n_convs, summary, sizeof(summary));
	ct_net_plan_release(&again);
	ct_str_release(&second);
	ct_str_release(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_net_plan p = {0};
	char *text = ct_strndup((const char *)data, size);

	if (text && ct_net_plan_parse(text, "fuzz", &p) == CT_OK)
		write_and_parse(&p);
	ct_error_clear();
	ct_net_plan_release(&p);
	ct_free(text);
	return 0;
}
