/* Reads weights from a PyTorch state_dict (torchvision, timm) saved as safetensors, or from a ctrain checkpoint, to
 * start training from them, to evaluate or to predict. Tensors are matched by name. F32, F64, F16 and BF16 are
 * converted to fp32. */
#ifndef CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H
#define CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H

#include "nn/engine.h"
#include "trainer/checkpoint/safetensors.h"

/* An open file of weights. The name of a tensor is the prefix followed by the name in the model. Tensors with other
 * names are not weights. */
struct ct_weights_file {
	char *path;
	ct_safetensors *tensors;
	const char *prefix; /* a literal */
	bool averages;      /* EMA weights (train.ema) */
};
/* path is a .safetensors file, a checkpoint directory or a run directory. The checksums of a checkpoint are compared.
 * For a directory, the weights are those that its evaluations used: the EMA weights if it has them, else the
 * parameters. For the path of a model.safetensors file, they are always the parameters. If all names begin with "module."
 * (DistributedDataParallel) or "_orig_mod." (torch.compile), this is the prefix. On failure, there is nothing to close. */
enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out) CT_MUST_CHECK;
void ct_weights_close(struct ct_weights_file *f);

/* What happens if the tensors of the file and the model differ:
 * WHOLE: fails with CT_DATA and changes nothing. All tensors of the model must match, and the file may have no others. The
 *   message contains the number and the first names of each kind of difference.
 * STRICT: does the same; the hint mentions model.strict.
 * FITTING: loads the tensors that match. A warning lists the others, which keep their values. Fails with CT_DATA if none match. */
enum ct_weights_how { CT_WEIGHTS_WHOLE, CT_WEIGHTS_STRICT, CT_WEIGHTS_FITTING };

struct ct_weights_report {
	int n;       /* number of tensors of the model: parameters and running statistics */
	int loaded;  /* those of them that were loaded from the file */
	int missing; /* tensors of the model that the file lacks */
	int misshaped; /* tensors that both have, but with different shapes or an element type that is not floating-point */
	int extra;     /* tensors of the file that the model lacks, except PyTorch's *.num_batches_tracked */
};

/* Loads parameters and running statistics. path is as above; out may be NULL. Only the net of this process is changed. */
enum ct_status ct_model_weights_load(const char *path, ct_net *net, enum ct_weights_how how,
				     struct ct_weights_report *out) CT_MUST_CHECK;
/* Returns the number of classes (or targets) of the model in the file, which is the number of rows of the tensor with
 * the name of the last weight of g. g may be built for another number of classes. Fails with CT_DATA if the file has no
 * such tensor. */
enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out) CT_MUST_CHECK;

#endif
