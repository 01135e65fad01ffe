/* Checkpoints: RUN/checkpoints/step-NNNNNNNNNNNN/{model.safetensors,optim.safetensors,state.json}, symlinks `last` and
 * `best`. Logical layout and torchvision names, so they load on any engine and world size: model.safetensors holds
 * parameters and buffers; optim.safetensors holds "<state>/<parameter>" (momentum_buffer/fc.weight) and the EMA weights as
 * "ema/<name>". state.json holds size and SHA-256 of both files, and its own checksum. One process of a run saves; any process may
 * read. A checkpoint is written to a temporary directory (.tmp-...), every file is fsynced, the directory is renamed and its parent
 * fsynced. So a crash at any time leaves the previous checkpoint intact. */
#ifndef CT_TRAINER_CHECKPOINT_CHECKPOINT_H
#define CT_TRAINER_CHECKPOINT_CHECKPOINT_H

#include "nn/optim/optim.h"

/* Everything a resume needs besides tensors. */
struct ct_train_state {
	uint64_t step;  /* optimizer updates done */
	uint32_t epoch; /* position: the next batch is number step_in_epoch of this epoch */
	uint64_t step_in_epoch;
	uint64_t optim_steps;
	double best_top1;            /* < 0: no evaluation yet, or regression */
	double best_loss;            /* of the evaluation at best_step */
	uint64_t best_step;          /* 0: no evaluation yet */
	double last_top1, last_loss; /* of the latest evaluation; < 0: none */
	double epoch_loss_sum;       /* of the current epoch so far, over all ranks */
	uint64_t epoch_images;
	uint64_t epoch_bad;   /* unreadable samples of the current epoch so far, over all ranks */
	uint64_t images;      /* of the run so far */
	double train_seconds; /* of training so far, resumes included */
	uint32_t global_batch, world;
	int64_t seed;
	bool finished; /* the run had reached its end */
	/* Dynamic loss scaling of precision fp16; 1 and 0 without it. */
	double loss_scale;
	uint32_t loss_scale_steps; /* updates since the scale was changed */
	char config_digest[65], data_digest[65], graph_digest[65];
};

/* Asked before anything is written into the run directory and before the checkpoint is published, by the thread that
 * writes: is the directory still this run's? */
struct ct_checkpoint_guard {
	enum ct_status (*check)(const void *user);
	const void *user;
};

struct ct_checkpoint_source {
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema; /* or NULL */
	const struct ct_train_state *state;
	const char *
		config_lines; /* ct_config_lines: stored in state.json, so that a resume can name the key that differs */
	const struct ct_checkpoint_guard *guard; /* borrowed until the save is done; NULL: none */
	int threads;                             /* that copy the tensors to host memory; 0: one */
};

struct ct_checkpoint_result {
	uint64_t step;          /* 0: nothing was saved */
	char *path;             /* owned by the caller; NULL with step 0 */
	double seconds;         /* from the snapshot to the end of writing */
	double exposed_seconds; /* in which the caller has waited for the snapshot and the end of writing */
	uint64_t bytes;
};

/* Saves into RUN/checkpoints and moves `last` (and `best`); prunes to the keep_last newest (0: keeps all), never the
 * ones that last and best point at. Newest is what was saved last, also where training went back to an earlier step. A
 * checkpoint of the same step is replaced. Needs room on the file system for one more than is kept, and memory for a copy of all
 * tensors. out may be NULL. CT_IO names the file and leaves the older
 * checkpoints as they are; so does CT_NUMERIC, when a parameter or its state is not finite. Failpoints: ckpt.model,
 * ckpt.optim (before each tensor from an arena and after the file), ckpt.state, ckpt.rename, ckpt.link, ckpt.prune. */
enum ct_status ct_checkpoint_save(const char *run_dir, const struct ct_checkpoint_source *src, int keep_last, bool best,
				  struct ct_checkpoint_result *out) CT_MUST_CHECK;

/* The same while training continues: post takes a snapshot in the order of the engine's stream and returns; a thread hashes, writes,
 * syncs and publishes it. At most one save is posted and not taken. Until the thread has published it, a checkpoint does not exist:
 * what a crash leaves is the one before. */
typedef struct ct_checkpoint_writer ct_checkpoint_writer;
enum ct_status ct_checkpoint_writer_create(const char *run_dir, int keep_last,
					   ct_checkpoint_writer **out) CT_MUST_CHECK;
/* Waits for a save that was posted. */
void ct_checkpoint_writer_destroy(ct_checkpoint_writer *w);
enum ct_status ct_checkpoint_writer_post(ct_checkpoint_writer *w, const struct ct_checkpoint_source *src,
					 bool best) CT_MUST_CHECK;
/* The result of the posted save. step 0: none was posted, or (without wait) it is not finished yet. */
enum ct_status ct_checkpoint_writer_take(ct_checkpoint_writer *w, bool wait,
					 struct ct_checkpoint_result *out) CT_MUST_CHECK;
/* The newest valid checkpoint (state.json is readable and all checksums match). Invalid ones are reported in warnings and not
 * changed. *path is owned, NULL if there is none. Also removes the .tmp-* directories of processes that died, which a lock shows. */
enum ct_status ct_checkpoint_find(const char *run_dir, char **path) CT_MUST_CHECK;
/* Number of checkpoint directories in the run directory, valid or not. */
int ct_checkpoint_count(const char *run_dir);
/* "best", "last" or a path -> path of a checkpoint directory (owned). A path may also be a run directory (its
 * last checkpoint) or a .safetensors file (for trainer/checkpoint/model_weights.h). Without run_dir (NULL) `what` is a path.
 * CT_NOT_FOUND. Does not verify. */
enum ct_status ct_checkpoint_resolve(const char *run_dir, const char *what, char **path) CT_MUST_CHECK;
/* Resolves `what` as above and calls use(path, user). A run that is training deletes old checkpoints: if this one was deleted while
 * it was read, `what` is resolved again and use is called with the new path. *path is the last path used, owned, also if use failed
 * (its status is returned); NULL if there was none. */
typedef enum ct_status (*ct_checkpoint_use_fn)(const char *path, void *user);
enum ct_status ct_checkpoint_use(const char *run_dir, const char *what, ct_checkpoint_use_fn use, void *user,
				 char **path) CT_MUST_CHECK;
/* The run directory of a path: the path itself, or the run that contains this checkpoint RUN/checkpoints/STEP or a file of it. A
 * config.yaml in other parent directories is ignored. Returns owned; NULL: none. */
char *ct_checkpoint_run(const char *path);
/* Checks presence, sizes and checksums of all files; CT_DATA names file and reason. */
enum ct_status ct_checkpoint_verify(const char *path) CT_MUST_CHECK;
enum ct_status ct_checkpoint_load_state(const char *path, struct ct_train_state *out,
					char **config_lines) CT_MUST_CHECK;
/* Loads tensors into the net (and into optimizer and EMA, if not NULL) and sets the optimizer's step count. Checksums are compared
 * first. Every name and shape must match the graph: otherwise CT_DATA lists the differences, and nothing of that file is loaded.
 * PyTorch's *.num_batches_tracked is ignored, and so are EMA weights and optimizer states for which the argument is NULL. */
enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema) CT_MUST_CHECK;

#endif
