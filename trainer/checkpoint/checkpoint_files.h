/* Declarations shared by the source files in trainer/checkpoint: file names, state.json as a struct, and the list of a
 * run's checkpoints. */
#ifndef CT_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H
#define CT_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H

#include "trainer/checkpoint/checkpoint.h"

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

/* The contents of state.json. The file begins with its own checksum: the SHA-256 of its text with 64 zeros in place of
 * the checksum. */
struct ct_ckpt_state {
	struct ct_train_state train;
	uint64_t save_index; /* order of saving: 1 + the largest save_index in the run directory */
	struct ct_ckpt_file files[CT_CKPT_N_FILES]; /* in the order of ct_ckpt_file_name */
	char *config_lines;                         /* owned */
};
const char *ct_ckpt_file_name(int i);
void ct_ckpt_state_release(struct ct_ckpt_state *s);
enum ct_status ct_ckpt_state_write(const char *path, const struct ct_ckpt_state *s, uint64_t *bytes) CT_MUST_CHECK;
/* Reads state.json from a checkpoint directory. On failure, *out is not changed. */
enum ct_status ct_ckpt_state_read(const char *folder, struct ct_ckpt_state *out) CT_MUST_CHECK;
/* For the fuzzer: runs only the parser of state.json. */
enum ct_status ct_ckpt_state_parse_fuzz(const uint8_t *data, size_t len) CT_MUST_CHECK;
/* Compares the size and checksum of file i in the directory with the values in the state. */
enum ct_status ct_ckpt_file_verify(const char *folder, const struct ct_ckpt_state *s, int i) CT_MUST_CHECK;

struct ct_ckpt_entry {
	char name[40];       /* "step-000000001234" */
	uint64_t step;       /* step number in the name */
	uint64_t save_index; /* 0 if state.json is not valid */
};
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
