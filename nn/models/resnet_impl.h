/* Residual networks. Names, shapes and order of all tensors are those of torchvision.models.resnet. */
#ifndef CT_NN_MODELS_RESNET_IMPL_H
#define CT_NN_MODELS_RESNET_IMPL_H

#include "nn/models/model.h"

/* Adds the layers of the residual network spec->name after node 0, and sets *logits to the id of the last layer. */
enum ct_status ct__resnet_build(ct_graph *g, const struct ct_model_spec *spec, int *logits) CT_MUST_CHECK;

#endif
