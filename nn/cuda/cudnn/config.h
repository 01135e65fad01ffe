/* Engine configurations: an engine of cuDNN and the values of its knobs. The string form, for example
 * "67:2=1,13=0,28=1", identifies a configuration of a graph as long as the version of cuDNN is the same. */
#ifndef CT_NN_CUDA_CUDNN_CONFIG_H
#define CT_NN_CUDA_CUDNN_CONFIG_H

#include "nn/cuda/cudnn/graph.h"

enum { CT__CUDNN_CONFIG_MAX = 256 }; /* bytes of a string form */

/* Writes the string form of a configuration that a heuristic has returned, and the index of its engine. */
enum ct_status ct__cudnn_config_read(cudnnBackendDescriptor_t config, char text[CT__CUDNN_CONFIG_MAX],
				     int64_t *engine) CT_MUST_CHECK;
/* Makes the configuration that the string form describes, which the caller destroys. `properties` is the descriptor of
 * the device. Fails with CT_DATA if the string is malformed, and with CT_UNSUPPORTED if cuDNN has no such configuration
 * for this graph. */
enum ct_status ct__cudnn_config_make(const ct__cudnn_graph *g, cudnnBackendDescriptor_t properties, const char *text,
				     cudnnBackendDescriptor_t *out) CT_MUST_CHECK;

#endif
