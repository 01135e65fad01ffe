/* Reads weights from a PyTorch state_dict (torchvision, timm) saved as safetensors, or from a ctrain checkpoint, for
 * use as initial weights, for evaluation and for prediction. Tensors are matched by name. F32, F64, F16 and BF16 are
 * converted to fp32. */
#ifndef CT_TRAINER_RUN_CHECKPOINT_MODEL_WEIGHTS_H
#define CT_TRAINER_RUN_CHECKPOINT_MODEL_WEIGHTS_H

#include "infer/safetensors.h"
#include "nn/engine.h"
#include "trainer/run/checkpoint/whole.h"

/* An open weights file. The name of a tensor in the file is the prefix followed by its name in the model. Tensors whose
 * names do not begin with the prefix are not weights. */
struct ct_weights_file {
	char *path;
	ct_safetensors *tensors;
	const char *prefix; /* a string literal */
	bool averages;      /* the weights are EMA weights (train.ema) */
};
/* path is a .safetensors file, a checkpoint directory or a run directory. The checksums of a checkpoint are compared.
 * If path is a directory, the weights are those that the run's evaluations used: the EMA weights if the checkpoint
 * contains them, otherwise the parameters. If path is a model.safetensors file, they are always the parameters. If all
 * names begin with "module." (DistributedDataParallel) or "_orig_mod." (torch.compile), that string is the prefix. On
 * failure, there is nothing to close. */
enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out) CT_MUST_CHECK;
void ct_weights_close(struct ct_weights_file *f);

/* Determines what happens if the tensors in the file differ from those of the model:
 * WHOLE: fails with CT_DATA and changes nothing. All tensors of the model must match, and the file must not contain
 *   others. For each kind of difference, the message contains the number of tensors and the first names.
 * STRICT: does the same; the hint mentions model.strict.
 * FITTING: loads the tensors that match. The report lists the others; those of the model keep their values. Fails with
 *   CT_DATA if no tensor matches. */
enum ct_weights_how { CT_WEIGHTS_WHOLE, CT_WEIGHTS_STRICT, CT_WEIGHTS_FITTING };

struct ct_weights_report {
	int n;         /* number of tensors of the model: parameters and running statistics */
	int loaded;    /* number of these that were loaded from the file */
	int missing;   /* number of tensors of the model that are not in the file */
	int misshaped; /* number of tensors in both, but with different shapes or a type that is not floating-point */
	int extra;     /* number of tensors that are only in the file, except PyTorch's *.num_batches_tracked */
	/* Tensors outside the head start from random values, so that the weights may be those of another model. */
	bool doubtful;
	char text[1024]; /* for users: what was loaded from where, and the names of the other tensors; "" for WHOLE */
};

/* Loads parameters and running statistics. path is as above; out may be NULL. Only the net of this process is
 * changed. */
enum ct_status ct_model_weights_load(const char *path, ct_net *net, enum ct_weights_how how,
				     struct ct_weights_report *out) CT_MUST_CHECK;
/* Does the same for the first group of *w; out may be NULL. */
enum ct_status ct_model_weights_load_whole(const char *path, struct ct_whole *w, enum ct_weights_how how,
					   struct ct_weights_report *out) CT_MUST_CHECK;
/* Determines the number of classes (or targets) of the model in the file. It is the number of rows of the tensor that
 * has the same name as the last weight of g. g may have been built for another number of classes. Fails with CT_DATA if
 * the file has no such tensor. */
enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out) CT_MUST_CHECK;

#endif
