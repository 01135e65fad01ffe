/* The plan is computed from the config, the number of replicas and what is known of the data, and from nothing else:
 * all ranks compute the same plan, `ctrain plan` shows it without training, and tests need no device. It has no side
 * effects. Parts build on each other in this order: batch, steps, optimizer, schedule, net, data. Whatever would fail
 * later on some rank, or only in the last step of an epoch, is refused here, for example a last batch that leaves a
 * rank without samples with synchronized batch norm. Numbers of steps come from epochs by rounding, in one function, so
 * that warmup, steps and milestones agree. */
#include "trainer/plan/run_plan.h"

#include <math.h>
#include <string.h>

#include "trainer/plan/devices.h"
#include "trainer/plan/elastic.h"
#include "trainer/plan/precision.h"

enum { STEPS_PER_PART = 40 }; /* of the self check */

enum ct_status ct_plan_check_precision(const struct ct_config *c, const ct_engine *e)
{
	return ct_engine_check_precision(e, ct_plan_precision(c));
}

enum ct_status ct_plan_check_engine(const struct ct_config *c)
{
	ct_device *device = NULL;
	ct_engine *engine = NULL;

	CT_TRY(ct_plan_limit_cpu(c));
	/* Every engine supports fp32. A GPU is opened by its rank only, because it would occupy memory here, too. */
	if (ct_plan_precision(c) == CT_PRECISION_FP32 || !ct_plan_on_cpu(c))
		return CT_OK;
	CT_TRY(ct_plan_device_open(c, 0, &device));
	enum ct_status st = ct_engine_open(c->train.engine, device, 1, &engine);
	if (st == CT_OK)
		st = ct_plan_check_precision(c, engine);
	ct_engine_close(engine);
	ct_device_close(device);
	return st;
}

const char *ct_plan_run_id(const struct ct_config *c, const char *launchers)
{
	const char *name = launchers[0] ? launchers : c->run.name;
	size_t len = strlen(name),
	       most = 48; /* the limit of the store; the end of a long name is kept, because it differs between runs */

	if (c->dist.run_id[0])
		return c->dist.run_id;
	return len == 0 ? "run" : len > most ? name + len - most : name;
}

const char *ct_plan_how_to_resume(const struct ct_config *c)
{
	bool same = strcmp(c->train.resume, "auto") == 0 || strcmp(c->train.resume, "must") == 0;

	return same ? "run the same command again" : "run the command again with train.resume=auto";
}

char *ct_plan_run_dir(const struct ct_config *c)
{
	size_t len = strlen(c->run.dir);

	while (len > 1 && c->run.dir[len - 1] == '/')
		len--;
	if (len > 0)
		return ct_strfmt("%.*s", (int)len, c->run.dir);
	return ct_strfmt("runs/%s", c->run.name[0] ? c->run.name : "run");
}

static enum ct_status plan_batch(const struct ct_config *c, uint32_t world, struct ct_run_plan *p)
{
	uint64_t accumulate;

	CT_TRY(ct_plan_accumulate(c, world, &accumulate));
	uint64_t parts = (uint64_t)world * accumulate;
	uint64_t global = c->batch.global > 0 ? (uint64_t)c->batch.global : (uint64_t)c->batch.per_rank * parts;
	if (global % parts != 0) {
		CT_FAIL(CT_CONFIG, "batch.global %llu is not divisible by %u %s x train.accumulate %lld",
			(unsigned long long)global, world, c->launch.pipeline > 1 ? "replicas" : "ranks",
			(long long)accumulate);
		return ct_error_hint("use a multiple of %llu, for example batch.global=%llu, or set batch.per_rank",
				     (unsigned long long)parts, (unsigned long long)((global / parts + 1) * parts));
	}
	if (global > UINT32_MAX / 2)
		return CT_FAIL(CT_CONFIG, "a global batch of %llu samples is too large", (unsigned long long)global);
	p->accumulate = (uint32_t)accumulate;
	p->global_batch = (uint32_t)global;
	p->per_rank = p->global_batch / world;
	p->micro_rows = p->per_rank / p->accumulate;
	return CT_OK;
}

enum ct_status ct_plan_check_batch(const struct ct_config *c, uint32_t world)
{
	struct ct_run_plan p = {0};

	return ct_plan_is_elastic(c) ? ct_plan_check_elastic(c) : plan_batch(c, world, &p);
}

static uint64_t epochs_to_steps(double epochs, uint64_t per_epoch)
{
	return (uint64_t)llround(epochs * (double)per_epoch);
}

