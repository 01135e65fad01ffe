/* Makes charts from the tables of the run files. With one run, a chart has a curve for each quantity; with several
 * runs, a curve for each run, with a color that is the same in all charts, and evaluations are dashed. A curve with
 * many points is drawn faintly below its exponential moving average, whose bias at the start is corrected. Bars are
 * stacked by adding up the parts; the series with the largest sums comes first. Fields that a line lacks are NaN, and
 * are omitted. */
#include "trainer/tools/report/curves_impl.h"

#include <math.h>

enum { SMOOTH_FROM = 100, BINS = 60 }; /* points from which a curve is also smoothed; bars of the step time */

/* A column of a table over the steps. */
static enum ct_status add_column(struct ct__chart *c, const struct ct_table *t, int step, int column,
				 struct ct__series like)
{
	struct ct__point *p = t->n > 0 ? CT_NEW_ARRAY(struct ct__point, t->n) : NULL;
	enum ct_status st = CT_OK;
	size_t n = 0;

	for (size_t i = 0; p && i < t->n; i++) {
		p[n] = (struct ct__point){ct_table_at(t, i, step), ct_table_at(t, i, column)};
		n += isfinite(p[n].y);
	}
	if (n > 0)
		st = ct__chart_add(c, like, p, n);
	else
		ct_free(like.name);
	if (t->n > 0 && !p)
		st = CT_NOMEM;
	ct_free(p);
	return st;
}

/* Adds the exponential moving average of the newest series, with its bias corrected, and makes that series faint. */
static enum ct_status add_smoothed(struct ct__chart *c)
{
	struct ct__series *raw = &c->series[c->n - 1], like = *raw;

	if (raw->n < SMOOTH_FROM)
		return CT_OK;
	struct ct__point *p = CT_NEW_ARRAY(struct ct__point, raw->n);
	const double keep = 1 - 2 / ((double)raw->n / 25 + 1);
	double sum = 0, weight = 0;
	for (size_t i = 0; p && i < raw->n; i++) {
		sum = keep * sum + (1 - keep) * raw->p[i].y;
		weight = keep * weight + (1 - keep);
		p[i] = (struct ct__point){raw->p[i].x, sum / weight};
	}
	raw->name = NULL; /* now of `like` */
	raw->width = 1;
	raw->alpha = 0.35;
	if (!p) {
		ct_free(like.name);
		return CT_NOMEM;
	}
	enum ct_status st = ct__chart_add(c, like, p, like.n);
	ct_free(p);
	return st;
}

static struct ct__series series(const char *name, int ink)
{
	return (struct ct__series){.name = name ? ct_strdup(name) : NULL,
				   .ink = INK_SERIES + ink % N_SERIES_INKS,
				   .width = 1.8,
				   .alpha = 1};
}

static enum ct_status add_loss(struct ct__chart *c, const struct ct_run_files *r, const char *name, int ink)
{
	const int before = c->n;
	struct ct__series eval = series(name ? NULL : "evaluation", name ? ink : 1);

	eval.dashed = name != NULL;
	eval.marked = true;
	if (r->steps.n > 0)
		CT_TRY(add_column(c, &r->steps, CT_STEP_STEP, CT_STEP_LOSS, series(name ? name : "training", ink)));
	else
		CT_TRY(add_column(c, &r->epochs, CT_EPOCH_STEP, CT_EPOCH_LOSS, series(name ? name : "training", ink)));
	if (c->n > before)
		CT_TRY(add_smoothed(c));
	return add_column(c, &r->evals, CT_EVAL_STEP, CT_EVAL_LOSS, eval);
}

static enum ct_status add_accuracy(struct ct__chart *c, const struct ct_run_files *r, const char *name, int ink)
{
	struct ct__series top1 = series(name ? name : "top-1", ink), top5 = series("top-5", 1);

	top1.marked = top5.marked = true;
	CT_TRY(add_column(c, &r->evals, CT_EVAL_STEP, CT_EVAL_TOP1, top1));
	if (!name)
		return add_column(c, &r->evals, CT_EVAL_STEP, CT_EVAL_TOP5, top5);
	ct_free(top5.name);
	return CT_OK;
}

/* Means of the parts of the time of a step, stacked in bars. */
static enum ct_status add_times(struct ct__chart *c, const struct ct_table *t)
{
	static const char *const names[] = {"data", "forward", "backward", "waiting", "optimizer", "other"};
	static const int inks[] = {2, 0, 5, 1, 3, 6};
	enum { PARTS = 6 };
	const size_t per_bin = (t->n + BINS - 1) / BINS, bins = t->n > 0 ? t->n / per_bin : 0;
	struct ct__point p[PARTS][BINS];

