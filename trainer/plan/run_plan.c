#include "trainer/plan/run_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "trainer/plan/cpus.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/elastic.h"
#include "trainer/plan/ready.h"

enum ct_status ct_plan_ranks(const struct ct_config *c, struct ct_ranks *out)
{
	struct ct_ranks r = {
		.local = ct_plan_local_procs(c), .node = (int)c->launch.node_rank, .n_nodes = (int)c->launch.nodes};
	const char *list = c->launch.procs_list;
	if (r.node >= r.n_nodes)
		return CT_FAIL(CT_USAGE, "--node-rank %d, but --nodes is %d (node ranks count from 0)", r.node,
			       r.n_nodes);
	r.first = r.node * r.local;
	r.world = r.n_nodes * r.local;
	if (list[0])
		r.first = r.world = 0;
	int node = 0;
	for (const char *p = list; *p; node++) {
		char *end;
		long k = strtol(p, &end, 10);
		if (end == p || k < 1 || k > 4096 || (*end && *end != ',') || (*end && !end[1]))
			return CT_FAIL(CT_USAGE, "--procs %s: expected positive numbers separated by commas", list);
		if (node < r.node)
			r.first += (int)k;
		if (node == r.node)
			r.local = (int)k;
		r.world += (int)k;
		p = *end ? end + 1 : end;
	}
	if (list[0] && node != r.n_nodes)
		return CT_FAIL(CT_USAGE, "--procs %s is for %d nodes, but --nodes is %d", list, node, r.n_nodes);
	*out = r;
	return CT_OK;
}

int *ct_plan_first_ranks(const struct ct_config *c, const struct ct_ranks *r)
{
	const char *list = c->launch.procs_list;
	int *first = CT_NEW_ARRAY(int, (size_t)r->n_nodes + 1);
	for (int k = 0; first && k < r->n_nodes; k++) {
		char *end = NULL;
		first[k + 1] = first[k] + (list[0] ? (int)strtol(list, &end, 10) : r->local);
		if (end)
			list = end + (*end == ',');
	}
	return first;
}

enum ct_status ct_plan_stages(const struct ct_config *c, int world, int rank, struct ct_stages *out)
{
	const int n = (int)c->launch.pipeline;
	if (world % n != 0)
		return CT_FAIL_HINT(CT_CONFIG, "use a multiple, for example --procs with the number of stages",
				    "launch.pipeline=%d does not divide the %d rank%s of this run", n, world,
				    ct_plural(world));
	struct ct_plan_devices d;
	if (n > 1)
		CT_TRY(ct_plan_devices(c, &d));
	if (n > 1 && strcmp(d.kind, "cpu") != 0)
		return CT_FAIL_HINT(CT_CONFIG, "set device=cpu, or launch.pipeline=1",
				    "launch.pipeline=%d with device=%s: the stages of a pipeline run only on CPUs", n,
				    d.kind);
	if (n > 1 && n < world && strcmp(c->dist.backend, "mpi") == 0)
		return CT_FAIL_HINT(
			CT_CONFIG, "use another dist.backend, or as many stages as ranks",
			"launch.pipeline=%d with %d ranks and dist.backend=mpi: the ranks of a stage need a separate "
			"communicator, but communicator \"mpi\" always contains all ranks",
			n, world);
	*out = (struct ct_stages){.n = n, .stage = rank % n, .replica = rank / n, .n_replicas = world / n};
	return CT_OK;
}

/* Returns the number of loader threads for this number of CPUs. One thread augments 28x28 images about as fast as seven
 * threads train an MLP on them. */
static int loader_share(int cpus)
{
	return (cpus + 7) / 8;
}

bool ct_plan_is_encoded(const struct ct_config *c)
{
	return c->data.name == CT_CFG_DATA_IMAGEFOLDER || c->data.name == CT_CFG_DATA_SHARDS;
}

/* Returns true if loading takes enough time for a separate thread. */
static bool loads_slowly(const struct ct_config *c)
{
	struct ct_augment augment;
	ct_plan_augment(c, &augment);
	return ct_plan_is_encoded(c) || ct_augment_is_costly(&augment);
}

