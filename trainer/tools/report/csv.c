/* Evaluations and steps are matched to epochs by their step numbers. All tables are in the order of steps, so the
 * search for the next epoch goes on where the last one ended. An evaluation belongs to an epoch only if it has the same
 * step, whereas the learning rate is that of the last step line before the end of the epoch. */
#include "trainer/tools/report/csv_impl.h"

#include <math.h>

/* Returns the row of the last line at or before this step, or SIZE_MAX. *next is the row at which the search begins. */
static size_t last_until(const struct ct_table *t, int column, double step, size_t *next)
{
	while (*next < t->n && ct_table_at(t, *next, column) <= step)
		(*next)++;
	return *next > 0 ? *next - 1 : SIZE_MAX;
}

enum ct_status ct__results_csv(const struct ct_run_files *r, struct ct_str *out)
{
	const struct ct_table *t = &r->epochs, *e = &r->evals, *s = &r->steps;
	size_t next_eval = 0, next_step = 0;
	double time = 0;

	ct_str_add(
		out,
		"epoch,time,train/loss,metrics/accuracy_top1,metrics/accuracy_top5,val/loss,lr/pg0,step,images,images_per_sec\n");
	for (size_t i = 0; i < t->n; i++) {
		const double step = ct_table_at(t, i, CT_EPOCH_STEP), seconds = ct_table_at(t, i, CT_EPOCH_SECONDS);
		const size_t eval = last_until(e, CT_EVAL_STEP, step, &next_eval);
		const size_t line = last_until(s, CT_STEP_STEP, step, &next_step);
		const bool has_eval = eval != SIZE_MAX && ct_table_at(e, eval, CT_EVAL_STEP) == step;

		time += seconds;
		const double columns[] = {
			ct_table_at(t, i, CT_EPOCH_EPOCH) + 1,
			time,
			ct_table_at(t, i, CT_EPOCH_LOSS),
			has_eval ? ct_table_at(e, eval, CT_EVAL_TOP1) : NAN,
			has_eval ? ct_table_at(e, eval, CT_EVAL_TOP5) : NAN,
			has_eval ? ct_table_at(e, eval, CT_EVAL_LOSS) : NAN,
			line != SIZE_MAX ? ct_table_at(s, line, CT_STEP_LR) : NAN,
			step,
			ct_table_at(t, i, CT_EPOCH_IMAGES),
			ct_table_at(t, i, CT_EPOCH_TIMED) / seconds,
		};
		for (size_t k = 0; k < CT_ARRAY_LEN(columns); k++) {
			ct_str_add(out, k > 0 ? "," : "");
			if (isfinite(columns[k]))
				ct_str_add_f64(out, columns[k]);
		}
		ct_str_add(out, "\n");
	}
	return ct_str_status(out);
}
