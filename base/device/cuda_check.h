/* Errors of the CUDA runtime, for code in the module libctrain_cuda.so. */
#ifndef CT_BASE_DEVICE_CUDA_CHECK_H
#define CT_BASE_DEVICE_CUDA_CHECK_H

#include "base/device/device.h"

/* Returns CT_OK if `error`, a cudaError_t, is cudaSuccess. Otherwise fails with "CUDA: WHAT: NAME: CUDA's description",
 * and adds a hint if the user can correct the problem. `what` names the function that has returned the error. */
enum ct_status ct_cuda_check(int error, const char *what) CT_MUST_CHECK;
/* Writes one sentence that explains why there is no CUDA device. function: the function that has failed with `error`, a
 * cudaError_t. */
void ct_cuda_explain(int error, const char *function, char *why, size_t why_len);
/* Must be called after each launch of a kernel on s. error: the result of the launch; kernel: a description, which
 * messages contain if work on the GPU fails later, together with the string of ct_stream_note. Fails as ct_cuda_check
 * does. */
enum ct_status ct_cuda_launched(ct_stream *s, int error, const char *kernel) CT_MUST_CHECK;
/* Must be called with the result st of a library's function that posts work to s, with the message of the library if it
 * has failed. Libraries return an error of their own if work has failed that was posted before. In this case, replaces
 * the message by that of the error of CUDA, as ct_cuda_launched does. Otherwise, returns st. */
enum ct_status ct_cuda_library_posted(ct_stream *s, enum ct_status st, const char *function) CT_MUST_CHECK;

#endif