static void plan_schedule(const struct ct_config *c, struct ct_run_plan *p)
{
	uint64_t per = p->steps_per_epoch;
	struct ct_schedule *s = &p->schedule;

	*s = (struct ct_schedule){
		.kind = c->schedule.name,
		.base_lr = p->lr,
		.total_steps = p->total_steps,
		.warmup_steps = c->schedule.warmup_steps > 0 ? (uint64_t)c->schedule.warmup_steps
							     : epochs_to_steps(c->schedule.warmup_epochs, per),
		.warmup_start = c->schedule.warmup_start,
		.min_lr = c->schedule.min_lr,
		.gamma = c->schedule.gamma,
		.step_size = epochs_to_steps(c->schedule.step_epochs, per),
		.power = c->schedule.power,
		.pct_start = c->schedule.pct_start,
		.div_factor = c->schedule.div_factor,
		.final_div_factor = c->schedule.final_div_factor,
	};
	if (s->kind == CT_LR_PLATEAU)
		p->plateau = (struct ct_plateau_opts){.gamma = c->schedule.gamma,
						      .min_lr = c->schedule.min_lr,
						      .threshold = c->schedule.threshold,
						      .patience = (uint32_t)c->schedule.patience,
						      .cooldown = (uint32_t)c->schedule.cooldown,
						      .larger = c->schedule.metric == CT_CFG_METRIC_TOP1};
	if (s->step_size == 0)
		s->step_size = 1;
	for (int i = 0; i < c->schedule.milestones.n && i < CT_MAX_MILESTONES; i++)
		s->milestones[s->n_milestones++] = epochs_to_steps(c->schedule.milestones.v[i], per);
}

static void plan_optim(const struct ct_config *c, struct ct_run_plan *p)
{
	p->lr = c->optim.lr;
	if (c->optim.lr_rule == CT_CFG_LR_RULE_LINEAR)
		p->lr *= (double)p->global_batch / (double)c->optim.lr_base_batch;
	p->optim = (struct ct_optim_opts){
		.kind = c->optim.name,
		.momentum = c->optim.momentum,
		.nesterov = c->optim.nesterov,
		.weight_decay = c->optim.weight_decay,
		.decay_norm_bias = c->optim.decay_norm_bias,
		.beta1 = c->optim.beta1,
		.beta2 = c->optim.beta2,
		.eps = c->optim.eps,
		.clip_norm = c->optim.clip_norm,
		.trust = c->optim.trust,
		.lr_factors = (const char *const *)c->optim.lr_factors.v,
		.n_lr_factors = c->optim.lr_factors.n,
		.loss_scale = c->optim.loss_scale,
		.loss_scale_interval = (uint32_t)c->optim.loss_scale_interval,
	};
	p->init = c->model.init == CT_CFG_INIT_AUTO      ? ct_model_init(ct_config_choice(c, "model.name"))
		  : c->model.init == CT_CFG_INIT_KAIMING ? CT_INIT_KAIMING
							 : CT_INIT_PYTORCH;
}

static enum ct_status plan_net(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_run_plan *p)
{
	p->net = (struct ct_net_opts){
		.batch = (int)p->micro_rows,
		.input = train->kind == CT_SAMPLE_F32 ? CT_INPUT_F32_NCHW : CT_INPUT_U8_NHWC,
		.seed = (uint64_t)c->run.seed,
		.train = true,
		.precision = ct_plan_precision(c),
		.recompute = c->train.recompute,
		.autotune = c->train.autotune,
		.nondeterministic = !c->train.deterministic,
	};
	for (int i = 0; i < 4; i++) {
		p->net.mean[i] = i < c->data.mean.n ? (float)c->data.mean.v[i] : train->mean[i];
		p->net.std[i] = i < c->data.std.n ? (float)c->data.std.v[i] : train->std[i];
		if (p->net.std[i] <= 0)
			p->net.std[i] = 1;
	}
	if (c->data.mean.n > 0 && train->kind != CT_SAMPLE_F32 && c->data.mean.n != train->c)
		return CT_FAIL(CT_CONFIG, "data.mean has %d values, but the images have %d channels", c->data.mean.n,
			       train->c);
	if (c->data.std.n > 0 && train->kind != CT_SAMPLE_F32 && c->data.std.n != train->c)
		return CT_FAIL(CT_CONFIG, "data.std has %d values, but the images have %d channels", c->data.std.n,
			       train->c);
	return CT_OK;
}

static enum ct_status plan_steps(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_run_plan *p)
{
	p->train = (struct ct_sampler){.n = train->n,
				       .global_batch = p->global_batch,
				       .world = p->world,
				       .accumulate = p->accumulate,
				       .seed = (uint64_t)c->run.seed,
				       .shuffle = c->data.shuffle != CT_CFG_SHUFFLE_NONE,
				       .balanced = c->data.shuffle == CT_CFG_SHUFFLE_BALANCED,
				       .drop_last = c->data.drop_last};
	p->steps_per_epoch = ct_sampler_steps(&p->train);
	if (p->steps_per_epoch == 0) {
		CT_FAIL(CT_CONFIG,
			"an epoch of %u samples contains no full batch of %u samples, and data.drop_last is set",
			train->n, p->global_batch);
		return ct_error_hint("use a smaller batch or data.drop_last=false");
	}
	uint64_t total = c->train.epochs > 0 ? (uint64_t)c->train.epochs * p->steps_per_epoch : UINT64_MAX;
	if (c->train.max_steps > 0 && (uint64_t)c->train.max_steps < total)
		total = (uint64_t)c->train.max_steps;
	p->total_steps = total;
	p->epochs = (uint32_t)((total + p->steps_per_epoch - 1) / p->steps_per_epoch);
	return CT_OK;
}

