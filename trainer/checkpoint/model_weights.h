/* Weights by name: a state_dict of PyTorch (torchvision, timm) saved as safetensors, or a checkpoint of ctrain, as the
 * start of a new training, or to evaluate and to predict with. F32, F64, F16 and BF16 become fp32. */
#ifndef CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H
#define CT_TRAINER_CHECKPOINT_MODEL_WEIGHTS_H

#include "nn/engine.h"
#include "trainer/checkpoint/safetensors.h"

/* Where weights are: tensors of the file are PREFIX + their name in the model; others are no weights. */
struct ct_weights_file {
	char *path;
	ct_safetensors *tensors;
	const char *prefix; /* a literal */
	bool averages;      /* of train.ema */
};
/* path: a .safetensors file, or a checkpoint or run folder, whose checksum is compared. A folder stands for what its
 * evaluations were of: the averages (train.ema) where it holds them, else the parameters; model.safetensors in it for
 * the parameters in any case. In a file whose names all begin with "module." (DistributedDataParallel) or "_orig_mod."
 * (torch.compile) that is the prefix. On failure there is nothing to close. */
enum ct_status ct_weights_open(const char *path, struct ct_weights_file *out) CT_MUST_CHECK;
void ct_weights_close(struct ct_weights_file *f);

enum ct_weights_how {
	CT_WEIGHTS_WHOLE,  /* every tensor must be there in its shape, and no other: else CT_DATA with counts and the
			    * first names of each kind of difference, and nothing is changed */
	CT_WEIGHTS_STRICT, /* the same; the hint tells of model.strict */
	CT_WEIGHTS_FITTING /* what fits is loaded, the rest keeps its values and is logged; CT_DATA when nothing fits */
};

struct ct_weights_report {
	int n;         /* tensors of the model: parameters and running statistics */
	int loaded;    /* of these, those that got their values from the file */
	int missing;   /* tensors of the model that the file lacks */
	int misshaped; /* tensors of both with different shapes, or element types that are no floats */
	int extra;     /* tensors of the file that the model lacks, but for PyTorch's *.num_batches_tracked */
};

/* Parameters and running statistics; path as above. out may be NULL. Only this process's net is changed. */
enum ct_status ct_model_weights_load(const char *path, ct_net *net, enum ct_weights_how how,
				     struct ct_weights_report *out) CT_MUST_CHECK;
/* How many classes (or targets) the file's model has: rows of the tensor that is g's last weight; g may be built for
 * another number. CT_DATA when the file has no such tensor. */
enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out) CT_MUST_CHECK;

#endif
