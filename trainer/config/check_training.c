/* Checks of what is learned: model, data, batch, optimizer and schedule. */
#include <string.h>

#include "trainer/config/check_impl.h"

static void check_batch_and_length(struct ct_checker *k)
{
	const struct ct_config *c = k->c;

	if (c->batch.global == 0 && c->batch.per_rank == 0 && ct__check_fine(k, "batch.global") &&
	    ct__check_fine(k, "batch.per_rank"))
		ct__check_problem(k, "batch.per_rank",
				  "the batch size is not set; set batch.global (over all ranks) or batch.per_rank");
	if (c->batch.global > 0 && c->train.accumulate > c->batch.global)
		ct__check_problem(
			k, "train.accumulate",
			"train.accumulate=%lld is larger than batch.global=%lld, so some batches would be empty",
			(long long)c->train.accumulate, (long long)c->batch.global);
	if (c->train.epochs == 0 && c->train.max_steps == 0 && ct__check_fine(k, "train.epochs") &&
	    ct__check_fine(k, "train.max_steps"))
		ct__check_problem(k, "train.epochs",
				  "the length of training is not set; set train.epochs or train.max_steps");
}

static void check_model(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const char *data = ct_config_choice(c, "data.name");
	bool regression = c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION, mse = c->model.loss == CT_CFG_LOSS_MSE;

	if (c->model.name == CT_MODEL_LAYERS && c->model.layers.n == 0 && ct__check_fine(k, "model.layers"))
		ct__check_problem(k, "model.name", "model.name=layers requires the list model.layers");
	if (regression && c->model.loss == CT_CFG_LOSS_CROSS_ENTROPY)
		ct__check_problem(
			k, "model.loss",
			"model.loss=cross_entropy requires class labels, but data.name=%s has numeric targets; use mse",
			data);
	if (data[0] && !regression && mse)
		ct__check_problem(
			k, "model.loss",
			"model.loss=mse requires numeric targets, but data.name=%s has class labels; use cross_entropy",
			data);
	if (c->model.label_smoothing > 0 && (regression || mse))
		ct__check_problem(k, "model.label_smoothing",
				  "model.label_smoothing requires class labels and model.loss=cross_entropy");
	if (c->train.target_top1 > 0 && regression)
		ct__check_problem(k, "train.target_top1",
				  "train.target_top1 requires class labels, but data.name=%s has none", data);
	if (c->train.target_top1 > 0 && strcmp(c->data.val, "none") == 0)
		ct__check_problem(k, "train.target_top1",
				  "train.target_top1 requires evaluations, but data.val is none");
}

static void check_pair(struct ct_checker *k, const char *key, const struct ct_float_list *l)
{
	if (ct__check_fine(k, key) && l->n == 2 && l->v[0] > l->v[1])
		ct__check_problem(k, key, "%s: write the smaller number first", key);
}

static void check_val_size(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	int64_t size = c->data.val_size;

	if (size > 0 && size < 8 && ct__check_fine(k, "data.val.size"))
		ct__check_problem(k, "data.val.size", "data.val.size=%lld is too small; the minimum is 8",
				  (long long)size);
	if (size == 0)
		size = c->data.train_size.n > 0 ? c->data.train_size.v[c->data.train_size.n - 1].size
						: CT_DATA_DEFAULT_SIZE;
	if (c->data.val_resize > 0 && c->data.val_resize < size && ct__check_fine(k, "data.val.size") &&
	    ct__check_fine(k, "data.val.resize"))
		ct__check_problem(k, "data.val.resize",
				  "data.val.resize=%lld is smaller than the crop (data.val.size=%lld)",
				  (long long)c->data.val_resize, (long long)size);
}

static void check_labels(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	static const char *const parts[] = {"data.val_labels", "data.labels.image", "data.labels.class",
					    "data.labels.split"};

	for (size_t i = 0; i < CT_ARRAY_LEN(parts) && !c->data.labels[0]; i++) {
		if (!ct__key_is_unset(ct__key_find(parts[i]), c))
			ct__check_problem(k, parts[i], "%s requires data.labels, the file for the training data",
					  parts[i]);
	}
	if (c->data.labels[0] && c->data.val[0] && strcmp(c->data.val, "none") != 0 && !c->data.val_labels[0])
		ct__check_problem(
			k, "data.val",
			"with data.labels, data.val requires data.val_labels, a file with the classes of its images");
}

