/* Residual networks; names, shapes and order of all tensors as in torchvision.models.resnet. */
#ifndef CT_NN_MODELS_RESNET_IMPL_H
#define CT_NN_MODELS_RESNET_IMPL_H

#include "nn/models/model.h"

/* Name of a residual network, NULL past the end. */
const char *ct__resnet_name_at(size_t i);
bool ct__resnet_exists(const char *name);
/* Adds the layers of spec->name, which must exist, after node 0; *logits is set to the id of the last one. */
enum ct_status ct__resnet_build(ct_graph *g, const struct ct_model_spec *spec, int *logits) CT_MUST_CHECK;

#endif
