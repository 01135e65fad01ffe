/* A trained model for images from files: what `ctrain predict` runs. */
#ifndef CT_TRAINER_COMMANDS_PREDICT_IMPL_H
#define CT_TRAINER_COMMANDS_PREDICT_IMPL_H

#include "data/files/class_list.h"
#include "data/transform/transform.h"
#include "nn/engine.h"
#include "trainer/config/config.h"

struct ct_predictor {
	struct ct_config *cfg;
	char *weights;                /* checkpoint folder or .safetensors file */
	struct ct_class_list classes; /* n 0: no names are known */
	struct ct_dataset_info info;  /* of the data that it was trained on, as far as can be known without it */
	struct ct_transform transform;
	struct ct_shape input;
	struct ct_net_opts net_opts;
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *program;
	int rows; /* of the program */
};

struct ct_prediction {
	int n;              /* classes that follow, the likeliest first */
	int *label;         /* [n], borrowed */
	float *probability; /* [n] */
};

/* model: a run folder (its best checkpoint, else its last; `which` names another), a checkpoint folder inside of one, or
 * a .safetensors file. config: the file that describes the model, NULL: config.yaml of the run. Release in every case. */
enum ct_status ct__predictor_open(const char *model, const char *which, const char *config,
				  const struct ct_config_set *sets, size_t n_sets, int max_rows,
				  struct ct_predictor *out) CT_MUST_CHECK;
void ct__predictor_release(struct ct_predictor *p);
/* Classifies the files, many at once, and tells each in the order of the list: with its most likely classes (at most
 * top), or with the reason why it could not be read (error; prediction NULL). Returns CT_OK also when some could not. */
enum ct_status ct__predictor_run(struct ct_predictor *p, char *const *paths, uint32_t n, int top,
				 void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error),
				 void *user) CT_MUST_CHECK;

#endif