int ct_plan_threads(const struct ct_config *c, int local_world)
{
	if (c->launch.threads > 0)
		return (int)c->launch.threads;
	/* This does not depend on data.workers, because the last bits of the weights depend on the number of compute
	 * threads, and must not depend on data.workers. With fewer than 4 CPUs, none is reserved for a thread that is
	 * idle most of the time. */
	int n = ct_plan_cpus(local_world);
	return n >= 4 && loads_slowly(c) ? n - loader_share(n) : n;
}

int ct_plan_loader_threads(const struct ct_config *c, const struct ct_dataset_info *info, int local_world)
{
	if (c->data.workers >= 0)
		return (int)c->data.workers;
	if (info->in_memory && !loads_slowly(c))
		return 0;
	/* If a GPU computes, the loader uses all CPUs except one, which controls the GPU. */
	int cpus = ct_plan_cpus(local_world);
	if (ct_plan_is_encoded(c) && !ct_plan_on_cpu(c))
		return cpus > 1 ? cpus - 1 : 1;
	return loader_share(cpus);
}

enum ct_status ct_plan_check_precision(const struct ct_config *c, const ct_engine *e)
{
	return ct_engine_check_precision(e, c->precision);
}

enum ct_status ct_plan_check_engine(const struct ct_config *c)
{
	ct_device *device = NULL;
	ct_engine *engine = NULL;
	/* Every engine supports fp32. A GPU is opened by its rank only, because it would occupy memory here, too. */
	if (c->precision == CT_PRECISION_FP32 || !ct_plan_on_cpu(c))
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
		return ct_error_hinted(CT_FAIL(CT_CONFIG,
					       "batch.global %llu is not divisible by %u %s x train.accumulate %lld",
					       (unsigned long long)global, world,
					       c->launch.pipeline > 1 ? "replicas" : "ranks", (long long)accumulate),
				       "use a multiple of %llu, for example batch.global=%llu, or set batch.per_rank",
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
		.precision = c->precision,
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
		return CT_FAIL_HINT(
			CT_CONFIG, "use a smaller batch or data.drop_last=false",
			"an epoch of %u samples contains no full batch of %u samples, and data.drop_last is set",
			train->n, p->global_batch);
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
	return CT_FAIL_HINT(
		CT_DATA,
		c->data.name == CT_CFG_DATA_SHARDS
			? "set data.classes to the number of classes, or data.classes_file to a file with their names"
			: "training and evaluation data must have the same classes",
		"the evaluation data has %d classes, but the training data has %d", val->n_classes, train->n_classes);
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
	return CT_FAIL_HINT(
		CT_CONFIG, "skip that batch: data.drop_last=true",
		"model.bn=sync requires samples on every rank, but the last batch of an epoch (%llu samples) has none for rank %u",
		(unsigned long long)(p->train.n - (p->steps_per_epoch - 1) * p->global_batch), s.rank);
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

static enum ct_status choose_trained(const struct ct_config *c, ct_graph *g)
{
	const struct ct_str_list *freeze = &c->model.freeze, *factors = &c->optim.lr_factors;
	if (freeze->n > 0 && ct_graph_freeze(g, (const char *const *)freeze->v, freeze->n, c->model.freeze_stats) < 0)
		return ct_error_wrap("model.freeze");
	if (ct_lr_factors_check((const char *const *)factors->v, factors->n, g) < 0)
		return ct_error_wrap("optim.lr_factors");
	return CT_OK;
}

enum ct_status ct_plan_model(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     struct ct_plan_model *out)
{
	for (int i = 0; i < c->model.hidden.n; i++)
		out->hidden[i] = (int)c->model.hidden.v[i];
	bool regression = train->n_targets > 0;
	bool mse = c->model.loss == CT_CFG_LOSS_MSE || (c->model.loss == CT_CFG_LOSS_AUTO && regression);
	if (mse != regression) {
		return ct_error_hinted(CT_FAIL(CT_CONFIG, "model.loss is %s, but data set %s has %s",
					       ct_config_choice(c, "model.loss"), ct_config_choice(c, "data.name"),
					       regression ? "float targets" : "class labels"),
				       "use model.loss=%s, or auto", regression ? "mse" : "cross_entropy");
	}
	out->spec = (struct ct_model_spec){
		.name = ct_config_choice(c, "model.name"),
		.input = input,
		.n_outputs = regression ? train->n_targets : train->n_classes,
		.loss = mse ? CT_LOSS_MSE : CT_LOSS_CROSS_ENTROPY,
		.label_smoothing = (float)c->model.label_smoothing,
		.hidden = out->hidden,
		.n_hidden = c->model.hidden.n,
		.dropout = (float)c->model.dropout,
		.layers = (const char *const *)c->model.layers.v,
		.n_layers = c->model.layers.n,
		.small_stem = ct_plan_small_stem(c, train),
		.zero_gamma = c->model.zero_gamma,
		.drop_path = (float)c->model.drop_path,
	};
	return CT_OK;
}

enum ct_status ct_plan_graph(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     ct_graph **out)
{
	struct ct_plan_model model;
	CT_TRY(ct_plan_model(c, train, input, &model));
	CT_TRY(ct_model_build(&model.spec, out));
	enum ct_status st = choose_trained(c, *out);
	if (st < 0) {
		ct_graph_destroy(*out);
		*out = NULL;
	}
	return st;
}

/* A sum of many 16-bit numbers, of which each intermediate result is rounded, loses precision. */
enum { REDUCE_16_MAX_WORLD = 64 };

static enum ct_dtype reduce_type(const struct ct_config *c, const ct_device *d, uint32_t world)
{
	const bool gpu = strcmp(ct_device_kind(d), "cuda") == 0;

	if (world == 1)
		return CT_F32;
	switch (c->dist.reduce_dtype) {
	case CT_CFG_REDUCE_DTYPE_FP32:
		return CT_F32;
	case CT_CFG_REDUCE_DTYPE_BF16:
		return CT_BF16;
	case CT_CFG_REDUCE_DTYPE_FP16:
		return CT_F16;
	case CT_CFG_REDUCE_DTYPE_AUTO:
		break;
	}
	if (!gpu || world > REDUCE_16_MAX_WORLD)
		return CT_F32;
	return c->precision == CT_PRECISION_BF16 ? CT_BF16 : c->precision == CT_PRECISION_FP16 ? CT_F16 : CT_F32;
}

void ct_run_plan_reduce(const struct ct_config *c, const ct_device *d, struct ct_run_plan *p)
{
	p->net.reduce_type = reduce_type(c, d, p->world);
	p->optim.check_norm = p->net.reduce_type == CT_F16; /* a gradient or a sum may be out of range */
}

size_t ct_plan_bucket_bytes(const struct ct_config *c)
{
	const double usual_mib = ct_plan_on_cpu(c) ? 4 : 25;

	return (size_t)((c->dist.bucket_mib > 0 ? c->dist.bucket_mib : usual_mib) * (1 << 20));
}

static size_t first_bucket_bytes(const struct ct_config *c)
{
	return (size_t)(c->dist.first_bucket_mib * (1 << 20));
}

static enum ct_status bucket_slices(const ct_net *net, struct ct_bucket_slice **out, int *n)
{
	*n = ct_net_n_trained(net);
	if (*n == 0) {
		return CT_FAIL_HINT(CT_CONFIG, "add a linear or conv2d layer to model.layers",
				    "the model has no parameters to train");
	}
	CT_TRY_ALLOC(*out = CT_NEW_ARRAY(struct ct_bucket_slice, (size_t)*n));
	for (int i = 0; i < *n; i++) {
		const struct ct_slice *from = ct_net_slice(net, i);
		(*out)[i] = (struct ct_bucket_slice){from->offset, from->n, from->dtype};
	}
	return CT_OK;
}

enum ct_status ct_plan_buckets(const struct ct_config *c, const ct_net *net, size_t cap_bytes, struct ct_bucket **out,
			       int *n_out)
{
	struct ct_bucket_slice *slices;
	int n;
	CT_TRY(bucket_slices(net, &slices, &n));
	enum ct_status st = ct_bucket_plan(slices, n, first_bucket_bytes(c), cap_bytes, out, n_out);
	ct_free(slices);
	return st;
}

enum ct_status ct_plan_choose_buckets(const struct ct_config *c, const ct_net *net,
				      const struct ct_allreduce_time *times, int n_times, size_t *cap_bytes)
{
	struct ct_bucket_slice *slices;
	double *ready = NULL;
	int n;
	CT_TRY(bucket_slices(net, &slices, &n));
	enum ct_status st = ct_plan_ready_by_flops(net, &ready);
	if (st == CT_OK)
		st = ct_bucket_choose_size(slices, ready, n, first_bucket_bytes(c), times, n_times, cap_bytes);
	ct_free(ready);
	ct_free(slices);
	return st;
}
