/* The parser of `model.layers`: one text a layer, for model.c. */
#ifndef CT_NN_MODEL_LAYERS_H
#define CT_NN_MODEL_LAYERS_H

#include "nn/model.h"

/* Adds spec->layers to the graph and returns the id of the last value. The grammar is in nn/model.h. */
enum ct_status ct_model_layers(ct_graph *g, const struct ct_model_spec *spec, int *last) CT_MUST_CHECK;

#endif
