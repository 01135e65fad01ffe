/* What a config means for one world size and data set: batch sizes, steps, learning rate, and the option structs of nn
 * and data. Without side effects, except that it opens data sets. Training, `ctrain plan`, `ctrain eval` and the benchmarks use
 * the same plan. */
#ifndef CT_TRAINER_PLAN_RUN_PLAN_H
#define CT_TRAINER_PLAN_RUN_PLAN_H

#include "data/loader/loader.h"
#include "dist/bucket.h"
#include "nn/models/model.h"
#include "nn/optim/optim.h"
#include "nn/optim/schedule.h"
#include "trainer/config/config.h"

struct ct_run_plan {
	uint32_t world;
	uint32_t global_batch; /* samples of an optimizer step */
	uint32_t per_rank;     /* of these, per rank */
	uint32_t accumulate, micro_rows;
	uint32_t eval_rows;                    /* per rank and batch */
	uint64_t steps_per_epoch, total_steps; /* total: after epochs and max_steps */
	uint32_t epochs;                       /* rounded up from total_steps */
	double lr;                             /* after lr_rule */
	struct ct_schedule schedule;
	struct ct_optim_opts optim;
	struct ct_sampler train, val;                 /* of rank 0; set .rank */
	struct ct_transform transform, val_transform; /* of training and evaluation images */
	struct ct_loader_size sizes[16];              /* of training images by epoch; none: the size of the data */
	int n_sizes;
	struct ct_shape input, val_input; /* of the model: training in epoch 0, evaluation */
	float mixup, cutmix;
	uint64_t max_bad, max_bad_val; /* allowed unreadable samples of an epoch and of an evaluation, over all ranks */
	struct ct_net_opts net;        /* the session sets sync */
	enum ct_init init;
	bool has_val, regression, encoded;
};

struct ct_ranks {
	int local, first, world; /* ranks of this node, the first of them, ranks of all nodes */
	int node, n_nodes;
};
/* From launch.procs (or its per-node list), launch.nodes and launch.node_rank. */
enum ct_status ct_plan_ranks(const struct ct_config *c, struct ct_ranks *out) CT_MUST_CHECK;
/* CT_CONFIG if the batch is not a multiple of ranks * accumulation steps. Checked before any process is started. */
enum ct_status ct_plan_check_batch(const struct ct_config *c, uint32_t world) CT_MUST_CHECK;
/* Ranks of this node: launch.procs. auto: one per GPU; without GPUs 2, or 1 if there is one CPU. */
int ct_plan_local_procs(const struct ct_config *c);
/* launch.threads. auto: the CPUs divided by the local ranks, at least 1. If that is 4 or more and images are decoded, warped or
 * recolored, one eighth is kept for the loader threads. */
int ct_plan_threads(const struct ct_config *c, int local_world);
/* data.workers. auto: 0 for small images in memory, which are faster to prepare inline than to pass between threads; else one
 * eighth of the rank's CPUs, at least 1; for compressed images and a GPU all CPUs but one. */
int ct_plan_loader_threads(const struct ct_config *c, const struct ct_dataset_info *info, int local_world);
/* For hints, how to continue a run that ended early: "run the same command again", or with train.resume=auto if that would start
 * from scratch. A literal. */
const char *ct_plan_how_to_resume(const struct ct_config *c);
/* run.dir or its default, without trailing slashes (RUN.old-1 is created next to it). Returns owned. */
char *ct_plan_run_dir(const struct ct_config *c);
/* The device of a rank: its own GPU, or the host's CPUs. launch.devices without GPUs is CT_CONFIG. */
enum ct_status ct_plan_device_open(const struct ct_config *c, int local_rank, ct_device **out) CT_MUST_CHECK;
/* Does the engine compute in the config's precision? CT_UNSUPPORTED with the reason and the alternatives. */
enum ct_status ct_plan_check_precision(const struct ct_config *c, const ct_engine *e) CT_MUST_CHECK;
/* The same for the config's engine on this host, before ranks are started. */
enum ct_status ct_plan_check_engine(const struct ct_config *c) CT_MUST_CHECK;
/* The id by which ranks of one run recognize each other: dist.run_id, else the launcher's id ("": none), else the name of the run.
 * Borrowed. */
