/* Pretrained weights: a state_dict of PyTorch (torchvision, timm) saved as safetensors, or a checkpoint of ctrain, as
 * the start of a new training. Other than ct_checkpoint_load_weights, which wants a whole model, this can take a part
 * of one, and converts what it finds. */
#ifndef CT_TRAINER_MODEL_WEIGHTS_H
#define CT_TRAINER_MODEL_WEIGHTS_H

#include "nn/engine.h"

struct ct_weights_report {
	int loaded;    /* tensors of the model that got their values from the file */
	int missing;   /* tensors of the model that the file lacks */
	int misshaped; /* tensors of both with different shapes, or element types that are no floats */
	int extra;     /* tensors of the file that the model lacks, but for PyTorch's *.num_batches_tracked */
};

/* Parameters and running statistics by name. F32, F64, F16 and BF16 become fp32; in a file whose names all begin with
 * "module." (DistributedDataParallel) or "_orig_mod." (torch.compile) that is passed over. `path` is a .safetensors file,
 * or a checkpoint or run folder (parameters, not averages; checksums compared).
 *   strict       every tensor of the model must be there in its shape, and no other: else CT_DATA with counts and the
 *                first names of each kind of difference, and nothing is changed
 *   not strict   what fits is loaded, the rest keeps its values and is logged; CT_DATA when nothing fits
 * out may be NULL. Only this process's net is changed. */
enum ct_status ct_model_weights_load(const char *path, ct_net *net, bool strict,
				     struct ct_weights_report *out) CT_MUST_CHECK;
/* How many classes (or targets) the file's model has: rows of the tensor that is g's last weight; g may be built for
 * another number. CT_DATA when the file has no such tensor. */
enum ct_status ct_model_weights_outputs(const char *path, const ct_graph *g, int *out) CT_MUST_CHECK;

#endif