static enum ct_status check_val(const struct ct_config *c, const struct ct_dataset_info *train,
				const struct ct_dataset_info *val)
{
	if (val->c != train->c || val->h != train->h || val->w != train->w || val->n_targets != train->n_targets)
		return CT_FAIL(CT_DATA,
			       "evaluation data is %dx%dx%d, but training data is %dx%dx%d; the shapes must be equal",
			       val->c, val->h, val->w, train->c, train->h, train->w);
	if (val->n_classes <= train->n_classes)
		return CT_OK;
	CT_FAIL(CT_DATA, "the evaluation data has %d classes, but the training data has %d", val->n_classes,
		train->n_classes);
	return ct_error_hint(
		"%s",
		c->data.name == CT_CFG_DATA_SHARDS
			? "set data.classes to the number of classes, or data.classes_file to a file with their names"
			: "training and evaluation data must have the same classes");
}

static enum ct_status has_batch_norm(const struct ct_config *c, const struct ct_dataset_info *train,
				     const struct ct_run_plan *p, bool *out)
{
	ct_graph *g = NULL;

	*out = false;
	CT_TRY(ct_plan_graph(c, train, p->input, &g));
	for (int i = 0; i < ct_graph_n_nodes(g); i++)
		*out = *out || ct_graph_node(g, i)->op == CT_OP_BATCH_NORM;
	ct_graph_destroy(g);
	return CT_OK;
}

/* Statistics over all ranks are computed by a collective, so every rank needs samples in every micro-batch. */
static enum ct_status check_sync_bn(const struct ct_config *c, const struct ct_dataset_info *train,
				    const struct ct_run_plan *p)
{
	struct ct_sampler s = p->train;
	bool any;

	if (c->model.bn != CT_CFG_BN_SYNC || p->world == 1 || p->total_steps < p->steps_per_epoch)
		return CT_OK;
	s.rank = p->world - 1;
	if (ct_sampler_slice(&s, p->steps_per_epoch - 1, p->accumulate - 1).count > 0)
		return CT_OK;
	CT_TRY(has_batch_norm(c, train, p, &any));
	if (!any)
		return CT_OK;
	CT_FAIL(CT_CONFIG,
		"model.bn=sync requires samples on every rank, but the last batch of an epoch (%llu samples) has none for rank %u",
		(unsigned long long)(p->train.n - (p->steps_per_epoch - 1) * p->global_batch), s.rank);
	return ct_error_hint("skip that batch: data.drop_last=true");
}

bool ct_plan_self_checks(const struct ct_config *c, uint64_t part, uint64_t left)
{
	if (c->train.self_check == CT_CFG_SELF_CHECK_AUTO)
		return left / STEPS_PER_PART >= part;
	return c->train.self_check == CT_CFG_SELF_CHECK_ON;
}

static enum ct_status plan_training(const struct ct_config *c, const struct ct_dataset_info *train,
				    struct ct_run_plan *p)
{
	CT_TRY(plan_batch(c, p->world, p));
	CT_TRY(plan_steps(c, train, p));
	plan_optim(c, p);
	plan_schedule(c, p);
	return CT_OK;
}

/* Returns batch.eval, but at most a rank's share of a small data set, because the rest of the batch would be computed
 * in vain. */
static uint32_t eval_rows(const struct ct_config *c, uint32_t world, const struct ct_dataset_info *val)
{
	uint32_t rows = c->batch.eval > 0 ? (uint32_t)c->batch.eval : 256;
	uint32_t share = val && val->n > 0 && world > 0 ? (uint32_t)((val->n + world - 1) / world) : rows;

	return share < rows ? share : rows;
}

enum ct_status ct_run_plan_make(const struct ct_config *c, uint32_t world, const struct ct_dataset_info *train,
				const struct ct_dataset_info *val, struct ct_run_plan *out)
{
	const struct ct_dataset_info *any = train ? train : val;
	struct ct_run_plan p = {
		.world = world, .eval_rows = eval_rows(c, world, val), .regression = any->n_targets > 0};

	if (train)
		CT_TRY(plan_training(c, train, &p));
	CT_TRY(plan_net(c, any, &p));
	if (val) {
		CT_TRY(check_val(c, any, val));
		p.has_val = true;
		p.val = (struct ct_sampler){
			.n = val->n, .global_batch = p.eval_rows * world, .world = world, .accumulate = 1};
	}
	CT_TRY(ct_plan_data(c, any, val, &p));
	if (train)
		CT_TRY(check_sync_bn(c, train, &p));
	*out = p;
	return CT_OK;
}
