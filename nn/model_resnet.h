/* Residual networks; names, shapes and order of all tensors as in torchvision.models.resnet. */
#ifndef CT_NN_MODEL_RESNET_H
#define CT_NN_MODEL_RESNET_H

#include "nn/model.h"

/* Name of a residual network, NULL past the end. */
const char *ct_resnet_name_at(size_t i);
bool ct_resnet_exists(const char *name);
/* Adds the layers of spec->name, which exists, after node 0; *logits gets the id of the last. */
enum ct_status ct_resnet_build(ct_graph *g, const struct ct_model_spec *spec, int *logits) CT_MUST_CHECK;

#endif
