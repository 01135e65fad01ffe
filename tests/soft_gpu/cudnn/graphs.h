/* Operation graphs of the kinds that training uses, and some that cuDNN does not support. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_GRAPHS_H
#define CT_TESTS_SOFT_GPU_CUDNN_GRAPHS_H

#include "tests/soft_gpu/cudnn/build.h"

struct graph_case {
	const char *name;
	cudnnBackendDescriptor_t (*build)(struct builder *b, cudnnDataType_t type);
	bool supported[3]; /* in fp32, fp16 and bf16: whether cuDNN 9.19 has a plan for an H200 that needs no
			    * compilation */
};
extern const struct graph_case graph_cases[];
extern const int n_graph_cases;

#endif
