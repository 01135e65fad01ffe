/* Derives a plan from a config, for a given world size and data set: batch sizes, steps, learning rate, and the option
 * structs of nn and data. This has no side effects, except that it opens data sets. Training, `ctrain plan`, `ctrain
 * eval` and the benchmarks use the same plan. */
#ifndef CT_TRAINER_PLAN_RUN_PLAN_H
#define CT_TRAINER_PLAN_RUN_PLAN_H

#include "data/loader/loader.h"
#include "dist/bucket_size.h"
#include "nn/models/model.h"
#include "nn/optim/lr_schedule.h"
#include "nn/optim/optim.h"
#include "trainer/config/config.h"

struct ct_run_plan {
	uint32_t world;        /* ranks, or replicas of a pipeline, among which the samples are divided */
	uint32_t global_batch; /* samples per optimizer step */
	uint32_t per_rank;     /* samples per optimizer step on each rank */
	uint32_t accumulate, micro_rows;
	uint32_t eval_rows;                    /* per rank and batch */
	uint64_t steps_per_epoch, total_steps; /* total_steps takes epochs and max_steps into account */
	uint32_t epochs;                       /* rounded up from total_steps */
	double lr;                             /* learning rate after optim.lr_rule has been applied */
	struct ct_schedule schedule;
	struct ct_plateau_opts plateau; /* if schedule.kind is CT_LR_PLATEAU */
	struct ct_optim_opts optim;
	struct ct_sampler train, val;                 /* for rank 0; set .rank for other ranks */
	struct ct_transform transform, val_transform; /* of training and evaluation images */
	struct ct_loader_size sizes[16];              /* sizes of training images by epoch, if they change */
	int n_sizes;
	struct ct_shape input, val_input; /* input shapes of the model, for training in epoch 0 and for evaluation */
	float mixup, cutmix;
	uint64_t max_bad,
		max_bad_val; /* number of unreadable samples allowed in an epoch and in an evaluation, over all ranks */
	struct ct_net_opts net; /* the session sets sync */
	enum ct_init init;
	bool has_val, regression, encoded;
};

struct ct_ranks {
	int local, first, world; /* ranks on this node, number of the first of them, ranks on all nodes */
	int node, n_nodes;
};
/* The place of a rank in a pipeline of n stages (launch.pipeline). Ranks 0..n-1 are the stages of replica 0, and so on.
 * A replica processes its own share of the samples. Without a pipeline, n is 1, and each rank is a replica. */
enum { CT_MAX_STAGES = 64 };
struct ct_stages {
	int n, stage, replica, n_replicas;
};
/* Fails with CT_CONFIG if the number of ranks is not a multiple of the number of stages, or if a pipeline is not on
 * CPUs. */
enum ct_status ct_plan_stages(const struct ct_config *c, int world, int rank, struct ct_stages *out) CT_MUST_CHECK;
/* Derived from launch.procs (or its per-node list), launch.nodes and launch.node_rank. */
enum ct_status ct_plan_ranks(const struct ct_config *c, struct ct_ranks *out) CT_MUST_CHECK;
/* Returns the first rank of each node, and the number of ranks in the last element: [r->n_nodes + 1], owned by the
 * caller. NULL if out of memory. */
int *ct_plan_first_ranks(const struct ct_config *c, const struct ct_ranks *r);
/* Fails with CT_CONFIG if the batch size is not a multiple of ranks * accumulation steps, or, if the number of nodes
 * may change, of any possible number of ranks. Called before any process is started. */
enum ct_status ct_plan_check_batch(const struct ct_config *c, uint32_t world) CT_MUST_CHECK;
/* Returns launch.threads. auto is the number of CPUs divided by the number of local ranks, but at least 1. If this is 4
 * or more, and loading includes decoding, warping or color changes, one eighth of it is reserved for the loader
 * threads. */
