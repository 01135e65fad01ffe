/* The values of options of ctrain plan and ctrain runs: --assume, --simulate and its links, --filter and --sort. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "trainer/plan/assume.h"
#include "trainer/tools/estimate/simulate.h"
#include "trainer/tools/runs/select.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void assume(const char *text)
{
	struct ct_assumed a;

	if (ct_assume_parse(text, &a) < 0)
		ct_error_clear();
	else if (a.train < 1 || a.val < 0 || a.classes < 0 || a.size < 0)
		__builtin_trap();
}

static void simulate(const char *text)
{
	struct ct_sim_shape shapes[CT_SIM_MAX_SHAPES];
	struct ct_sim_link link;
	int n = 0;

	if (ct_sim_shapes_parse("--simulate", text, shapes, &n) < 0)
		ct_error_clear();
	for (int i = 0; i < n; i++) {
		if (shapes[i].nodes < 1 || shapes[i].devices < 1 ||
		    shapes[i].nodes > CT_SIM_MAX_RANKS / shapes[i].devices)
			__builtin_trap();
	}
	if (ct_sim_link_parse("--link-inter", text, &link) < 0)
		ct_error_clear();
	else if (!(link.bytes_per_s > 0) || !(link.ring_s >= 0))
		__builtin_trap();
}

/* A run and its copy fulfil the same conditions. */
static void select_runs(const char *text)
{
	static const struct ct_run_info run = {.state = CT_RUN_DONE, .message = "", .best_top1 = 0.5, .step = 7};
	struct ct_run_list l = {0};

	if (!(l.runs = CT_NEW_ARRAY(struct ct_run_info, 2)))
		return;
	for (; l.n < 2; l.n++) {
		l.runs[l.n] = run;
		l.runs[l.n].name = ct_strdup("run");
		l.runs[l.n].dir = ct_strdup("runs/run");
	}
	if (ct_run_list_filter(&l, text) == CT_OK && l.n == 1)
		__builtin_trap();
	if (ct_run_list_sort(&l, text) == CT_OK && l.n == 1)
		__builtin_trap();
	ct_error_clear();
	ct_run_list_release(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = ct_strndup((const char *)data, size);

	if (!text)
		return 0;
	assume(text);
	simulate(text);
	select_runs(text);
	ct_free(text);
	return 0;
}
