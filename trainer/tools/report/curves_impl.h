/* The curves of one or several runs. */
#ifndef CT_TRAINER_TOOLS_REPORT_CURVES_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_CURVES_IMPL_H

#include "trainer/tools/report/chart_impl.h"
#include "trainer/tools/report/run_files.h"

enum ct__curve { CURVE_LOSS, CURVE_ACCURACY, CURVE_LR, CURVE_RATE, CURVE_GRAD_NORM, CURVE_TIME, CURVE_RANKS, N_CURVES };

/* Makes the charts. A chart without values has no series. CURVE_TIME is the time of a step, and
 * CURVE_RANKS the time of each rank in the last epoch; they have no series if there are several runs. names [n]: how to
 * call the runs if there are several. Release the charts even if this function fails. */
enum ct_status ct__curves_make(const struct ct_run_files *runs, const char *const *names, int n,
			       struct ct__chart charts[N_CURVES]) CT_MUST_CHECK;

#endif
