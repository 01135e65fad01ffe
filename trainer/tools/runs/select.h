/* Chooses and orders the runs that `ctrain runs` shows. */
#ifndef CT_TRAINER_TOOLS_RUNS_SELECT_H
#define CT_TRAINER_TOOLS_RUNS_SELECT_H

#include "trainer/tools/runs/run_info.h"

#define CT_RUN_FIELDS "name, state, top1, loss, epochs, step, time, rate or started"

/* Removes the runs that do not fulfil all conditions of the filter, which are separated by commas: NAME=VALUE, and also
 * !=, <, <=, > and >=. NAME is one of CT_RUN_FIELDS or a config key; the last part of a key is enough (lr is optim.lr).
 * A VALUE of = and != may be a pattern with * and ?. A run in which a value is unknown fulfils only !=. Fails with
 * CT_USAGE. */
enum ct_status ct_run_list_filter(struct ct_run_list *l, const char *filter) CT_MUST_CHECK;
/* Sorts by a field: the best accuracy, the lowest loss, the highest rate, and the latest start come first. A field that
 * begins with '-' reverses the order. Runs in which the value is unknown come last. Fails with CT_USAGE. */
enum ct_status ct_run_list_sort(struct ct_run_list *l, const char *field) CT_MUST_CHECK;

#endif
