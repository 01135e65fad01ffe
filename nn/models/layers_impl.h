/* The parser of `model.layers` (one string per layer), for model.c. */
#ifndef CT_NN_MODELS_LAYERS_IMPL_H
#define CT_NN_MODELS_LAYERS_IMPL_H

#include "nn/models/model.h"

/* Adds spec->layers to the graph and sets *last to the id of the last value. nn/models/model.h has the grammar. */
enum ct_status ct__model_layers(ct_graph *g, const struct ct_model_spec *spec, int *last) CT_MUST_CHECK;

#endif
