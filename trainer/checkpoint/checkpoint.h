/* Checkpoints: RUN/checkpoints/step-NNNNNNNNNNNN/{model.safetensors,optim.safetensors,state.json}, symlinks `last` and
 * `best`. Logical layout and torchvision names, so they load on any engine and world size: model.safetensors holds
 * parameters and buffers, optim.safetensors "<state>/<parameter>" (momentum_buffer/fc.weight) and the averages as
 * "ema/<name>". state.json holds sizes and SHA-256 of both, and its own checksum. One process of a run saves; any may
 * read. A checkpoint is written to a temporary folder
 * (.tmp-...), every file fsynced, the folder renamed, the parent fsynced: a crash at any instant leaves the previous
 * one whole. */
#ifndef CT_TRAINER_CHECKPOINT_CHECKPOINT_H
#define CT_TRAINER_CHECKPOINT_CHECKPOINT_H

#include "nn/optim/optim.h"

/* Everything a resume needs besides tensors. */
struct ct_train_state {
	uint64_t step;  /* optimizer updates done */
	uint32_t epoch; /* position: next batch is step_in_epoch of epoch */
	uint64_t step_in_epoch;
	uint64_t optim_steps;
	double best_top1;            /* < 0: no evaluation yet, or regression */
	double best_loss;            /* of the evaluation at best_step */
	uint64_t best_step;          /* 0: no evaluation yet */
	double last_top1, last_loss; /* of the newest evaluation; < 0: none */
	double epoch_loss_sum;       /* of the running epoch so far, all ranks */
	uint64_t epoch_images;
	uint64_t epoch_bad;   /* bad samples of the running epoch so far, all ranks */
	uint64_t images;      /* seen in the whole run */
	double train_seconds; /* spent in training so far, over all runs of this folder */
	uint32_t global_batch, world;
	int64_t seed;
	bool finished; /* the run had reached its end */
	char config_digest[65], data_digest[65], graph_digest[65];
};

struct ct_checkpoint_source {
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema; /* or NULL */
	const struct ct_train_state *state;
	const char
		*config_lines; /* ct_config_lines: kept in state.json so that a resume can name the key that differs */
};

/* Saves into RUN/checkpoints and moves `last` (and `best`); prunes to the keep_last newest (0: keeps all), never the
 * ones that last and best point at. Newest is what was saved last, also where training went back to an earlier step. A
 * checkpoint of the same step is replaced. Needs room for one more than is kept, and memory for the largest tensor.
 * path (may be NULL) returns owned; seconds and bytes may be NULL. CT_IO names the file and leaves the older
 * checkpoints as they are; so does CT_NUMERIC, when a parameter or its state is not finite. Failpoints: ckpt.model,
 * ckpt.optim (before each tensor from an arena and after the file), ckpt.state, ckpt.rename, ckpt.link, ckpt.prune. */
enum ct_status ct_checkpoint_save(const char *run_dir, const struct ct_checkpoint_source *src, int keep_last, bool best,
				  char **path, double *seconds, uint64_t *bytes) CT_MUST_CHECK;
/* Newest whole checkpoint (state.json readable and all checksums right); broken ones are named in warnings and left
 * alone. *path returns owned, NULL when there is none. Also removes the .tmp-* folders of processes that died (told by
 * a lock). */
enum ct_status ct_checkpoint_find(const char *run_dir, char **path) CT_MUST_CHECK;
/* Checkpoint folders in the run folder, whole or not. */
int ct_checkpoint_count(const char *run_dir);
/* "best", "last" or a path -> path of a checkpoint folder (owned). A path may also be a run folder (its last
 * checkpoint) or a .safetensors file (for trainer/checkpoint/model_weights.h). Without run_dir (NULL) all are paths.
 * CT_NOT_FOUND. Does not verify. */
enum ct_status ct_checkpoint_resolve(const char *run_dir, const char *what, char **path) CT_MUST_CHECK;
/* Resolves `what` as above and calls use(path, user). A run that trains meanwhile deletes old checkpoints: when this one
 * vanished while it was read, `what` is resolved again and use called again with the new path. *path is the last one
 * used, owned, also where use failed (then its status is returned); NULL when there was none. */
typedef enum ct_status (*ct_checkpoint_use_fn)(const char *path, void *user);
enum ct_status ct_checkpoint_use(const char *run_dir, const char *what, ct_checkpoint_use_fn use, void *user,
				 char **path) CT_MUST_CHECK;
/* The run folder that this is, or that this checkpoint RUN/checkpoints/STEP or file of one is in; a config.yaml in other
 * folders above is somebody else's. Returns owned; NULL: none. */
char *ct_checkpoint_run(const char *path);
/* Checks presence, sizes and checksums of all files; CT_DATA names file and reason. */
enum ct_status ct_checkpoint_verify(const char *path) CT_MUST_CHECK;
enum ct_status ct_checkpoint_load_state(const char *path, struct ct_train_state *out,
					char **config_lines) CT_MUST_CHECK;
/* Tensors into the net (and optimizer, EMA, when not NULL) and the optimizer's step count; compares the checksums
 * first. Every name and shape must match the graph: CT_DATA lists the differences and the file's groups are left
 * unchanged. Passed over are PyTorch's *.num_batches_tracked, and averages or optimizer state that no argument takes.
 */
enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema) CT_MUST_CHECK;

#endif
