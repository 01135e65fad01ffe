#include "base/process/position.h"

#include <inttypes.h>
#include <stdio.h>

const char *ct_rank_phase_name(enum ct_rank_phase phase)
{
	static const char *const names[] = {CT_RANK_PHASES(CT_CHOICE_NAME) NULL};

	return ct_choice_name(names, (int)phase);
}

bool ct_rank_phase_has_worked(enum ct_rank_phase phase)
{
	switch (phase) {
	case CT_RANK_UNKNOWN:
	case CT_RANK_JOINING:
	case CT_RANK_COMPILING:
	case CT_RANK_FIRST_STEP:
		return false;
	case CT_RANK_TRAINING:
	case CT_RANK_EVALUATING:
	case CT_RANK_SAVING:
	case CT_RANK_SEARCHING:
		return true;
	}
	return false;
}

void ct_position_text(char *buf, size_t len, const struct ct_position *p)
{
	const char *phase = ct_rank_phase_name(p->phase);

	if (p->step < 0)
		snprintf(buf, len, "%s", phase);
	else
		snprintf(buf, len, "%s%sstep %" PRId64, phase, phase[0] ? ", " : "", p->step);
}