	for (size_t b = 0; b < bins; b++) {
		const size_t first = b * per_bin, end = b + 1 < bins ? first + per_bin : t->n;
		double below = 0;

		for (int k = 0; k < PARTS; k++) {
			double sum = 0, step = 0;

			for (size_t i = first; i < end; i++) {
				const double v = ct_table_at(t, i, CT_STEP_DATA + k);

				sum += isfinite(v) ? v : 0;
				step += ct_table_at(t, i, CT_STEP_STEP);
			}
			below += sum / (double)(end - first);
			p[k][b] = (struct ct__point){step / (double)(end - first), below};
		}
	}
	for (int k = PARTS - 1; k >= 0 && bins > 0; k--) {
		struct ct__series like = series(names[k], inks[k]);

		like.bar = true;
		CT_TRY(ct__chart_add(c, like, p[k], bins));
	}
	return CT_OK;
}

/* The time of each rank in the last epoch, if there are several ranks. */
static enum ct_status add_ranks(struct ct__chart *c, const ct_json *epoch)
{
	static const char *const keys[] = {"rank_data_seconds", "rank_compute_seconds", "rank_waiting_seconds"};
	static const char *const names[] = {"data", "compute", "waiting"};
	static const int inks[] = {2, 0, 1};
	enum { PARTS = 3, MAX_RANKS = 1024 };
	const size_t n = epoch ? ct_json_len(ct_json_get(epoch, keys[0])) : 0;
	struct ct__point *p;
	enum ct_status st = CT_OK;

	if (n < 2 || n > MAX_RANKS)
		return CT_OK;
	CT_TRY_ALLOC(p = CT_NEW_ARRAY(struct ct__point, PARTS * n));
	for (int k = 0; k < PARTS; k++) {
		const ct_json *list = ct_json_get(epoch, keys[k]);

		for (size_t i = 0; i < n; i++) {
			double v = 0;

			if (!list || i >= ct_json_len(list) || !ct_json_as_f64(ct_json_at(list, i), &v) || !(v > 0))
				v = 0;
			p[(size_t)k * n + i] =
				(struct ct__point){(double)i, v + (k > 0 ? p[(size_t)(k - 1) * n + i].y : 0)};
		}
	}
	for (int k = PARTS - 1; k >= 0 && st == CT_OK; k--) {
		struct ct__series like = series(names[k], inks[k]);

		like.bar = true;
		st = ct__chart_add(c, like, p + (size_t)k * n, n);
	}
	ct_free(p);
	return st;
}

enum ct_status ct__curves_make(const struct ct_run_files *runs, const char *const *names, int n,
			       struct ct__chart charts[N_CURVES])
{
	charts[CURVE_LOSS] = (struct ct__chart){.title = "Loss", .log = true};
	charts[CURVE_ACCURACY] = (struct ct__chart){.title = "Accuracy", .share = true};
	charts[CURVE_LR] = (struct ct__chart){.title = "Learning rate", .zero = true};
	charts[CURVE_RATE] = (struct ct__chart){.title = "Images per second", .zero = true};
	charts[CURVE_GRAD_NORM] = (struct ct__chart){.title = "Gradient norm", .log = true, .zero = true};
	charts[CURVE_TIME] = (struct ct__chart){.title = "Step time (ms)", .zero = true};
	charts[CURVE_RANKS] = (struct ct__chart){.title = "Ranks in the last epoch (s)", .zero = true};
	for (int i = 0; i < N_CURVES; i++)
		charts[i].x_name = i == CURVE_RANKS ? "rank" : "step";
	for (int i = 0; i < n; i++) {
		const struct ct_run_files *r = &runs[i];
		const char *name = n > 1 ? names[i] : NULL;

		CT_TRY(add_loss(&charts[CURVE_LOSS], r, name, i));
		CT_TRY(add_accuracy(&charts[CURVE_ACCURACY], r, name, i));
		CT_TRY(add_column(&charts[CURVE_LR], &r->steps, CT_STEP_STEP, CT_STEP_LR, series(name, i)));
		CT_TRY(add_column(&charts[CURVE_RATE], &r->steps, CT_STEP_STEP, CT_STEP_RATE, series(name, i)));
		CT_TRY(add_column(&charts[CURVE_GRAD_NORM], &r->steps, CT_STEP_STEP, CT_STEP_GRAD_NORM,
				  series(name, i)));
	}
	if (n > 1)
		return CT_OK;
	CT_TRY(add_times(&charts[CURVE_TIME], &runs[0].steps));
	return add_ranks(&charts[CURVE_RANKS], runs[0].epoch);
}
