/* The model that a command line names for prediction or export: where its weights are, and how to build it. */
#ifndef CT_TRAINER_TOOLS_EXPORT_SOURCE_H
#define CT_TRAINER_TOOLS_EXPORT_SOURCE_H

#include "infer/description.h"
#include "trainer/config/config.h"
#include "trainer/run/checkpoint/checkpoint.h"

/* All pointers are borrowed. */
struct ct_model_request {
	const char *model;  /* a run directory, a checkpoint directory, or a .safetensors file */
	const char *which;  /* the checkpoint, if `model` is a run directory; NULL: the best, or else the last one */
	const char *config; /* a config that describes the model; NULL: the weights or the run describe it */
	const struct ct_config_set *sets;
	size_t n_sets;
};

struct ct_model_source {
	const struct ct_model_request *request; /* borrowed */
	char *weights;                          /* checkpoint directory or .safetensors file */
	/* The config of the request, else that of the run, else the defaults. Only the keys that say where and how to
	 * compute are meaningful (device, precision, launch, train.engine, train.isa, batch.eval). */
	struct ct_config *cfg;
	struct ct_description description; /* model.n_outputs is that of the weights */
};

/* Finds the weights and the description of the model. Without a config in the request, the description in the weights
 * file is used if no KEY=VALUE changes the model or its data; otherwise the config of the run, without its data set.
 * Fails with CT_USAGE if nothing describes the model. Release *out even if this function fails. */
enum ct_status ct_model_source_open(const struct ct_model_request *q, struct ct_model_source *out) CT_MUST_CHECK;
void ct_model_source_release(struct ct_model_source *s);
/* Calls use(path, user) with the path of the weights. Calls it again with another checkpoint if a run that is training
 * has deleted this one meanwhile. */
enum ct_status ct_model_source_use(struct ct_model_source *s, ct_checkpoint_use_fn use, void *user) CT_MUST_CHECK;

#endif
