/* Checkpoints: RUN/checkpoints/step-NNNNNNNNNNNN/{model.safetensors,optim.safetensors,state.json}, and the symlinks
 * `last` and `best`. Tensors are stored in the logical layout with torchvision's names, so a checkpoint can be loaded
 * with any engine and world size. model.safetensors contains parameters and buffers. optim.safetensors contains
 * optimizer states as "<state>/<parameter>" (for example momentum_buffer/fc.weight), and the EMA weights as
 * "ema/<name>". state.json contains the size and SHA-256 of both files, and its own checksum. One process of a run
 * saves; any process may read. A checkpoint is written to a temporary directory (.tmp-...), every file is fsynced, the
 * directory is renamed, and its parent directory is fsynced. Therefore a crash at any time leaves the previous
 * checkpoint intact. */
#ifndef CT_TRAINER_RUN_CHECKPOINT_CHECKPOINT_H
#define CT_TRAINER_RUN_CHECKPOINT_CHECKPOINT_H

#include "trainer/job/checkpoints/checkpoint_files.h"
#include "trainer/run/checkpoint/whole.h"

/* Checks that the run directory still belongs to this run. The thread that writes a checkpoint calls `check` before it
 * writes anything to the run directory, and again before it publishes the checkpoint. */
struct ct_checkpoint_guard {
	enum ct_status (*check)(const void *user);
	const void *user;
};

struct ct_checkpoint_source {
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema; /* or NULL */
	/* If it is not NULL, these values are saved instead of those above, which belong to a stage of the model. It is
	 * borrowed, and must not change, until the save is done. */
	const struct ct_whole *whole;
	const struct ct_train_state *state;
	const char *config_lines; /* from ct_config_lines; stored in state.json, so that a resume can name keys that
				     differ */
	const char *net_plan;     /* text of the plan of the net; stored in state.json; NULL: it has none */
	const char *description;  /* of the model (infer/description.h), for the metadata of the files; borrowed until
				     the save is done; NULL: none */
	const struct ct_checkpoint_guard *guard; /* borrowed until the save is done; may be NULL */
	int threads;                             /* number of threads that copy the tensors to host memory; 0: one */
	bool unchanged; /* all values stay the same until the save is done, so those in host memory need no copy */
};

struct ct_checkpoint_result {
	uint64_t step;          /* 0 if nothing was saved */
	char *path;             /* owned by the caller; NULL if step is 0 */
	double seconds;         /* from the snapshot to the end of writing */
	double exposed_seconds; /* time for which the caller waited */
	uint64_t bytes;
};

/* Saves checkpoints while training continues. ct_checkpoint_writer_post takes a snapshot in stream order, that is,
 * after all work posted to the engine's stream, and returns. A thread then hashes, writes, syncs and publishes the
 * snapshot. The checkpoint does not exist until it is published. If a crash happens earlier, a resume uses the previous
 * checkpoint. The result of a save must be taken before the next save is posted.
 *
 * A save writes a checkpoint to RUN/checkpoints and updates the link `last`, and `best` if `best` is true. Then it
 * deletes all but the keep_last newest checkpoints (0 keeps all), but never those that `last` and `best` point to. The
 * newest checkpoint is the one that was saved last, even if training has returned to an earlier step. An existing
 * checkpoint of the same step is replaced. The file system must have space for one checkpoint more than are kept, and
 * host memory must have space for a copy of all tensors (see `unchanged`). Fails with CT_IO and the name of the file in
 * the message, or with CT_NUMERIC if a parameter or an optimizer state is not finite. A failure does not change older
 * checkpoints. Failpoints: ckpt.model and ckpt.optim (each before every tensor from an arena and after the file),
 * ckpt.state, ckpt.rename, ckpt.link, ckpt.prune. */
typedef struct ct_checkpoint_writer ct_checkpoint_writer;
enum ct_status ct_checkpoint_writer_create(const char *run_dir, int keep_last,
					   ct_checkpoint_writer **out) CT_MUST_CHECK;
/* Waits until a posted save has finished. */
void ct_checkpoint_writer_destroy(ct_checkpoint_writer *w);
enum ct_status ct_checkpoint_writer_post(ct_checkpoint_writer *w, const struct ct_checkpoint_source *src,
					 bool best) CT_MUST_CHECK;
/* Returns the result of the posted save. out->step is 0 if no save was posted, or if `wait` is false and the save has
 * not finished. */
enum ct_status ct_checkpoint_writer_take(ct_checkpoint_writer *w, bool wait,
					 struct ct_checkpoint_result *out) CT_MUST_CHECK;
/* Finds the newest valid checkpoint. A checkpoint is valid if its state.json is readable and its checksums match.
 * Invalid checkpoints are reported in warnings and left unchanged. *path is owned by the caller; it is NULL if there is
 * no valid checkpoint. Also removes the .tmp-* directories of processes that have ended, which are recognized by their
 * locks. */
enum ct_status ct_checkpoint_find(const char *run_dir, char **path) CT_MUST_CHECK;
/* Resolves "best", "last" or a path to the path of a checkpoint directory, which is owned by the caller. A path may
 * also be a run directory, whose last checkpoint is used, or a .safetensors file (for
 * trainer/run/checkpoint/model_weights.h). If run_dir is NULL, `what` must be a path. Fails with CT_NOT_FOUND. Does not
 * verify the checkpoint. */
enum ct_status ct_checkpoint_resolve(const char *run_dir, const char *what, char **path) CT_MUST_CHECK;
/* Resolves `what` in the same way as ct_checkpoint_resolve, calls `use` with the path and `user`, and returns the
 * status of that call. A run in progress may delete checkpoints. If the checkpoint is deleted while it is being read,
 * `what` is resolved again, and `use` is called with the new path. *path is the path that was passed to the last call
 * of `use`, even if that call failed, or NULL if `use` was not called. *path is owned by the caller. */
typedef enum ct_status (*ct_checkpoint_use_fn)(const char *path, void *user);
enum ct_status ct_checkpoint_use(const char *run_dir, const char *what, ct_checkpoint_use_fn use, void *user,
				 char **path) CT_MUST_CHECK;
/* Returns the run directory of a path: the path itself, or the run that contains the checkpoint RUN/checkpoints/STEP or
 * a file in that checkpoint. A config.yaml in other parent directories is ignored. Returns NULL if there is no run
 * directory. The result is owned by the caller. */
char *ct_checkpoint_run(const char *path);
/* Compares the size and checksum of file i in the directory with the values in the state. */
enum ct_status ct_ckpt_file_verify(const char *folder, const struct ct_ckpt_state *s, int i) CT_MUST_CHECK;
/* Checks that all files exist and have the correct size and checksum. Fails with CT_DATA; the message names the file
 * and gives the reason. */
enum ct_status ct_checkpoint_verify(const char *path) CT_MUST_CHECK;
/* Loads tensors into the net, and into the optimizer and the EMA weights if they are not NULL. Sets the step count of
 * the optimizer. Checksums are compared first. Every name and shape must match the graph; otherwise this fails with
 * CT_DATA, the message lists the differences, and nothing is loaded from that file. PyTorch's *.num_batches_tracked is
 * ignored. The EMA weights are ignored if ema is NULL, and the optimizer states if optim is NULL. */
enum ct_status ct_checkpoint_load(const char *path, ct_net *net, ct_optim *optim, ct_ema *ema) CT_MUST_CHECK;
/* Does the same for the values of a complete model in host memory, which must have been initialized with `optim`. */
enum ct_status ct_checkpoint_load_whole(const char *path, struct ct_whole *w, ct_optim *optim) CT_MUST_CHECK;

#endif
