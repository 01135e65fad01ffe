/* Weights from a PyTorch state_dict (torchvision, timm) saved as safetensors, or from a ctrain checkpoint. They are matched by name,
 * to start training from them, to evaluate or to predict. F32, F64, F16 and BF16 are converted to fp32. */
#ifndef CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H
#define CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H

#include "nn/engine.h"
#include "trainer/checkpoint/safetensors.h"

/* An open file of weights. The name of a tensor is the prefix and the name in the model; other tensors are not weights. */
struct ct_weights_file {
	char *path;
	ct_safetensors *tensors;
	const char *prefix; /* a literal */
	bool averages;      /* EMA weights (train.ema) */
};
/* path: a .safetensors file, or a checkpoint or run directory, whose checksum is compared. A directory gives the weights that its
 * evaluations used: the EMA weights if it has them, else the parameters. The path of its model.safetensors always gives the
 * parameters. If all names begin with "module." (DistributedDataParallel) or "_orig_mod." (torch.compile), that is the prefix.
 * On failure there is nothing to close. */
enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out) CT_MUST_CHECK;
void ct_weights_close(struct ct_weights_file *f);

enum ct_weights_how {
	CT_WEIGHTS_WHOLE, /* all tensors of the model must match, and the file has no others: else CT_DATA with the number and the
			    * first names of each kind of difference, and nothing is changed */
	CT_WEIGHTS_STRICT, /* the same; the hint mentions model.strict */
	CT_WEIGHTS_FITTING /* loads tensors that match; a warning names the others, which keep their values. CT_DATA if none match */
};

struct ct_weights_report {
	int n;         /* tensors of the model: parameters and running statistics */
	int loaded;    /* of these, those that got their values from the file */
	int missing;   /* tensors of the model that the file lacks */
	int misshaped; /* tensors of both with different shapes, or with an element type that is not floating-point */
	int extra;     /* tensors of the file that the model lacks, except PyTorch's *.num_batches_tracked */
};

/* Parameters and running statistics; path as above. out may be NULL. Only this process's net is changed. */
enum ct_status ct_model_weights_load(const char *path, ct_net *net, enum ct_weights_how how,
				     struct ct_weights_report *out) CT_MUST_CHECK;
/* The number of classes (or targets) of the file's model: the rows of the tensor that is the last weight of g. g may be built for
 * another number. CT_DATA if the file has no such tensor. */
enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out) CT_MUST_CHECK;

#endif
