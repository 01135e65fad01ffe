#include "base/process/position.h"

#include <inttypes.h>
#include <stdio.h>

const char *ct_rank_phase_name(enum ct_rank_phase phase)
{
	static const char *const names[] = {CT_RANK_PHASES(CT_CHOICE_NAME) NULL};

	return ct_choice_name(names, (int)phase);
}

void ct_position_text(char *buf, size_t len, const struct ct_position *p)
{
	const char *phase = ct_rank_phase_name(p->phase);

	if (p->step < 0)
		snprintf(buf, len, "%s", phase);
	else
		snprintf(buf, len, "%s%sstep %" PRId64, phase, phase[0] ? ", " : "", p->step);
}
