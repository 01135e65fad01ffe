/* The checkpoints of a run directory as files: their names, state.json as a struct, and the list of checkpoints. The
 * launcher needs it to know whether a run has made progress. trainer/run/checkpoint saves and loads the tensors. */
#ifndef CT_TRAINER_JOB_CHECKPOINTS_CHECKPOINT_FILES_H
#define CT_TRAINER_JOB_CHECKPOINTS_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define CT_CKPT_FOLDER "checkpoints"
#define CT_CKPT_MODEL "model.safetensors"
#define CT_CKPT_OPTIM "optim.safetensors"
#define CT_CKPT_STATE "state.json"
#define CT_CKPT_TEMP ".tmp-"
#define CT_CKPT_EMA "ema" /* prefix of the EMA weights in optim.safetensors */

enum { CT_CKPT_N_FILES = 2 };

struct ct_ckpt_file {
	uint64_t bytes;
	char sha256[65];
};

/* Everything that a resume needs in addition to the tensors. */
struct ct_train_state {
	uint64_t step;  /* number of optimizer updates done */
	uint32_t epoch; /* position: the next batch is batch number step_in_epoch of this epoch */
	uint64_t step_in_epoch;
	uint64_t optim_steps;
	double best_top1;            /* < 0 if there was no evaluation, or for regression */
	double best_loss;            /* loss of the evaluation at best_step */
	uint64_t best_step;          /* 0: no evaluation yet */
	double last_top1, last_loss; /* of the latest evaluation; < 0 if there was none */
	double epoch_loss_sum;       /* sum of losses in the current epoch so far, over all ranks */
	uint64_t epoch_images;
	uint64_t epoch_bad;   /* unreadable samples of the current epoch so far, over all ranks */
	uint64_t images;      /* number of images in the run so far */
	double train_seconds; /* duration of training so far, including the time before resumes */
	uint32_t global_batch, world;
	uint64_t bucket_bytes; /* size of the buckets if dist.bucket_mib=auto has chosen it, else 0 */
	int64_t seed;
	bool finished; /* the run is complete */
	/* Dynamic loss scaling with precision fp16 (nn/optim/optim.h); 1, 0 and 0 for other precisions. */
	double loss_scale;
	uint32_t loss_scale_steps; /* number of updates since the scale last changed */
	uint64_t skipped_updates;  /* included in optim_steps */
	/* schedule.name=plateau (struct ct_plateau) and train.early_stop; n_since as there */
	double lr_scale, plateau_best, early_best;
	uint32_t plateau_n_since, plateau_cooldown, early_n_since;
	char config_digest[65], data_digest[65], graph_digest[65];
};

/* The contents of state.json. The file begins with its own checksum: the SHA-256 of its text with 64 zeros in place of
 * the checksum. */
struct ct_ckpt_state {
	struct ct_train_state train;
	uint64_t save_index; /* order of saving: 1 + the largest save_index in the run directory */
	struct ct_ckpt_file files[CT_CKPT_N_FILES]; /* in the order of ct_ckpt_file_name */
	char *config_lines;                         /* owned */
	char *net_plan; /* owned: the text of the plan by which the net is computed (nn/net_plan.h); NULL: none */
};
const char *ct_ckpt_file_name(int i);
void ct_ckpt_state_release(struct ct_ckpt_state *s);
enum ct_status ct_ckpt_state_write(const char *path, const struct ct_ckpt_state *s, uint64_t *bytes) CT_MUST_CHECK;
/* Parses the content of state.json. `where` is for messages. On failure, *out is not changed. */
enum ct_status ct_ckpt_state_parse(const char *text, size_t len, const char *where,
				   struct ct_ckpt_state *out) CT_MUST_CHECK;
/* Reads state.json from a checkpoint directory. On failure, *out is not changed. */
enum ct_status ct_ckpt_state_read(const char *folder, struct ct_ckpt_state *out) CT_MUST_CHECK;
/* Copies the value of a key in the config with which the checkpoint was saved. Returns false if the config does not
 * contain the key, or the value does not fit. */
bool ct_ckpt_config_value(const struct ct_ckpt_state *s, const char *key, char *out, size_t size);
/* Reads the state and, if config_lines is not NULL, the lines of the config, which the caller owns. */
enum ct_status ct_checkpoint_load_state(const char *path, struct ct_train_state *out,
					char **config_lines) CT_MUST_CHECK;

struct ct_ckpt_entry {
	char name[40];       /* "step-000000001234" */
	uint64_t step;       /* step number in the name */
	uint64_t save_index; /* 0 if state.json is not valid */
};
/* Returns the number of checkpoint directories in the run directory, including invalid ones. */
int ct_checkpoint_count(const char *run_dir);
/* Returns the number of the newest save among the checkpoints in the run directory, or 0 if there are none. Each save
 * has a larger number than all checkpoints that existed at that time, even if training has returned to an earlier step.
 */
uint64_t ct_checkpoint_newest_save(const char *run_dir);
/* Lists the checkpoints in the directory RUN/checkpoints, oldest first, ordered by save_index and then by step. If the
 * directory is missing, the list is empty. The result is owned by the caller (ct_free). */
enum ct_status ct_ckpt_list(const char *folder, struct ct_ckpt_entry **out, size_t *n) CT_MUST_CHECK;
void ct_ckpt_name(uint64_t step, char out[40]);
/* Returns the target of the link `last` or `best` in the directory, or "" if there is no such link. */
void ct_ckpt_link_target(const char *folder, const char *link, char *out, size_t size);
/* Removes the temporary files of killed processes from the directory. Failures are ignored, because the next call tries
 * again. */
void ct_ckpt_remove_stale(const char *folder);
/* Locks a temporary directory to show that it is in use. Closing the returned descriptor unlocks it. Returns -1 if the
 * file system does not support locks. */
int ct_ckpt_lock(const char *folder);

#endif