int ct_plan_threads(const struct ct_config *c, int local_world);
/* Returns whether the self check includes a part that takes as long as this many steps, if so many are left: with
 * train.self_check=auto, each such part takes at most 2.5 % of the run. */
bool ct_plan_self_checks(const struct ct_config *c, uint64_t part, uint64_t left);
/* Returns data.workers. auto is 0 for small images in memory, because preparing them in the main thread is faster than
 * passing them between threads. Otherwise it is one eighth of the rank's CPUs, but at least 1. For compressed images
 * and a GPU, it is the number of CPUs minus one. */
int ct_plan_loader_threads(const struct ct_config *c, const struct ct_dataset_info *info, int local_world);
/* Returns a string for hints that says how to continue a run that ended early: "run the same command again", or, if
 * that would start from scratch, the advice to use train.resume=auto. The result is a string literal. */
const char *ct_plan_how_to_resume(const struct ct_config *c);
/* Returns run.dir or its default, without trailing slashes, because RUN.old-1 is created next to it. The result is
 * owned by the caller. */
char *ct_plan_run_dir(const struct ct_config *c);
/* Fails with CT_UNSUPPORTED if the engine does not support the precision in the config; the error states the reason and
 * the alternatives. */
enum ct_status ct_plan_check_precision(const struct ct_config *c, const ct_engine *e) CT_MUST_CHECK;
/* Does the same for the engine selected by the config on this host, before ranks are started. For a GPU, each rank
 * makes this check. Also fails if this processor does not have train.isa. */
enum ct_status ct_plan_check_engine(const struct ct_config *c) CT_MUST_CHECK;
/* Returns the id by which the ranks of a run recognize each other: dist.run_id, else the launcher's id if it is not "",
 * else the name of the run. The result is borrowed. */
const char *ct_plan_run_id(const struct ct_config *c, const char *launchers);

void ct_plan_dataset_spec(const struct ct_config *c, bool train, struct ct_dataset_spec *out);
/* Opens the training or evaluation data. other is the data set that was opened before, or NULL. If the config does not
 * set the number of classes, that of `other` is used. */
enum ct_status ct_plan_open_data(const struct ct_config *c, bool train, const struct ct_dataset_info *other,
				 ct_dataset **out) CT_MUST_CHECK;
bool ct_plan_has_val(const struct ct_config *c);
/* Returns true if the samples are compressed images. */
bool ct_plan_is_encoded(const struct ct_config *c);
/* Returns true if model.stem selects the small stem. auto selects it if training images have a width and height of at
 * most 64 pixels. If data.train.size contains several sizes, the largest one is compared. */
bool ct_plan_small_stem(const struct ct_config *c, const struct ct_dataset_info *train);
/* Sets the transforms, the image sizes, and the limits on unreadable samples. The batch sizes, numbers of steps and net
 * options in *p must already be set. */
enum ct_status ct_plan_data(const struct ct_config *c, const struct ct_dataset_info *train,
			    const struct ct_dataset_info *val, struct ct_run_plan *p) CT_MUST_CHECK;
/* Computes the weights of the classes in the loss (train.class_weights), scaled so that their mean over the training
 * samples is 1. *out [n_classes] is owned by the caller; it is NULL if the key is not set. Fails with CT_CONFIG and the
 * location in the config. */
enum ct_status ct_plan_class_weights(const struct ct_config *c, const ct_dataset *train, float **out) CT_MUST_CHECK;
/* Converts data.augment.* to *out, except for the mean and for options that are not operations on a single image (crops
 * of encoded images, mixup, CutMix). */
void ct_plan_augment(const struct ct_config *c, struct ct_augment *out);
/* Returns the shape of training images in an epoch. */
struct ct_shape ct_plan_input_at(const struct ct_run_plan *p, uint32_t epoch);
/* Sets all loader options except the callback for unreadable samples (on_bad). */
void ct_plan_loader_opts(const struct ct_config *c, const struct ct_run_plan *p, const struct ct_dataset_info *info,
			 bool train, uint32_t rank, int local_world, struct ct_loader_opts *out);
