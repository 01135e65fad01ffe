/* Incorrect and correct uses of the backend API, with the status that cuDNN 9.19 returns for each. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_MISUSE_H
#define CT_TESTS_SOFT_GPU_CUDNN_MISUSE_H

#include <stddef.h>

#include "tests/soft_gpu/cudnn/build.h"

#define STATUS(test, status) {#test, test, CUDNN_STATUS_##status, NULL}
#define FAIL(test, message) {#test, test, CUDNN_STATUS_SUCCESS, message}

struct misuse {
	const char *name;
	void (*run)(struct builder *b);
	cudnnStatus_t status;
	const char *message; /* the message with which the stand-in ends the process where cuDNN crashes or accepts
			      * invalid input; else NULL */
};
struct misuses {
	const struct misuse *all;
	int n;
};
extern const struct misuses misused_descriptors, misused_operations, misused_graphs;

extern const char *misuse_device; /* a JSON description of the device; the real library requires a complete one */

#endif
