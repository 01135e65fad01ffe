/* Applies a trained model to image files, for `ctrain predict`. */
#ifndef CT_TRAINER_COMMANDS_PREDICT_IMPL_H
#define CT_TRAINER_COMMANDS_PREDICT_IMPL_H

#include "data/files/class_list.h"
#include "data/transform/transform.h"
#include "nn/engine.h"
#include "trainer/config/config.h"

struct ct_predictor {
	struct ct_config *cfg;
	char *weights;                /* checkpoint directory or .safetensors file */
	struct ct_class_list classes; /* classes.n is 0 if the names are unknown */
	struct ct_dataset_info info;  /* properties of the training data that follow from the config */
	struct ct_transform transform;
	struct ct_shape input;
	struct ct_net_opts net_opts;
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *program;
	int rows; /* batch size of the program */
};

struct ct_prediction {
	int n;              /* length of the arrays below, which begin with the most likely class */
	int *label;         /* [n] class numbers, borrowed */
	float *probability; /* [n] */
};

/* Opens a model. `model` is a run directory, a checkpoint directory in a run directory, or a .safetensors file. If
 * `model` is a run directory, `which` selects the checkpoint; if `which` is NULL, the best checkpoint is used, or the
 * last one if there is no best one. config is the path of the config that describes the model; if it is NULL, the
 * config.yaml of the run is used. Release *out even if this function fails. */
enum ct_status ct__predictor_open(const char *model, const char *which, const char *config,
				  const struct ct_config_set *sets, size_t n_sets, int max_rows,
				  struct ct_predictor *out) CT_MUST_CHECK;
void ct__predictor_release(struct ct_predictor *p);
/* Classifies the files in batches. Calls `tell` once for each file, in the order of the list. If the file was read, `r`
 * contains its most likely classes (at most `top`). Otherwise `r` is NULL, and `error` is the reason. An unreadable
 * file does not make this function fail. */
enum ct_status ct__predictor_run(struct ct_predictor *p, char *const *paths, uint32_t n, int top,
				 void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error),
				 void *user) CT_MUST_CHECK;

#endif