/* Makes the plan. Fails with CT_CONFIG if the batch size is not a multiple of ranks * accumulation steps, if the shape
 * of the data does not match the model, or if an epoch has no steps. One of the data sets may be NULL. If `train` is
 * NULL, the plan has no batch size, steps, schedule or optimizer. */
enum ct_status ct_run_plan_make(const struct ct_config *c, uint32_t world, const struct ct_dataset_info *train,
				const struct ct_dataset_info *val, struct ct_run_plan *out) CT_MUST_CHECK;
/* Returns the properties of the data that are determined by the config alone. out->n is a guess. out->h is 0 if the
 * shape is stored only in the data files (idx). If the number of classes is stored only in the data files,
 * out->n_classes is 2, or 0 if model.layers determines it (nn/models/model.h). */
enum ct_status ct_plan_foresee_data(const struct ct_config *c, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Does the same, and adds what the headers of existing data files contain. Reads no samples. */
enum ct_status ct_plan_known_data(const struct ct_config *c, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Checks that the network can be built, before the data is opened. Fails with CT_CONFIG and the location in the config,
 * or with CT_DATA if data files exist and the shape in their headers differs from that in the config. */
enum ct_status ct_plan_check_model(const struct ct_config *c) CT_MUST_CHECK;
/* Checks that the files of the training and evaluation data exist, and the weights to start from. No sample is read. On
 * failure, the message lists all problems, one per line, as "FILE:LINE:COLUMN: error: data.dir: ...", and the status is
 * the one that opening the data would return. */
enum ct_status ct_plan_check_data(const struct ct_config *c) CT_MUST_CHECK;
/* The model of the config for this data and images of shape `input`. `spec` borrows from the config and from *out,
 * which must not be copied. */
struct ct_plan_model {
	struct ct_model_spec spec;
	int hidden[16];
};
enum ct_status ct_plan_model(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     struct ct_plan_model *out) CT_MUST_CHECK;
/* Builds the graph of the config for this data and images of shape `input`. The result is owned by the caller. */
enum ct_status ct_plan_graph(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     ct_graph **out) CT_MUST_CHECK;
/* Checks that the weights have the same shapes for all image sizes of training and evaluation. The shapes differ if a
 * linear layer directly follows a flattened image. In this case, fails with CT_CONFIG, and the message names the
 * tensor. g is the graph for the first size of the plan. */
enum ct_status ct_plan_check_sizes(const struct ct_config *c, const struct ct_dataset_info *train,
				   const struct ct_run_plan *p, const ct_graph *g) CT_MUST_CHECK;
/* Sets the element type in which the gradients of weights are summed over the ranks of the plan (p->net.reduce_type) on
 * this device, and what follows from it for the optimizer. */
void ct_run_plan_reduce(const struct ct_config *c, const ct_device *d, struct ct_run_plan *p);
/* Returns dist.bucket_mib in bytes. If it is 0 or auto, returns the usual size: 4 MiB on CPUs, 25 MiB on GPUs. */
size_t ct_plan_bucket_bytes(const struct ct_config *c);
/* Plans the reduce buckets over the net's gradient arena, with buckets of `cap_bytes`, except for the first one. The
 * result is owned by the caller (ct_free). */
enum ct_status ct_plan_buckets(const struct ct_config *c, const ct_net *net, size_t cap_bytes, struct ct_bucket **out,
			       int *n) CT_MUST_CHECK;
/* Chooses the size of the buckets from measured all-reduces (dist/bucket_size.h). */
enum ct_status ct_plan_choose_buckets(const struct ct_config *c, const ct_net *net,
				      const struct ct_allreduce_time *times, int n_times,
				      size_t *cap_bytes) CT_MUST_CHECK;

#endif
