/* Descriptors of cuDNN's backend API, with errors converted to enum ct_status. */
#ifndef CT_NN_CUDA_CUDNN_DESCRIPTOR_H
#define CT_NN_CUDA_CUDNN_DESCRIPTOR_H

#include <cudnn_graph.h>

#include "base/status.h"

/* Returns CT_OK if st is success; otherwise fails with the message "cuDNN: FUNCTION: reason".
 * CUDNN_STATUS_NOT_SUPPORTED_* and the failure to compile an engine become CT_UNSUPPORTED, allocation failures become
 * CT_NOMEM, and all other errors become CT_DEVICE. */
enum ct_status ct__cudnn_check(cudnnStatus_t st, const char *function) CT_MUST_CHECK;

/* Logs a warning if a call that releases something has failed, unless another error is pending. */
void ct__cudnn_released(cudnnStatus_t st, const char *function);

enum ct_status ct__cudnn_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) CT_MUST_CHECK;
/* d may be NULL. */
void ct__cudnn_destroy(cudnnBackendDescriptor_t d);
enum ct_status ct__cudnn_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t n, const void *values) CT_MUST_CHECK;
/* Gets at most `room` values, and sets *n to how many there are. `what` says for what the call is made. */
enum ct_status ct__cudnn_get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values,
			     const char *what) CT_MUST_CHECK;
/* `what` says what is finalized. */
enum ct_status ct__cudnn_finalize(cudnnBackendDescriptor_t d, const char *what) CT_MUST_CHECK;

#endif