static void check_data(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	int64_t elems = 1;

	if (c->data.shape.n != 0 && c->data.shape.n != 3)
		ct__check_problem(k, "data.shape", "data.shape has %d entries instead of 3: [channels, height, width]",
				  c->data.shape.n);
	for (int i = 0; i < c->data.shape.n; i++)
		elems = elems > INT32_MAX ? elems : elems * c->data.shape.v[i];
	if (elems > 1 << 24)
		ct__check_problem(k, "data.shape", "data.shape: a sample may not have more than 16777216 numbers");
	if (ct__check_fine(k, "data.mean") && ct__check_fine(k, "data.std") && c->data.mean.n != c->data.std.n)
		ct__check_problem(k, c->data.std.n > 0 ? "data.std" : "data.mean",
				  "data.mean has %d entries and data.std has %d; both must have one entry per channel",
				  c->data.mean.n, c->data.std.n);
	if (c->data.shuffle == CT_CFG_SHUFFLE_WINDOW && c->data.name != CT_CFG_DATA_SHARDS &&
	    ct__check_fine(k, "data.name") && ct__check_fine(k, "data.shuffle"))
		ct__check_problem(k, "data.shuffle", "data.shuffle=window requires data.name=shards; use global for %s",
				  ct_config_choice(c, "data.name"));
	check_labels(k);
	check_pair(k, "data.augment.area", &c->data.augment.area);
	check_pair(k, "data.augment.ratio", &c->data.augment.ratio);
	check_val_size(k);
	if (c->data.augment.scale_min > c->data.augment.scale_max && ct__check_fine(k, "data.augment.scale_min") &&
	    ct__check_fine(k, "data.augment.scale_max"))
		ct__check_problem(k, "data.augment.scale_min", "data.augment.scale_min is larger than scale_max");
}

/* What is decided from evaluations needs some. */
static void check_evaluations(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const struct {
		const char *key, *metric_key;
		bool on;
		enum ct_cfg_metric metric;
	} uses[] = {
		{"schedule.name", "schedule.metric", c->schedule.name == CT_LR_PLATEAU, c->schedule.metric},
		{"train.early_stop.patience", "train.early_stop.metric", c->train.early_stop.patience > 0,
		 c->train.early_stop.metric},
	};

	for (size_t i = 0; i < CT_ARRAY_LEN(uses); i++) {
		if (!uses[i].on)
			continue;
		if (strcmp(c->data.val, "none") == 0 || c->train.eval_every == 0)
			ct__check_problem(k, uses[i].key, "%s requires evaluations during training; set %s",
					  uses[i].key, c->train.eval_every == 0 ? "train.eval_every" : "data.val");
		if (uses[i].metric == CT_CFG_METRIC_TOP1 && c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION)
			ct__check_problem(k, uses[i].metric_key, "%s=top1 requires class labels", uses[i].metric_key);
	}
}

static void check_learning(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const struct ct_float_list *m = &c->schedule.milestones;

	if (c->optim.nesterov && c->optim.momentum == 0 && ct__check_fine(k, "optim.momentum") &&
	    c->optim.name == CT_SGD)
		ct__check_problem(k, "optim.nesterov", "optim.nesterov requires optim.momentum above 0");
	if (c->schedule.name == CT_LR_MULTISTEP && m->n == 0 && ct__check_fine(k, "schedule.milestones"))
		ct__check_problem(k, "schedule.name",
				  "schedule.name=multistep requires schedule.milestones, for example [30, 60, 80]");
	if (ct_lr_factors_check((const char *const *)c->optim.lr_factors.v, c->optim.lr_factors.n, NULL) < 0) {
		ct__check_problem(k, "optim.lr_factors", "optim.lr_factors: %s; %s", ct_error_message(),
				  ct_error_hint_text());
		ct_error_clear();
	}
	check_evaluations(k);
	for (int i = 1; i < m->n; i++) {
		if (m->v[i] <= m->v[i - 1]) {
			ct__check_problem(k, "schedule.milestones", "schedule.milestones must increase");
			break;
		}
	}
}

void ct__check_training(struct ct_checker *k)
{
	check_batch_and_length(k);
	check_model(k);
	check_data(k);
	check_learning(k);
}
