/* Where a rank is: what it is doing, and how far it has come. Positions are part of heartbeats and failures, which
 * cross the store, and of the page of a rank (base/process/rank_page.h). Programs compare their numbers; the strings
 * are for messages. */
#ifndef CT_BASE_PROCESS_POSITION_H
#define CT_BASE_PROCESS_POSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/choice.h"

/* What a rank is doing, and the words for it. The values cross the store, so new ones come at the end. */
#define CT_RANK_PHASES(X)                         \
	X(CT_RANK_UNKNOWN, "")                    \
	X(CT_RANK_JOINING, "joining")             \
	X(CT_RANK_COMPILING, "compiling")         \
	X(CT_RANK_TRAINING, "training")           \
	X(CT_RANK_EVALUATING, "evaluation")       \
	X(CT_RANK_SAVING, "saving")               \
	X(CT_RANK_SEARCHING, "searching for NaN") \
	X(CT_RANK_FIRST_STEP, "training")
enum ct_rank_phase { CT_RANK_PHASES(CT_CHOICE_ID) };
enum { CT_RANK_N_PHASES = CT_CHOICE_COUNT(CT_RANK_PHASES) };

struct ct_position {
	enum ct_rank_phase phase;
	int64_t step;       /* number of steps that are done; -1: training has not begun, or unknown */
	int64_t collective; /* number of collectives that were posted to the communicator of all ranks; -1: unknown */
};
#define CT_POSITION_UNKNOWN ((struct ct_position){.phase = CT_RANK_UNKNOWN, .step = -1, .collective = -1})

const char *ct_rank_phase_name(enum ct_rank_phase phase);
/* Returns true if a rank in this phase has done a step. The first step of a process is a phase of its own, in which
 * programs may still be compiled. */
bool ct_rank_phase_has_worked(enum ct_rank_phase phase);
/* Writes the phase and the step: "training, step 120", "joining", "step 120" if only the step is known, or "".
 * CT_POSITION_TEXT bytes are enough. */
#define CT_POSITION_TEXT 48
void ct_position_text(char *buf, size_t len, const struct ct_position *p);

#endif
