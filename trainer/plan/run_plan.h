/* What a config means for one world size and data set: batch sizes, steps, learning rate, and the option structs of nn
 * and data. Pure but for opening data sets; used by training, `ctrain plan`, `ctrain eval` and the benches, so they
 * can't disagree. */
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
	struct ct_sampler train, val;                 /* rank 0's; set .rank */
	struct ct_transform transform, val_transform; /* of training and evaluation images */
	struct ct_loader_size sizes[16];              /* of training images by epoch; none: as the data is */
	int n_sizes;
	struct ct_shape input, val_input; /* of the model: training in epoch 0, evaluation */
	float mixup, cutmix;
	uint64_t max_bad, max_bad_val; /* bad samples of an epoch, of an evaluation: over all ranks */
	struct ct_net_opts net;        /* sync is the session's */
	enum ct_init init;
	bool has_val, regression, encoded;
};

struct ct_ranks {
	int local, first, world; /* of this node; the first rank here; in all */
	int node, n_nodes;
};
/* From launch.procs (or its per-node list), launch.nodes and launch.node_rank. */
enum ct_status ct_plan_ranks(const struct ct_config *c, struct ct_ranks *out) CT_MUST_CHECK;
/* CT_CONFIG when the batch can't be cut evenly into ranks and accumulation steps: known before anything is started. */
enum ct_status ct_plan_check_batch(const struct ct_config *c, uint32_t world) CT_MUST_CHECK;
/* Ranks of this node: launch.procs, where auto means one per device, on the CPU 2 (1 where there is one CPU). */
int ct_plan_local_procs(const struct ct_config *c);
/* launch.threads, where auto means the CPUs divided by the local ranks, at least 1; of four and more, those that
 * distort images are left to the loader. */
int ct_plan_threads(const struct ct_config *c, int local_world);
/* data.workers, where auto means none for small images in memory (made inline faster than handed over), else an eighth
 * of the rank's CPUs, at least 1; where compressed images go to a GPU all of them but one. */
int ct_plan_loader_threads(const struct ct_config *c, const struct ct_dataset_info *info, int local_world);
/* How a run that ended early goes on, for hints: "run the same command again", where that does not start it afresh. A
 * literal. */
const char *ct_plan_how_to_resume(const struct ct_config *c);
/* run.dir with its default, without slashes at its end (RUN.old-1 stands beside it); returns owned. */
char *ct_plan_run_dir(const struct ct_config *c);
/* The device of a rank: its own GPU, or the host's CPUs. launch.devices without GPUs is CT_CONFIG. */
enum ct_status ct_plan_device_open(const struct ct_config *c, int local_rank, ct_device **out) CT_MUST_CHECK;
/* Does the engine compute in the config's precision? CT_UNSUPPORTED with the reason and what would do. */
enum ct_status ct_plan_check_precision(const struct ct_config *c, const ct_engine *e) CT_MUST_CHECK;
/* The same for the engine that the config names on this host, before there are ranks. */
enum ct_status ct_plan_check_engine(const struct ct_config *c) CT_MUST_CHECK;
/* What the ranks of one run show each other: dist.run_id, else what who started them calls the run ("": nothing), else
 * its name. Borrowed. */
const char *ct_plan_run_id(const struct ct_config *c, const char *launchers);

void ct_plan_dataset_spec(const struct ct_config *c, bool train, struct ct_dataset_spec *out);
/* Opens the training or evaluation data. other: the data set opened before, whose number of classes counts for this one
 * too where the config leaves it to the data; NULL. */
enum ct_status ct_plan_open_data(const struct ct_config *c, bool train, const struct ct_dataset_info *other,
				 ct_dataset **out) CT_MUST_CHECK;
bool ct_plan_has_val(const struct ct_config *c);
/* Is the data of compressed images? */
bool ct_plan_is_encoded(const struct ct_config *c);
/* model.stem, where auto means the small one for training images of at most 64 pixels (the largest of
 * data.train.size). */
bool ct_plan_small_stem(const struct ct_config *c, const struct ct_dataset_info *train);
/* Transforms, sizes, budgets of p; its batch, steps and net are there already. */
enum ct_status ct_plan_data(const struct ct_config *c, const struct ct_dataset_info *train,
			    const struct ct_dataset_info *val, struct ct_run_plan *p) CT_MUST_CHECK;
/* Shape of training images in an epoch. */
struct ct_shape ct_plan_input_at(const struct ct_run_plan *p, uint32_t epoch);
/* Everything but what is told about bad samples (on_bad). */
void ct_plan_loader_opts(const struct ct_config *c, const struct ct_run_plan *p, const struct ct_dataset_info *info,
			 bool train, uint32_t rank, int local_world, struct ct_loader_opts *out);
/* CT_CONFIG when the pieces do not fit (batch not divisible by ranks and accumulation, data of another shape than the
 * model, no step at all ...). One of the data sets may be NULL; without train there is nothing of training in the plan:
 * no batch, steps, schedule, optimizer. */
enum ct_status ct_run_plan_make(const struct ct_config *c, uint32_t world, const struct ct_dataset_info *train,
				const struct ct_dataset_info *val, struct ct_run_plan *out) CT_MUST_CHECK;
/* The data as it will be, as far as the config alone says: n is a guess; h 0: only the files know the shape (idx). Where
 * only they know the number of classes, n_classes is 2; 0 with model.layers, which say it themselves (nn/models/model.h). */
enum ct_status ct_plan_foresee_data(const struct ct_config *c, struct ct_dataset_info *out) CT_MUST_CHECK;
/* The network, before data is opened: CT_CONFIG with the place in the config when it can't be built, CT_DATA when the data
 * is there and its headers tell of another shape than the config. */
enum ct_status ct_plan_check_model(const struct ct_config *c) CT_MUST_CHECK;
/* Whether the files of the training and evaluation data exist; no sample is read. Otherwise all problems, one a line, as
 * "FILE:LINE:COLUMN: error: data.dir: ...", with the status that opening the data would have. */
enum ct_status ct_plan_check_data(const struct ct_config *c) CT_MUST_CHECK;
/* The graph that the config asks for on this data, for images of shape input. Returns owned. */
enum ct_status ct_plan_graph(const struct ct_config *c, const struct ct_dataset_info *train, struct ct_shape input,
			     ct_graph **out) CT_MUST_CHECK;
/* Images of every size that training and evaluation will see are for the same weights: CT_CONFIG names the tensor where
 * they are not (a linear layer right behind a flattened image). g: of plan's first size. */
enum ct_status ct_plan_check_sizes(const struct ct_config *c, const struct ct_dataset_info *train,
				   const struct ct_run_plan *p, const ct_graph *g) CT_MUST_CHECK;
/* Reduce buckets over the net's gradient arena, caps from dist.*. Returns owned (ct_free). */
enum ct_status ct_plan_buckets(const struct ct_config *c, const ct_net *net, struct ct_bucket **out,
			       int *n) CT_MUST_CHECK;

#endif