const char *ct_plan_run_id(const struct ct_config *c, const char *launchers);

void ct_plan_dataset_spec(const struct ct_config *c, bool train, struct ct_dataset_spec *out);
/* Opens the training or evaluation data. other (may be NULL): the data set that was opened before. Its number of classes is used
 * for this one, too, if the config does not set it. */
enum ct_status ct_plan_open_data(const struct ct_config *c, bool train, const struct ct_dataset_info *other,
				 ct_dataset **out) CT_MUST_CHECK;
bool ct_plan_has_val(const struct ct_config *c);
/* Are the samples compressed images? */
bool ct_plan_is_encoded(const struct ct_config *c);
/* model.stem. auto: the small one if training images have at most 64 pixels (the largest size of data.train.size). */
bool ct_plan_small_stem(const struct ct_config *c, const struct ct_dataset_info *train);
/* Fills in transforms, sizes and limits of unreadable samples. Batch, steps and net are set already. */
enum ct_status ct_plan_data(const struct ct_config *c, const struct ct_dataset_info *train,
			    const struct ct_dataset_info *val, struct ct_run_plan *p) CT_MUST_CHECK;
/* data.augment.*, except the mean, and what is not an operation on one image (crops of encoded images, mixup, CutMix). */
void ct_plan_augment(const struct ct_config *c, struct ct_augment *out);
/* Shape of training images in an epoch. */
struct ct_shape ct_plan_input_at(const struct ct_run_plan *p, uint32_t epoch);
/* Everything except the callback for unreadable samples (on_bad). */
void ct_plan_loader_opts(const struct ct_config *c, const struct ct_run_plan *p, const struct ct_dataset_info *info,
			 bool train, uint32_t rank, int local_world, struct ct_loader_opts *out);
/* CT_CONFIG if the parts do not match (batch not divisible by ranks and accumulation steps, data of another shape than the model,
 * an epoch without a step). One of the data sets may be NULL. Without train the plan has no batch, steps, schedule or optimizer. */
enum ct_status ct_run_plan_make(const struct ct_config *c, uint32_t world, const struct ct_dataset_info *train,
				const struct ct_dataset_info *val, struct ct_run_plan *out) CT_MUST_CHECK;
/* What the config alone determines about the data. n is a guess. h is 0 if the shape is known from the files only (idx). If the
 * number of classes is known from the files only, n_classes is 2, or 0 with model.layers, which determine it (nn/models/model.h). */
enum ct_status ct_plan_foresee_data(const struct ct_config *c, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Checks that the network can be built, before data is opened: CT_CONFIG with the place in the config, or CT_DATA if data files
 * exist and their headers contain another shape than the config. */
enum ct_status ct_plan_check_model(const struct ct_config *c) CT_MUST_CHECK;
/* Whether the files of the training and evaluation data exist; no sample is read. Otherwise all problems, one a line, as
 * "FILE:LINE:COLUMN: error: data.dir: ...", with the status that opening the data would have. */
enum ct_status ct_plan_check_data(const struct ct_config *c) CT_MUST_CHECK;
/* The graph of the config for this data and images of shape `input`. Returns owned. */
enum ct_status ct_plan_graph(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     ct_graph **out) CT_MUST_CHECK;
/* Checks that the weights have the same shapes for all image sizes of training and evaluation. If not (a linear layer directly
 * after a flattened image), CT_CONFIG names the tensor. g: the graph for the first size of the plan. */
enum ct_status ct_plan_check_sizes(const struct ct_config *c, const struct ct_dataset_info *train,
				   const struct ct_run_plan *p, const ct_graph *g) CT_MUST_CHECK;
/* Reduce buckets over the net's gradient arena, caps from dist.*. Returns owned (ct_free). */
enum ct_status ct_plan_buckets(const struct ct_config *c, const ct_net *net, struct ct_bucket **out,
			       int *n) CT_MUST_CHECK;

#endif
