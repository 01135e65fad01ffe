/* Checkpoints: RUN/checkpoints/step-NNNNNNNNNNNN/{model.safetensors,optim.safetensors,state.json}, symlinks `last` and `best`.
 * Logical layout and torchvision names, so they load on any engine and world size. A checkpoint is written to a temporary folder
 * (.tmp-...), every file fsynced, the folder renamed, the parent fsynced: a crash at any instant leaves the previous one whole. */
#ifndef CT_TRAINER_CHECKPOINT_H
#define CT_TRAINER_CHECKPOINT_H

#include "nn/optim.h"

/* Everything a resume needs besides tensors. */
struct ct_train_state {
	uint64_t step;          /* optimizer updates done */
	uint32_t epoch;         /* position: next batch is step_in_epoch of epoch */
	uint64_t step_in_epoch;
	uint64_t optim_steps;
	double best_top1;       /* < 0: no evaluation yet, or regression */
	double best_loss;       /* of the evaluation at best_step */
	uint64_t best_step;     /* 0: no evaluation yet */
	double last_top1, last_loss; /* of the newest evaluation; < 0: none */
	double epoch_loss_sum;  /* of the running epoch so far, all ranks */
	uint64_t epoch_images;
	uint64_t images;        /* seen in the whole run */
	double train_seconds;   /* spent in training so far, over all runs of this folder */
	uint32_t global_batch, world;
	int64_t seed;
	bool finished;          /* the run had reached its end */
	char config_digest[65], data_digest[65], graph_digest[65];
};

struct ct_checkpoint_source {
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema;             /* or NULL */
	const struct ct_train_state *state;
	const char *config_lines; /* ct_config_lines: kept in state.json so that a resume can name the key that differs */
};

/* Saves into RUN/checkpoints and moves `last` (and `best`); prunes to keep_last, never the ones that last and best point at. path (may be NULL)
 * returns owned; seconds and bytes may be NULL. CT_IO leaves nothing behind but the older checkpoints. */
enum ct_status ct_checkpoint_save(const char *run_dir, const struct ct_checkpoint_source *src, int keep_last, bool best,
				  char **path, double *seconds, uint64_t *bytes) CT_MUST_CHECK;
/* Newest whole checkpoint (state.json readable and both checksums right); broken ones are named in warnings and left alone. *path
 * returns owned, NULL when there is none. Also removes stale .tmp-* folders of dead processes. */
enum ct_status ct_checkpoint_find(const char *run_dir, char **path) CT_MUST_CHECK;
/* "best", "last" or a path -> path of a checkpoint folder (owned). */
enum ct_status ct_checkpoint_resolve(const char *run_dir, const char *what, char **path) CT_MUST_CHECK;
/* Checks presence, sizes and checksums of all files; CT_DATA names file and reason. */
enum ct_status ct_checkpoint_verify(const char *path) CT_MUST_CHECK;
enum ct_status ct_checkpoint_load_state(const char *path, struct ct_train_state *out, char **config_lines) CT_MUST_CHECK;
/* Tensors into the net (and optimizer, EMA, when not NULL); every name and shape must match the graph, differences are listed. */
enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema) CT_MUST_CHECK;
/* Evaluation weights: parameters, or the averages when the checkpoint has them and use_ema. */
enum ct_status ct_checkpoint_load_weights(const char *path, ct_net *net, bool use_ema) CT_MUST_CHECK;
/* state.json parser alone, for the fuzzer. */
enum ct_status ct_checkpoint_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
